"""`batchwright pause`."""

from __future__ import annotations

from typing import Any

import click

from batchwright.cli import options
from batchwright.cli.exits import say


@click.command(name="pause")
@click.argument("batch", metavar="[ID]", default="@last")
@click.option(
    "--reason",
    metavar="TEXT",
    default="paused by its user",
    help="Shown wherever the batch is. [default: paused by its user]",
)
@options.there_options
def pause_command(batch: str, reason: str, **given: Any) -> None:
    """Pause a batch; what is out ends, and `resume` goes on.

    Whoever works on it (a run, `work`, `serve`) sends nothing more of it; rows in flight may finish, since they are
    paid for. Harmless when said twice. ID is @last unless given.

    \b
    Examples:
      batchwright pause @last
      batchwright pause 3f9a --reason "wrong prompt?"
    """
    from batchwright.cli.running import typed_command, with_batches
    from batchwright.ports.batches import Batches, BatchStatus
    from batchwright.runner import commands
    from batchwright.wire.infrai_calls import MAX_REASON_CHARS

    reason = reason.strip()
    if not 0 < len(reason) <= MAX_REASON_CHARS:
        said = f"expected 1 to {MAX_REASON_CHARS} characters, found {len(reason)}"
        raise click.BadParameter(said, param_hint="--reason")

    async def ask(batches: Batches) -> BatchStatus:
        return await batches.pause(await batches.resolve(batch), reason)

    status = with_batches(options.load_settings(given), ask)
    say(f"{status.batch_id}: {status.state.value}. This goes on: {commands.of_standing(status, typed_command())}")
