"""`batchwright attach`."""

from __future__ import annotations

from typing import Any

import click

from batchwright.cli import options
from batchwright.cli.column_options import column_options
from batchwright.cli.run import send
from batchwright.core.via import Via


@click.command(name="attach")
@click.argument("vendor_batch_id", metavar="VENDOR_BATCH_ID")
@options.source_argument
@options.output_options
@options.endpoint_options
@options.row_options
@column_options
@click.option(
    "--skip-invalid", is_flag=True, help="Rows that cannot be sent count as failed rows. [default: refuse all]"
)
@click.option("--fresh", is_flag=True, help="Start anew even if this very batch was attached. [default: go on with it]")
@options.transport_option
@options.outcome_options
def attach_command(vendor_batch_id: str, source: str, **given: Any) -> int:
    """Take over a batch that was created at a vendor elsewhere.

    FILE is what that batch was made of: each row needs its custom_id, by which its answer is found. Nothing is sent
    that is there already; the batch is waited for, and the answers are written as `run` writes them, in the order of
    the rows. Rows that ended without success there can be sent again (`retry`), through the same batch API.

    \b
    Examples:
      batchwright attach batch_68f1c0de rows.jsonl -o answers.jsonl
      batchwright attach msgbatch_01HkcTjaV5uDC8jWR4ZsDV8d rows.jsonl -o answers.jsonl --vendor anthropic
    """
    return send(source, {**given, "via": Via.BATCH.value, "attach": vendor_batch_id, "dry_run": False})
