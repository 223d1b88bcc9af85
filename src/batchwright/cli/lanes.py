"""`batchwright lanes`, `batchwright lanes pause`, `batchwright lanes resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchwright.cli import options
from batchwright.cli.table import Cell, Column

if TYPE_CHECKING:
    from batchwright.server.fleet import LaneStanding

COLUMNS = (
    Column(heading="VENDOR", cut_to=14),
    Column(heading="MODEL", cut_to=10),
    Column(heading="STATE"),
    Column(heading="WORKERS", leaves=2),
    Column(heading="IN FLIGHT", short="OUT"),
    Column(heading="A MINUTE", short="RPM", leaves=3),
    Column(heading="TOKENS/MIN", short="TPM", leaves=4),
    Column(heading="SINCE (UTC)", leaves=5),
    Column(heading="WHY", cut_to=10, leaves=1),
    Column(heading="SHARES", pipe_only=True),
)


@click.group(name="lanes", invoke_without_command=True)
@options.json_option("One JSON object a line.")
@click.pass_context
def lanes_command(context: click.Context, as_json: bool) -> None:
    """Show vendors' models and their limits, close and open them.

    A lane is a vendor's model under one key: what shares a limit. Shown are those that a worker sends to, that stand
    still or that a person closed, each with its state, what holds it back, who sends there and its limits a minute for
    all workers together. In a pipe: tab-separated lines without headings, at the end who sends and by which share of
    the limit.

    \b
    Examples:
      batchwright lanes
      batchwright lanes pause openai/gpt-4o --reason "wrong answers since noon"
    """
    if not options.shows_list(context, as_json=as_json):
        return
    from batchwright.assemble.fleet import read_fleet
    from batchwright.cli import screen
    from batchwright.cli.exits import say
    from batchwright.cli.running import run_to_end
    from batchwright.server.fleet import lane_json, lanes_of

    fleet, now_ms = run_to_end(read_fleet(options.load_settings({})))
    found = lanes_of(fleet, now_ms)
    if as_json:
        for lane in found:
            screen.print_json(lane_json(lane))
        return
    screen.print_rows(COLUMNS, (_cells(lane) for lane in found))
    if not found:
        say("No worker sends to any vendor now, and none is paused or closed.")


@lanes_command.command(name="pause")
@click.argument("name", metavar="VENDOR[/MODEL]")
@click.option("--reason", default="", help="Why, for whoever asks. [default: none]")
@click.option("--force", is_flag=True, help="Also a vendor that neither settings nor workers here know. [default: off]")
def pause_command(name: str, reason: str, force: bool) -> None:
    """Close a vendor, or one of its models, to all workers.

    Nothing is sent there, for no probe either, until `lanes resume`: workers hear of it within a heartbeat, and what is
    out comes back and counts. Rows of a route go to its next choice; batches with nowhere else to go are paused, say
    so, and go on by themselves once it is lifted. It holds for workers and batches that come later too.

    \b
    Examples:
      batchwright lanes pause openai
      batchwright lanes pause openai/gpt-4o --reason "wrong answers since noon"
    """
    from batchwright.assemble.fleet import close_lanes
    from batchwright.cli.exits import say
    from batchwright.cli.running import run_to_end

    fact = run_to_end(close_lanes(options.load_settings({}), name, reason, force=force))
    say(f"{fact.name} is closed to all workers until `batchwright lanes resume {fact.name}`.")


@lanes_command.command(name="resume")
@click.argument("name", metavar="VENDOR[/MODEL]")
def resume_command(name: str) -> None:
    """Open what was closed, and try what workers paused.

    Lifts `lanes pause` of the same name; batches that waited for it go on. Lanes of that name which workers paused by
    themselves (no money, a key that is refused) are tried again at once.

    \b
    Examples:
      batchwright lanes resume openai
      batchwright lanes resume openai/gpt-4o
    """
    from batchwright.assemble.fleet import open_lanes
    from batchwright.cli.exits import say
    from batchwright.cli.running import run_to_end

    lifted, tried = run_to_end(open_lanes(options.load_settings({}), name))
    if lifted:
        say(f"{name} is open again; workers hear of it within a heartbeat.")
    if tried:
        say(f"{tried} {'lane' if tried == 1 else 'lanes'} that workers had paused will be tried again.")


def _cells(lane: LaneStanding) -> tuple[Cell, ...]:
    from batchwright.cli import screen

    requests, tokens = lane.limits_per_minute
    shares = (f"{name} {use.share_ppm / 10_000:g}%" for name, use in lane.uses)
    return (
        screen.text_cell(lane.vendor),
        Cell(screen.safe_text(lane.model) or "(all)", screen.safe_text(lane.model)),
        screen.text_cell(lane.state),
        screen.count_cell(len(lane.uses)),
        screen.count_cell(lane.in_flight),
        _limit_cell(requests),
        _limit_cell(tokens),
        screen.moment_cell(lane.since_ms),
        Cell(screen.safe_text(lane.reason.removeprefix(f"{lane.state}: ")), screen.safe_text(lane.reason)),
        screen.text_cell(", ".join(shares)),
    )


def _limit_cell(per_minute: float) -> Cell:
    return Cell(f"{per_minute:,.0f}" if per_minute else "-", f"{per_minute:g}" if per_minute else "", right=True)
