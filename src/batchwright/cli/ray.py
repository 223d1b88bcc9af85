"""`batchwright ray`: a fleet of workers on a Ray cluster that stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import options

if TYPE_CHECKING:
    from batchwright.fabric.fleet import FleetView

CLUSTER_HELP = "The cluster: HOST:PORT of its head, or auto for the one this machine is a node of. [default: auto]"


@click.group(name="ray")
def ray_command() -> None:
    """Keep workers on a Ray cluster, with nobody at a terminal.

    They are detached actors, between two bounds by how much there is to do, and stay until `down`. To have them only
    for as long as a command runs: `batchwright work --ray`. What is lost with a cluster, or its head, is no batch:
    workers elsewhere, or of another cluster, go on. Needs the extra `ray`.

    \b
    Examples:
      batchwright ray up --ray 10.0.0.5:6379 --ray-max 8 --database postgresql://me@db/batches
      batchwright ray down --ray 10.0.0.5:6379 --database postgresql://me@db/batches
    """


@ray_command.command(name="up")
@click.option("--ray", metavar="ADDRESS", help=CLUSTER_HELP)
@options.ray_options
def up_command(**given: Any) -> None:
    """Begin workers, or change their bounds.

    Keys of vendors and the database's password are those of the nodes' own environment: none is sent. Batches in a
    state folder only on a cluster of this one machine.

    \b
    Examples:
      batchwright ray up
      batchwright ray up --ray 10.0.0.5:6379 --ray-min 1 --ray-max 8 --ray-cpus 0.5
    """
    from batchwright.assemble.clusters import begin_fleet

    view = begin_fleet(options.load_settings(given))
    assert view is not None, "it has just answered"
    click.echo(
        f"Workers on the Ray cluster: {view.least} to {view.most}. `batchwright ray status` shows them.", err=True
    )


@ray_command.command(name="status")
@click.option("--ray", metavar="ADDRESS", help=CLUSTER_HELP)
def status_command(**given: Any) -> int:
    """Show the workers that are there.

    Also what they told lately. Exit code 1 where there are none.

    \b
    Examples:
      batchwright ray status
      batchwright ray status --ray 10.0.0.5:6379
    """
    from batchwright.assemble.clusters import look_at_fleet

    view = look_at_fleet(options.load_settings(given))
    if view is None:
        click.echo("No workers of these batches are on this Ray cluster; `batchwright ray up` begins them.", err=True)
        return 1
    for line in _lines(view):
        click.echo(line)
    return 0


@ray_command.command(name="down")
@click.option("--ray", metavar="ADDRESS", help=CLUSTER_HELP)
@click.option("--now", is_flag=True, help="Without waiting for rows in flight. [default: they may finish]")
def down_command(now: bool, **given: Any) -> None:
    """End the workers in good order.

    Returns when all have ended.

    \b
    Examples:
      batchwright ray down
      batchwright ray down --ray 10.0.0.5:6379 --now
    """
    from batchwright.assemble.clusters import end_fleet
    from batchwright.cli.running import run_to_end

    found = run_to_end(end_fleet(options.load_settings(given), grace=not now))
    click.echo("All have ended." if found else "There were none.", err=True)


def _lines(view: FleetView) -> list[str]:
    from batchwright.runner.progress_text import work_line

    to_do = f"{view.to_do:,} segments to do" if view.to_do >= 0 else "the store does not answer"
    lines = [f"{len(view.actors)} workers, {view.least} to {view.most}; {to_do}; batchwright {view.code}"]
    for actor in view.actors:
        where = f"{actor.host}, process {actor.pid}" if actor.pid else "on its way"
        does = work_line(actor.view) if actor.view is not None else "not at work"
        lines.append(f"{actor.name} ({where}): {does}" + ("; ends" if actor.draining else ""))
    return lines + [text for _, text in view.texts]
