"""`batchwright cancel`."""

from __future__ import annotations

import click

from batchwright.cli.exits import say


@click.command(name="cancel")
@click.argument("batch", metavar="ID")
def cancel_command(batch: str) -> None:
    """Cancel a batch; answers it has are kept.

    Rows not yet sent end as cancelled. Rows in flight may finish within the grace time, since they are paid for.
    Harmless when said twice. `retry` sends cancelled rows again.

    \b
    Examples:
      batchwright cancel @last
      batchwright cancel 3f9a
    """
    from batchwright.cli.options import load_settings
    from batchwright.cli.running import with_batches
    from batchwright.ports.batches import Batches, BatchStatus
    from batchwright.runner.commands import export_anywhere

    async def ask(batches: Batches) -> BatchStatus:
        return await batches.cancel(await batches.resolve(batch))

    status = with_batches(load_settings({}), ask)
    kept = f"{status.batch_id}: {status.state.value}, {status.counts.succeeded:,} answers kept."
    say(f"{kept} This writes them: {export_anywhere(status.batch_id)}" if status.terminal else kept)
