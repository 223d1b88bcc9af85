"""`batchwright list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchwright.cli import options

if TYPE_CHECKING:
    from batchwright.cli.screen import Cell
    from batchwright.ports.batches import BatchStatus

HEADINGS = ("BATCH", "STATE", "OK", "FAILED", "OPEN", "TOTAL", "COST", "CREATED (UTC)", "NAME")


@click.command(name="list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, help="Batches, at most. [default: 20]")
@click.option("--source", metavar="FILE", help="Only batches of this input file. [default: all]")
@options.json_option("One JSON object a line.")
def list_command(limit: int, source: str | None, as_json: bool) -> None:
    """List batches, newest first.

    In a pipe: tab-separated lines without headings.

    \b
    Examples:
      batchwright list
      batchwright list --source tickets.jsonl --json
    """
    from pathlib import Path

    from batchwright.cli import screen
    from batchwright.cli.running import with_batches
    from batchwright.cli.status_view import status_json

    settings = options.load_settings({})
    path = str(Path(source).resolve()) if source else ""
    found = with_batches(settings, lambda batches: batches.find(source=path, limit=limit))
    if as_json:
        for status in found:
            screen.print_json(status_json(status))
        return
    screen.print_rows(HEADINGS, (_cells(status) for status in found))
    if not found:
        click.echo("There are no batches" + (f" of {source}." if source else "."), err=True)


def _cells(status: BatchStatus) -> tuple[Cell, ...]:
    from batchwright.cli import screen
    from batchwright.cli.status_view import cost_is_complete

    counts = status.counts
    return (
        screen.text_cell(status.batch_id),
        screen.text_cell(status.state.value),
        screen.count_cell(counts.succeeded),
        screen.count_cell(counts.without_success),
        screen.count_cell(counts.open),
        screen.count_cell(status.total),
        screen.cost_cell(status.tally.cost_picousd, complete=cost_is_complete(status)),
        screen.moment_cell(status.created_at_ms),
        screen.text_cell(status.spec.name),
    )
