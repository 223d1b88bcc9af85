"""`batchwright status`."""

from __future__ import annotations

from typing import Any

import click

from batchwright.cli import options


@click.command(name="status")
@click.argument("batch", metavar="[ID]", default="@last")
@options.there_options
@options.json_option("One JSON object.")
def status_command(batch: str, as_json: bool, **given: Any) -> None:
    """Show how a batch stands.

    From the store alone: it works while another process runs the batch. ID is @last unless given. In a pipe: a line
    a fact, name and value with a tab between.

    \b
    Examples:
      batchwright status
      batchwright status 3f9a --json
    """
    from batchwright.cli import screen
    from batchwright.cli.running import typed_command, with_batches
    from batchwright.cli.status_view import status_facts, status_json
    from batchwright.ports.batches import Batches, BatchStatus

    async def ask(batches: Batches) -> BatchStatus:
        return await batches.status(await batches.resolve(batch))

    status = with_batches(options.load_settings(given), ask)
    if as_json:
        screen.print_json(status_json(status, typed_command()))
    else:
        screen.print_facts(status_facts(status, typed_command()))
