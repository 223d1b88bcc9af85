"""`batchwright watch`."""

from __future__ import annotations

from typing import Any

import click

from batchwright.cli import options


@click.command(name="watch")
@click.argument("batch", metavar="[ID]", default="@last")
@options.there_options
@options.outcome_options
def watch_command(batch: str, **given: Any) -> int:
    """Follow a batch until it ends or pauses.

    Only looks: sends and writes nothing, and Ctrl-C stops the looking alone. ID is @last unless given. Ends with the
    code that a run of the batch would end with.

    \b
    Examples:
      batchwright watch
      batchwright watch 3f9a --progress plain
    """
    from batchwright import assemble
    from batchwright.cli.running import finish, resolve, run_to_end, typed_command
    from batchwright.runner.progress import open_display
    from batchwright.runner.request import Delivery

    settings = options.load_settings(given)
    batch_id = resolve(settings, batch)
    delivery = Delivery(strict=given["strict"], nothing=True, command=typed_command())
    display = open_display(settings.progress)
    outcome = run_to_end(assemble.look_on(settings, batch_id, delivery=delivery, display=display))
    return finish(outcome, as_json=given["as_json"])
