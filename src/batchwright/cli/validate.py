"""`batchwright validate`."""

from __future__ import annotations

from typing import Any

import click

from batchwright.cli import options
from batchwright.cli.preview import show_preview
from batchwright.cli.run import make_request
from batchwright.cli.running import add_endpoint_help


@click.command(name="validate")
@click.argument("source", metavar="FILE")
@options.endpoint_options
@options.row_options
@options.json_option("Findings and plan as one JSON object.")
def validate_command(source: str, **given: Any) -> int:
    """Check a file of requests; nothing is sent.

    Prints every finding with its line (the first 100, and how many more there are), or what a run would send: rows,
    models, lanes, bytes and the most it can cost. Ends with 0, or with 2 if a run would refuse the file.

    \b
    Examples:
      batchwright validate tickets.jsonl
      batchwright validate tickets.csv -t 'One word sentiment: {text}' --json
    """
    from batchwright.core.errors import BatchwrightError

    settings, request = make_request(source, given)
    try:
        return show_preview(settings, request, as_json=given["as_json"])
    except BatchwrightError as error:
        add_endpoint_help(error, settings)
        raise
