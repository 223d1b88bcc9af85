"""`batchwright validate`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import options
from batchwright.cli.column_options import column_options
from batchwright.cli.exits import OK, REFUSED, say
from batchwright.cli.preview import finding_json
from batchwright.cli.run import make_request

if TYPE_CHECKING:
    from batchwright.runner.validation import ValidationReport


@click.command(name="validate")
@options.source_argument
@options.endpoint_options
@options.service_options
@options.row_options
@column_options
@options.json_option("Findings and sums as one JSON object.")
def validate_command(source: str, **given: Any) -> int:
    """Check a file of requests; nothing is sent.

    Findings go to stdout, a line each, in line order (the first 1,000; all are counted), in a pipe as tab-separated
    line, code and message. What a run would send goes to stderr. Ends with 0, or with 2 if a run would refuse the file.

    \b
    Examples:
      batchwright validate tickets.jsonl
      batchwright validate tickets.csv -t 'One word sentiment: {text}' --json
    """
    from batchwright.runner.source import open_source
    from batchwright.runner.unnamed import no_key_texts, no_model_texts
    from batchwright.runner.unused import short_routes_texts, unused_texts
    from batchwright.settings.endpoint_help import endpoint_help_text

    settings, request = make_request(source, given)
    with open_source(request.source, request.rows, objects=request.objects) as opened:
        report = opened.validate()
        notes = (*opened.notes, *opened.left_out.texts(opened.rows))
    if given["as_json"]:
        _print_json(report)
    else:
        _print_text(report)
    unused = unused_texts(report.lanes, request.rows.destinations, request.asked_for)
    unused += short_routes_texts(report.lanes, request.rows.directions)
    no_key = no_key_texts(report.lanes, settings.key)
    for text in (*notes, *no_model_texts(report.lanes, request.rows.destinations), *no_key, *unused):
        say(text)
    if help_text := endpoint_help_text(settings, report.findings):
        say(help_text)
    return REFUSED if report.refused else OK


def _print_text(report: ValidationReport) -> None:
    from batchwright.cli import screen
    from batchwright.core.batch_spec import LaneKey
    from batchwright.runner.figures import plural
    from batchwright.runner.line_breaks import columns_of, fitted
    from batchwright.runner.validation import OTHERS

    for finding in report.findings:
        if screen.is_table():
            text = screen.safe_text(f"line {finding.line}: {finding.message} [{finding.code}]")
            click.echo(fitted(text, columns_of(sys.stdout)))
        else:
            click.echo(f"{finding.line}\t{finding.code}\t{screen.safe_text(finding.message)}")
    if report.total > len(report.findings):
        say(f"and {report.total - len(report.findings):,} findings more")
    lines = f"{plural(report.rows, 'row')}, {plural(report.blank, 'blank line')}"
    lines += f", {report.left_out:,} left out" if report.left_out else ""
    say(
        f"{report.name}: {lines}; {plural(report.sendable, 'row')} can be sent "
        f"({report.body_bytes:,} bytes of bodies), {report.refused:,} cannot."
    )
    for text, rows in sorted(report.lanes.items(), key=lambda pair: -pair[1]):
        if text == OTHERS:
            say(f"  {rows:,} to other models")
            continue
        lane = LaneKey.parse(text)
        say(screen.safe_text(f"  {rows:,} to {lane.vendor}, model {lane.model or '(none named)'}"))


def _print_json(report: ValidationReport) -> None:
    from batchwright.cli import screen

    screen.print_json(
        {
            "valid": not report.refused,
            "name": report.name,
            "lines": report.lines,
            "rows": report.rows,
            "blank": report.blank,
            "left_out": report.left_out,
            "refused": report.refused,
            "body_bytes": report.body_bytes,
            "findings": [finding_json(finding) for finding in report.findings],
            "findings_total": report.total,
            "findings_by_code": report.by_code,
            "rows_by_lane": report.lanes,
            "rows_by_endpoint": report.endpoints,
            "columns": report.columns,
        }
    )
