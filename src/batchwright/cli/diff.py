"""`batchwright diff`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import options
from batchwright.cli.exits import OK, SOME_FAILED, say
from batchwright.cli.table import Column

if TYPE_CHECKING:
    from batchwright.cli.table import Cell
    from batchwright.ports.batches import Batches
    from batchwright.runner.difference import Difference, Side
    from batchwright.runner.pairing import Pair
    from batchwright.wire.answer_lines import AnswerRow

COLUMNS = (
    Column(heading="ROW"),
    Column(heading="CUSTOM ID", cut_to=8),
    Column(heading="OUTCOME ONE", short="ONE"),
    Column(heading="OUTCOME TWO", short="TWO"),
    Column(heading="ANSWER ONE", cut_to=12),
    Column(heading="ANSWER TWO", cut_to=12),
)
MAX_TABLE_ROWS = 10_000
ALONE = "-"
"""Stands for the outcome of a row that the other side alone has."""


@click.command(name="diff")
@click.argument("one", metavar="ONE")
@click.argument("two", metavar="TWO")
@click.option(
    "--limit",
    type=click.IntRange(0, MAX_TABLE_ROWS),
    default=50,
    help="Rows that differ to show, at most; 0 is all. All are counted. [default: 50]",
)
@options.there_options
@options.json_option("Sums and rows as one JSON object.")
def diff_command(one: str, two: str, limit: int, as_json: bool, **given: Any) -> int:
    """Compare two sets of answers, row by row.

    ONE and TWO are files of answers (JSONL or CSV) or batches. Rows are matched by their custom_id, those without one
    by their index, in whatever order they stand. Rows that differ (another outcome or answer, or in one alone) go to
    stdout, sums to stderr: with rows of success counted answer against answer where these are few and short. Ends with
    0 where nothing differs, with 3 where something does, with 2 where ONE or TWO cannot be read.

    \b
    Examples:
      batchwright diff before.jsonl after.jsonl
      batchwright diff 3f9a @last --limit 0 --json
    """
    found = _compare(one, two, limit, given)
    if as_json:
        _print_json(found)
    else:
        _print_rows(found)
        _say_sums(found, one, two)
    return OK if found.is_none else SOME_FAILED


def _compare(one: str, two: str, limit: int, given: dict[str, Any]) -> Difference:
    from batchwright.cli.running import run_to_end, with_batches
    from batchwright.runner.answers_file import is_answers_file
    from batchwright.runner.difference import Difference
    from batchwright.runner.pairing import Pairing

    found = Difference(kept_max=limit)

    async def compare(batches: Batches | None) -> Difference:
        sides = [_of_file(text) if is_answers_file(text) else await _of_batch(batches, text) for text in (one, two)]
        async for pair in Pairing().pairs(sides[0], sides[1]):
            found.add(pair)
        return found

    settings = options.load_settings(given)
    if is_answers_file(one) and is_answers_file(two):
        return run_to_end(compare(None))
    return with_batches(settings, compare)


async def _of_file(text: str) -> AsyncIterator[AnswerRow]:
    from batchwright.runner.answers_file import read_answers

    for row in read_answers(Path(text)):
        yield row


async def _of_batch(batches: Batches | None, text: str) -> AsyncIterator[AnswerRow]:
    from batchwright.wire.answer_lines import answer_of_view

    assert batches is not None, "opened where something is no file"
    opened, batch_id = batches, await batches.resolve(text)

    async def rows() -> AsyncIterator[AnswerRow]:
        async for views in opened.rows(batch_id):
            for view in views:
                yield answer_of_view(view)

    return rows()


def _print_rows(found: Difference) -> None:
    from batchwright.cli import screen

    screen.print_rows(COLUMNS, [_cells(pair) for pair in found.kept])


def _cells(pair: Pair) -> list[Cell]:
    from batchwright.cli import screen

    one, two = pair
    row = one or two
    assert row is not None
    return [
        screen.count_cell(row.index),
        screen.text_cell(row.custom_id or ""),
        screen.text_cell(one.outcome if one is not None else ALONE),
        screen.text_cell(two.outcome if two is not None else ALONE),
        screen.text_cell(one.answer if one is not None else ""),
        screen.text_cell(two.answer if two is not None else ""),
    ]


def _say_sums(found: Difference, one: str, two: str) -> None:
    from batchwright.runner.figures import plural

    both = found.same + found.changed
    differing = found.changed + found.one.alone + found.two.alone
    if len(found.kept) < differing:
        say(f"The first {len(found.kept):,} of {differing:,} rows that differ are shown; --limit N shows more.")
    say(f"{plural(both, 'row')} in both: {found.same:,} the same, {found.changed:,} changed.")
    if not both:
        say("No row of one has the custom_id or the index of a row of the other.")
    for name, side in ((one, found.one), (two, found.two)):
        if side.alone:
            say(f"{plural(side.alone, 'row')} only in {name}.")
    if found.other_request:
        say(f"{plural(found.other_request, 'row')} in both asked something else.")
    for (before, after), rows in sorted(found.outcomes.items(), key=lambda pair: -pair[1]):
        if before != after:
            say(f"  {rows:,} {before} -> {after}")
    changed = {key: rows for key, rows in (found.matrix or {}).items() if key[0] != key[1]}
    for (before, after), rows in sorted(changed.items(), key=lambda pair: -pair[1]):
        say(f"  {rows:,} {_shown(before)} -> {_shown(after)}")
    if both:
        say(f"  cost: {_cost(found.one)} -> {_cost(found.two)}")
        tokens = [f"{side.prompt_tokens:,} in, {side.completion_tokens:,} out" for side in (found.one, found.two)]
        say(f"  tokens: {tokens[0]} -> {tokens[1]}")


def _shown(answer: str) -> str:
    from batchwright.runner.figures import shown_text

    return f"'{shown_text(answer)}'"


def _cost(side: Side) -> str:
    from batchwright.runner.figures import money_text

    if side.without_cost == side.rows:
        return "not known"
    return money_text(side.cost_picousd) + ("+" if side.without_cost else "")


def _print_json(found: Difference) -> None:
    from batchwright.cli import screen

    matrix = found.matrix
    screen.print_json(
        {
            "same": found.same,
            "changed": found.changed,
            "outcomes_changed": found.outcomes_changed,
            "other_request": found.other_request,
            "only_in_one": found.one.alone,
            "only_in_two": found.two.alone,
            "outcomes": [{"one": key[0], "two": key[1], "rows": rows} for key, rows in found.outcomes.items()],
            "answers": None
            if matrix is None
            else [{"one": key[0], "two": key[1], "rows": rows} for key, rows in matrix.items()],
            "one": _side_json(found.one),
            "two": _side_json(found.two),
            "rows": [_pair_json(pair) for pair in found.kept],
        }
    )


def _side_json(side: Side) -> dict[str, Any]:
    """Of the rows in both."""
    from batchwright.runner.standing import usd_json

    return {
        "rows": side.rows,
        "ok": side.ok,
        "prompt_tokens": side.prompt_tokens,
        "completion_tokens": side.completion_tokens,
        "cost_usd": usd_json(side.cost_picousd, complete=not side.without_cost),
        "rows_without_cost": side.without_cost,
    }


def _pair_json(pair: Pair) -> dict[str, Any]:
    row = pair.one or pair.two
    assert row is not None
    return {
        "request_index": row.index,
        "custom_id": row.custom_id,
        **{
            name: None if each is None else {"outcome": each.outcome, "answer": each.answer}
            for name, each in (("one", pair.one), ("two", pair.two))
        },
    }
