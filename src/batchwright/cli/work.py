"""`batchwright work`."""

from __future__ import annotations

from typing import Any

import click

from batchwright.cli import options


@click.command(name="work")
@click.option("--until-idle", is_flag=True, help="End when no batch has rows to send. [default: wait for more]")
@click.option(
    "--processes", metavar="N", help="Work in N processes, each begun again if it dies. [default: in this one]"
)
@click.option(
    "--ray",
    is_flag=False,
    flag_value="local",
    metavar="[ADDRESS]",
    help="Work in actors of a Ray cluster: HOST:PORT of its head, or auto; without an address one is begun here, and "
    "ends with the command. [default: none]",
)
@options.ray_options
@options.transport_option
@click.option(
    "--progress",
    type=click.Choice(options.PROGRESS),
    help="How progress is shown on stderr. [default: rich on a terminal, else plain]",
)
def work_command(until_idle: bool, **given: Any) -> int:
    """Work on all batches of this machine.

    Writes no files: `export` does that, or the `run` that waits for its batch. Several may run at once, beside `run`
    too; one that is killed loses nothing. A batch whose key's variable is not set here is left alone, and the variable
    named. Ctrl-C or SIGTERM once: finish what is in flight, then end with exit code 0 (130 under --until-idle).

    \b
    Examples:
      batchwright work
      batchwright work --until-idle --progress plain
    """
    from batchwright import assemble
    from batchwright.cli.running import run_to_end
    from batchwright.runner.progress import open_display

    settings = options.load_settings(given)
    display = open_display(settings.progress)
    return run_to_end(assemble.work(settings, until_idle=until_idle, display=display), sends=True)
