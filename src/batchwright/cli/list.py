"""`batchwright list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import options
from batchwright.cli.exits import say
from batchwright.cli.table import Column

if TYPE_CHECKING:
    from batchwright.cli.table import Cell
    from batchwright.ports.batches import BatchStatus

COLUMNS = (
    Column(heading="BATCH"),
    Column(heading="STATE"),
    Column(heading="OK"),
    Column(heading="FAILED"),
    Column(heading="CLOSED", leaves=1),
    Column(heading="OPEN", leaves=2),
    Column(heading="TOTAL"),
    Column(heading="COST", leaves=1),
    Column(heading="CREATED (UTC)", leaves=3),
    Column(heading="NAME", cut_to=8),
    Column(heading="WORKED ON", pipe_only=True),
)
ACCOUNT = Column(heading="ACCOUNT", cut_to=8)
PRIORITY = Column(heading="PRIORITY", short="PRIO", leaves=2)
"""In a table only where some batch has one."""
MOST = 10_000
TOLD_IDLE = 5
"""Of so many idle batches the command that goes on is told."""


@click.command(name="list")
@click.option("--limit", type=click.IntRange(1, MOST), default=20, help="Batches, at most. [default: 20]")
@click.option("--source", metavar="FILE", help="Only batches of this input file. [default: all]")
@click.option(
    "--chunks",
    is_flag=True,
    help="Also what runs of this machine have sent to a service on it. [default: only the runs]",
)
@options.there_options
@options.json_option("One JSON object a line.")
def list_command(limit: int, source: str | None, chunks: bool, as_json: bool, **given: Any) -> None:
    """List batches, newest first.

    CLOSED are rows that a cancel, a deadline or the gate ended. A state with (idle): nobody works on that batch now.
    In a pipe: tab-separated lines without headings, and at the end `yes` or `no` for whether somebody does (nothing
    where it has ended or that is not known), whose batch it is, and its priority.

    \b
    Examples:
      batchwright list
      batchwright list --source tickets.jsonl --json
    """
    from dataclasses import replace
    from pathlib import Path

    from batchwright.cli import screen
    from batchwright.cli.running import typed_command, with_batches
    from batchwright.cli.status_view import goes_on_with, status_json
    from batchwright.core.object_urls import object_url
    from batchwright.runner.standing import is_idle

    settings = options.load_settings(given)
    path = str(object_url(source) or Path(source).resolve()) if source else ""
    read = with_batches(settings, lambda batches: batches.find(source=path, limit=limit + 1, chunks=chunks))
    found = read[:limit]
    if len(read) > limit:
        older = f"; older ones: --limit {min(10 * limit, MOST)}" if limit < MOST else ""
        say(f"There are more than the newest {limit}{older}.")
    if as_json:
        for status in found:
            screen.print_json(status_json(status, typed_command()))
        return
    several = len({status.tenant.account for status in found}) > 1
    ranked = any(status.priority for status in found)
    columns = (*COLUMNS, replace(ACCOUNT, pipe_only=not several), replace(PRIORITY, pipe_only=not ranked))
    screen.print_rows(columns, (_cells(status) for status in found))
    for status in [status for status in found if is_idle(status)][:TOLD_IDLE] if screen.is_table() else ():
        command = goes_on_with(status, typed_command())
        how = f"This goes on with it: {command}" if command else "A worker of that service does once there is one."
        say(f"Nobody works on {status.batch_id} now. {how}")
    if not found:
        of = [f" of {source}"] if source else []
        of += [f" of the account {settings.account}"] if settings.account else []
        say(f"There are no batches{''.join(of)}.")


def _cells(status: BatchStatus) -> tuple[Cell, ...]:
    from batchwright.cli import screen
    from batchwright.cli.status_view import state_cell, worked_on_text
    from batchwright.runner.standing import cost_is_complete

    counts = status.counts
    return (
        screen.batch_cell(status.batch_id),
        state_cell(status),
        screen.count_cell(counts.succeeded),
        screen.count_cell(counts.failed),
        screen.count_cell(counts.without_success - counts.failed),
        screen.count_cell(counts.open),
        screen.count_cell(status.total),
        screen.cost_cell(status.tally.cost_picousd, complete=cost_is_complete(status)),
        screen.moment_cell(status.created_at_ms),
        screen.text_cell(status.spec.name),
        screen.text_cell(worked_on_text(status)),
        screen.text_cell(status.tenant.account),
        screen.count_cell(status.priority),
    )
