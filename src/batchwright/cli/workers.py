"""`batchwright workers`, `batchwright workers drain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchwright.cli import options
from batchwright.cli.table import Cell, Column

if TYPE_CHECKING:
    from batchwright.ports.fleet import WorkerRow

COLUMNS = (
    Column(heading="WORKER", cut_to=12),
    Column(heading="HOST", cut_to=8, leaves=3),
    Column(heading="PID", leaves=4),
    Column(heading="STATE"),
    Column(heading="SEGMENTS", short="SEGM."),
    Column(heading="IN FLIGHT", short="OUT"),
    Column(heading="ROWS/MIN"),
    Column(heading="HEARD"),
    Column(heading="CHECKPOINT", short="CHECKP.", leaves=2),
    Column(heading="SINCE (UTC)", leaves=5),
    Column(heading="NOTE", cut_to=10, leaves=1),
    Column(heading="WAITING", pipe_only=True),
)


@click.group(name="workers", invoke_without_command=True)
@options.json_option("One JSON object a line.")
@click.pass_context
def workers_command(context: click.Context, as_json: bool) -> None:
    """Show who works on the batches, drain workers, end a drain.

    Every live worker of the state folder or database: what it holds and has out, its answers a minute, when it was
    last heard of, and when its last checkpoint landed and how long that took. All of it is told with heartbeats, so it
    is some seconds old. In a pipe: tab-separated lines without headings.

    \b
    Examples:
      batchwright workers
      batchwright workers drain host7-4711 --wait
    """
    if not options.shows_list(context, as_json=as_json):
        return
    from batchwright.assemble.fleet import read_fleet
    from batchwright.cli import screen
    from batchwright.cli.exits import say
    from batchwright.cli.running import run_to_end
    from batchwright.server.fleet import worker_json

    fleet, now_ms = run_to_end(read_fleet(options.load_settings({})))
    if as_json:
        for row in fleet.workers:
            screen.print_json(worker_json(row, fleet.segments.get(row.worker, 0), now_ms))
        return
    screen.print_rows(COLUMNS, (_cells(row, fleet.segments.get(row.worker, 0), now_ms) for row in fleet.workers))
    if not fleet.workers:
        say("No worker is alive. `batchwright work` starts one, and so do `batchwright serve` and `batchwright run`.")


@workers_command.command(name="drain")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--wait", is_flag=True, help="Return once they have ended. [default: at once]")
def drain_command(names: tuple[str, ...], wait: bool) -> None:
    """Ask workers to finish what is out and end.

    A drained worker claims nothing more, lets rows in flight come back within `grace`, gives what it holds to the
    others and ends with exit code 0; `serve` ends with its worker. Under `work --processes` and on Ray, where another
    would be begun in its place, it stands by instead until `workers resume`. A name may be shortened as long as it is
    that of one worker.

    \b
    Examples:
      batchwright workers drain host7-4711
      batchwright workers drain host7-4711 host7-4712 --wait
    """
    from batchwright.assemble.fleet import drain_workers
    from batchwright.cli.exits import say
    from batchwright.cli.running import run_to_end

    run_to_end(drain_workers(options.load_settings({}), names, wait=wait, say=say))


@workers_command.command(name="resume")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def resume_command(names: tuple[str, ...]) -> None:
    """End the drain of workers that stand by.

    Under `work --processes` and on Ray a drained worker holds its place without working; from here on it takes rows
    again, within seconds. A name may be shortened as long as it is that of one worker.

    \b
    Examples:
      batchwright workers resume host7-4711
      batchwright workers resume host7-4711-1 host7-4711-2
    """
    from batchwright.assemble.fleet import end_drains
    from batchwright.cli.exits import say
    from batchwright.cli.running import run_to_end

    for row in run_to_end(end_drains(options.load_settings({}), names)):
        say(f"{row.worker.name} is asked to work again, and hears of it within seconds.")


def _cells(row: WorkerRow, segments: int, now_ms: int) -> tuple[Cell, ...]:
    from batchwright.cli import screen
    from batchwright.core.lane_wait import rough_duration
    from batchwright.server.fleet import place_of, state_of

    state = row.state
    heard_s = max(0, now_ms - row.heartbeat_ms) / 1000
    checkpoint = screen.text_cell("none yet" if not state.checkpoint_ms else "")
    if state.checkpoint_ms:
        ago = rough_duration(max(0, now_ms - state.checkpoint_ms) / 1000)
        took = f"{state.checkpoint_duration_s * 1000:.0f} ms"
        checkpoint = Cell(f"{ago} ago, {took}", f"{screen.moment_text(state.checkpoint_ms)} {took}")
    note = "; ".join(text for text in (state.only_batch and f"{state.only_batch} alone", row.note) if text)
    waits = (f"{wait.lane_text}: {wait.sentence(now_ms)}" for wait in row.waits if not wait.is_over(now_ms))
    return (
        screen.text_cell(row.worker.name),
        screen.text_cell(place_of(row)[0]),
        Cell(str(row.pid), str(row.pid), right=True),
        screen.text_cell(state_of(row)),
        screen.count_cell(segments),
        screen.count_cell(state.in_flight),
        Cell(f"{state.rows_per_minute:,.0f}", f"{state.rows_per_minute:g}", right=True),
        Cell(f"{rough_duration(heard_s)} ago", screen.moment_text(row.heartbeat_ms) or "", right=True),
        checkpoint,
        screen.moment_cell(row.started_at_ms),
        screen.text_cell(note),
        screen.text_cell("; ".join(waits)),
    )
