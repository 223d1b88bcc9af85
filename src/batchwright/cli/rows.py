"""`batchwright rows`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import options
from batchwright.cli.exits import say
from batchwright.cli.table import Column

if TYPE_CHECKING:
    from batchwright.core.rows import RowView
    from batchwright.ports.batches import Batches

COLUMNS = (
    Column(heading="ROW"),
    Column(heading="CUSTOM ID", cut_to=8),
    Column(heading="OUTCOME"),
    Column(heading="ATTEMPTS", short="SENT", leaves=1),
    Column(heading="COST", leaves=2),
    Column(heading="ANSWER OR ERROR", short="ANSWER", cut_to=12),
    Column(heading="FAILED ATTEMPTS MET", short="MET", cut_to=12, leaves=3),
)
"""The last one is left out of a table in which no row failed before."""
OUTCOMES = ("ok", "failed", "cancelled", "expired", "stopped", "open")
MAX_TABLE_ROWS = 10_000
"""A table is measured before it is printed; a pipe and --json have no such bound."""


@click.command(name="rows")
@click.argument("batch", metavar="[ID]", default="@last")
@click.option(
    "--outcome",
    "outcomes",
    multiple=True,
    type=click.Choice(OUTCOMES),
    help="How a row stands; may be repeated. [default: all]",
)
@options.selector_options
@click.option("--custom-id", metavar="TEXT", help="Only rows with this custom_id. [default: all]")
@click.option("--start", type=click.IntRange(min=0), default=0, help="First row, by its index from 0. [default: 0]")
@click.option("--limit", type=click.IntRange(min=0), default=50, help="Rows, at most; 0 is all. [default: 50]")
@options.there_options
@options.json_option("Rows as lines of the answers' file.")
def rows_command(batch: str, **given: Any) -> None:
    """Show rows of a batch, filtered.

    Also while it runs. Filters of one sort add up, those of different sorts must all fit. ID is @last unless given.
    In a pipe: tab-separated lines without headings.

    \b
    Examples:
      batchwright rows @last --outcome failed
      batchwright rows 3f9a --kind timeout --limit 0 --json
    """
    from batchwright.cli import screen
    from batchwright.cli.running import with_batches
    from batchwright.wire.results import infrai_line

    wanted = wanted_bytes(given["outcomes"], given["kinds"], given["flags"])

    async def show(batches: Batches) -> None:
        shown: list[RowView] = []
        batch_id = await batches.resolve(batch)
        checked = given["as_json"] and (await batches.status(batch_id)).spec.answers is not None
        async for view in _selected(batches, batch_id, wanted, given):
            if given["as_json"]:
                sys.stdout.buffer.write(infrai_line(view, checked=checked))
            elif screen.is_table() and len(shown) < MAX_TABLE_ROWS:
                shown.append(view)
            elif screen.is_table():
                say(f"Only the first {MAX_TABLE_ROWS:,} rows are shown; use --start, or a pipe.")
                break
            else:
                screen.print_rows(COLUMNS, [cells_of(view)])
        if shown:
            columns = COLUMNS if any(view.record and view.record.met for view in shown) else COLUMNS[:-1]
            screen.print_rows(columns, [cells_of(view)[: len(columns)] for view in shown])

    with_batches(options.load_settings(given), show)


async def _selected(
    batches: Batches, batch_id: str, wanted: frozenset[int] | None, given: dict[str, Any]
) -> AsyncIterator[RowView]:
    """The rows asked for, in order, one at a time, as many as asked for."""
    left = given["limit"] or -1
    if given["custom_id"] is None:
        async for views in batches.rows(batch_id, start=given["start"], wanted=wanted):
            for view in views:
                yield view
                left -= 1
                if left == 0:
                    return
        return
    for index in await batches.find_custom_id(batch_id, given["custom_id"]):
        if index < given["start"]:
            continue
        found = await _row_at(batches, batch_id, index)
        if found is not None and (wanted is None or found.byte in wanted):
            yield found
            left -= 1
            if left == 0:
                return


async def _row_at(batches: Batches, batch_id: str, index: int) -> RowView | None:
    async for views in batches.rows(batch_id, start=index):
        return views[0] if views else None
    return None


def wanted_bytes(outcomes: Sequence[str], kinds: Sequence[str], flags: Sequence[str]) -> frozenset[int] | None:
    """Row-map bytes that the filters leave; None is all. Raises UsageError if no row can fit."""
    from batchwright.core import row_map
    from batchwright.core.errors import UsageError
    from batchwright.core.failures import FailureKind, Flag

    by_outcome = {
        "ok": row_map.SUCCESS_BYTES,
        "failed": row_map.FAILURE_BYTES - row_map.CLOSING_BYTES,
        "cancelled": {row_map.KIND_BYTES[FailureKind.CANCELLED]},
        "expired": {row_map.KIND_BYTES[FailureKind.EXPIRED]},
        "stopped": {row_map.KIND_BYTES[FailureKind.STOPPED]},
        "open": {row_map.PENDING, row_map.RESERVED},
    }
    chosen = frozenset(byte for outcome in outcomes for byte in by_outcome[outcome])
    named = row_map.select_bytes(map(FailureKind, kinds), map(Flag, flags))
    if not outcomes and not named:
        return None
    if outcomes and named:
        if not chosen & named:
            raise UsageError(f"no row can be {' or '.join(outcomes)} and {' or '.join([*kinds, *flags])}")
        return chosen & named
    return chosen or named


def cells_of(view: RowView) -> tuple[Any, ...]:
    """In the order of COLUMNS."""
    from batchwright.cli import screen
    from batchwright.core import row_map

    record = view.record
    name = row_map.name_of(view.byte)
    complete = record is None or (not record.unpriced and not record.no_usage)
    return (
        screen.count_cell(view.request_index),
        screen.text_cell(view.input.custom_id or ""),
        screen.text_cell("ok" if name == "plain" else f"ok, {name}" if row_map.is_success(view.byte) else name),
        screen.count_cell(view.attempts),
        screen.cost_cell(record.cost_picousd if record is not None else 0, complete=complete),
        screen.text_cell(_text_of(view)),
        screen.text_cell(record.met if record is not None else ""),
    )


def _text_of(view: RowView) -> str:
    """The answer's text, or why there is none; empty for a row that has not ended."""
    import msgspec

    from batchwright.core import row_map
    from batchwright.wire.json_text import kind_of
    from batchwright.wire.reply import read_reply
    from batchwright.wire.results import failure_message, kind_of_end

    if not row_map.is_end(view.byte):
        return ""
    if not row_map.is_success(view.byte) or view.record is None:
        return failure_message(view, kind_of_end(view))
    reply = read_reply(view.record.body)
    content = bytes(reply.content)
    return str(msgspec.json.decode(content)) if kind_of(content) == "string" else content.decode()
