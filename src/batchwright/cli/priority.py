"""`batchwright priority`."""

from __future__ import annotations

from typing import Any

import click

from batchwright.cli import options
from batchwright.cli.exits import say
from batchwright.core.fair_share import PRIORITY_MAX


@click.command(name="priority", context_settings={"ignore_unknown_options": True})
@click.argument("batch", metavar="ID")
@click.argument("priority", metavar="N", type=click.IntRange(-PRIORITY_MAX, PRIORITY_MAX))
@options.there_options
def priority_command(batch: str, priority: int, **given: Any) -> None:
    """Move a batch before others of its account.

    N is from -100 to 100, and 0 at first: workers take a batch's rows once no batch of its account with a higher N has
    any for them. What is out stays out, and other accounts keep their shares.

    \b
    Examples:
      batchwright priority 3f9a 10
      batchwright priority @last -1
    """
    from batchwright.cli.running import with_batches
    from batchwright.ports.batches import Batches, BatchStatus

    async def ask(batches: Batches) -> BatchStatus:
        return await batches.prioritise(await batches.resolve(batch), priority)

    status = with_batches(options.load_settings(given), ask)
    say(f"{status.batch_id}: priority {priority}.")
