"""`batchwright cancel`."""

from __future__ import annotations

from typing import Any

import click

from batchwright.cli import options
from batchwright.cli.exits import say


@click.command(name="cancel")
@click.argument("batch", metavar="ID")
@options.there_options
def cancel_command(batch: str, **given: Any) -> None:
    """Cancel a batch; answers it has are kept.

    Rows not yet sent end as cancelled. Rows in flight may finish within the grace time, since they are paid for.
    Harmless when said twice. `retry` sends cancelled rows again.

    \b
    Examples:
      batchwright cancel @last
      batchwright cancel 3f9a
    """
    from batchwright.cli.running import typed_command, with_batches
    from batchwright.ports.batches import Batches, BatchStatus
    from batchwright.runner.commands import export_anywhere

    async def ask(batches: Batches) -> BatchStatus:
        return await batches.cancel(await batches.resolve(batch))

    status = with_batches(options.load_settings(given), ask)
    kept = f"{status.batch_id}: {status.state.value}, {status.counts.succeeded:,} answers kept."
    how = export_anywhere(status.batch_id, typed_command())
    say(f"{kept} This writes them: {how}" if status.terminal else kept)
