"""`batchwright export`."""

from __future__ import annotations

from typing import Any

import click

from batchwright.cli import options


@click.command(name="export")
@click.argument("batch", metavar="[ID]", default="@last")
@options.export_options
@options.there_options
@options.outcome_options
def export_command(batch: str, **given: Any) -> int:
    """Write a batch's answers to a file.

    One line a row of the input, in its order. The file appears whole or not at all. ID is @last unless given. Ends
    with the code that a run of the batch would end with.

    \b
    Examples:
      batchwright export @last -o answers.csv --failed failed.jsonl
      batchwright export 3f9a --format openai > output.jsonl
    """
    from batchwright import assemble
    from batchwright.cli.running import finish, resolve, run_to_end
    from batchwright.runner.progress import open_display

    options.check_stdout(given, writes=True)
    delivery = options.delivery_of(given, writes=True)
    settings = options.load_settings(given)
    options.check_output_objects(delivery, settings)
    batch_id = resolve(settings, batch)
    display = open_display(settings.progress)
    outcome = run_to_end(assemble.export(settings, batch_id, delivery=delivery, display=display))
    return finish(outcome, as_json=given["as_json"])
