"""`batchwright sample`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import options
from batchwright.cli.exits import say
from batchwright.cli.rows import COLUMNS, OUTCOMES, cells_of, wanted_bytes
from batchwright.cli.table import Column

if TYPE_CHECKING:
    from batchwright.cli.table import Cell
    from batchwright.core.rows import RowView
    from batchwright.ports.batches import Batches
    from batchwright.wire.answer_lines import AnswerRow

FILE_COLUMNS = (
    Column(heading="ROW"),
    Column(heading="CUSTOM ID", cut_to=8),
    Column(heading="OUTCOME"),
    Column(heading="COST", leaves=1),
    Column(heading="ANSWER OR ERROR", short="ANSWER", cut_to=12),
)
KNOWN = frozenset({"ok", "pending", "reserved", *options.FLAGS, *options.KINDS})
MAX_ROWS = 10_000
"""They are in memory."""


@click.command(name="sample")
@click.argument("source", metavar="[ID|FILE]", default="@last")
@click.option("-n", "--rows", type=click.IntRange(1, MAX_ROWS), default=10, help="How many. [default: 10]")
@click.option("--seed", type=int, default=0, help="Another seed picks other rows. [default: 0]")
@click.option(
    "--outcome",
    "outcomes",
    multiple=True,
    type=click.Choice(OUTCOMES),
    help="How a row stands; may be repeated. [default: all]",
)
@options.selector_options
@options.there_options
@options.json_option("Rows as lines of the answers' file.")
def sample_command(source: str, **given: Any) -> None:
    """Show random rows with their answers.

    Of a batch, also while it runs, or of a file of answers (JSONL or CSV). Filters are those of `rows`. ID is @last
    unless given. In a pipe: tab-separated lines without headings.

    \b
    Examples:
      batchwright sample @last -n 20 --outcome ok
      batchwright sample answers.jsonl --seed 7 --json
    """
    from batchwright.runner.answers_file import is_answers_file

    wanted = wanted_bytes(given["outcomes"], given["kinds"], given["flags"])
    if is_answers_file(source):
        _show_file(Path(source), wanted, given)
    else:
        _show_batch(source, wanted, given)


def _show_batch(batch: str, wanted: frozenset[int] | None, given: dict[str, Any]) -> None:
    from batchwright.cli import screen
    from batchwright.cli.running import with_batches
    from batchwright.wire.results import infrai_line

    async def find(batches: Batches) -> list[RowView]:
        return await _picked(batches, await batches.resolve(batch), wanted, given)

    views = with_batches(options.load_settings(given), find)
    if not views:
        say("No row fits.")
    if given["as_json"]:
        for view in views:
            sys.stdout.buffer.write(infrai_line(view))
        return
    columns = COLUMNS if any(view.record and view.record.met for view in views) else COLUMNS[:-1]
    screen.print_rows(columns, [cells_of(view)[: len(columns)] for view in views])


async def _picked(
    batches: Batches, batch_id: str, wanted: frozenset[int] | None, given: dict[str, Any]
) -> list[RowView]:
    from batchwright.core.picking import Picking, pick_positions

    if wanted is None:
        total = (await batches.status(batch_id)).total
        found: list[RowView] = []
        for position in pick_positions(given["rows"], total, given["seed"]):
            async for views in batches.rows(batch_id, start=position, end=position + 1):
                found += views
        return found
    picking: Picking[RowView] = Picking(given["rows"], given["seed"])
    async for views in batches.rows(batch_id, wanted=wanted, texts_of=frozenset()):
        for view in views:
            picking.offer(view.request_index, view)
    return picking.picked()


def _show_file(path: Path, wanted: frozenset[int] | None, given: dict[str, Any]) -> None:
    import msgspec

    from batchwright.cli import screen
    from batchwright.core.picking import Picking
    from batchwright.runner.answers_file import read_answers

    names = None if wanted is None else _names_of(wanted, given["outcomes"])
    picking: Picking[AnswerRow] = Picking(given["rows"], given["seed"])
    for place, row in enumerate(read_answers(path)):
        if names is None or (row.outcome if row.outcome in KNOWN else "failed") in names:
            picking.offer(place, row)
    rows = picking.picked()
    if not rows:
        say("No row fits.")
    if given["as_json"]:
        for row in rows:
            known = {"request_index": row.index, "custom_id": row.custom_id, "outcome": row.outcome}
            sys.stdout.buffer.write(msgspec.json.encode({**known, "answer": row.answer}) + b"\n")
        return
    screen.print_rows(FILE_COLUMNS, [_file_cells(row) for row in rows])


def _names_of(wanted: frozenset[int], outcomes: Sequence[str]) -> frozenset[str]:
    """The outcomes that a file gives for these row-map bytes; `failed` stands for those of others' files (a status)."""
    from batchwright.core import row_map

    names = {row_map.name_of(byte) for byte in wanted}
    more = {"ok"} if "plain" in names else set()
    return frozenset(names | more | ({"failed"} if "failed" in outcomes else set()))


def _file_cells(row: AnswerRow) -> list[Cell]:
    from batchwright.cli import screen

    return [
        screen.count_cell(row.index),
        screen.text_cell(row.custom_id or ""),
        screen.text_cell(row.outcome),
        screen.cost_cell(row.cost_picousd or 0, complete=row.cost_picousd is not None),
        screen.text_cell(row.answer),
    ]
