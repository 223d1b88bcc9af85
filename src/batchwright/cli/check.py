"""`batchwright check`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import amounts, options
from batchwright.cli.exits import OK, OUR_FAULT, SOME_FAILED, say

if TYPE_CHECKING:
    from batchwright.core.checkup import Checked

DEFAULT_TIMEOUT = "10s"
VERDICT_COLUMNS = 9


@click.command(name="check")
@options.endpoint_options
@options.transport_option
@click.option(
    "--ask",
    is_flag=True,
    help="Also send one request of 1 token for each model that the settings name; it may cost. [default: off]",
)
@click.option(
    "--timeout",
    "timeout_s",
    callback=amounts.read_time,
    default=DEFAULT_TIMEOUT,
    metavar="TIME",
    help=f"For everything that is asked of one vendor; all are asked at once. [default: {DEFAULT_TIMEOUT}]",
)
@options.json_option("Findings as one JSON object.")
def check_command(ask: bool, timeout_s: float, as_json: bool, **given: Any) -> int:
    """Check vendors, keys, models, prices and routes of the settings.

    Each vendor is asked for its models, which costs nothing. A finding a line on stdout, in a pipe as tab-separated
    verdict, subject, what was found, what was expected and what to do. Ends with 0 where nothing fails (warnings do
    not), 1 if the state folder cannot be used, 2 if the settings are refused, 3 if a vendor, model or route fails.

    \b
    Examples:
      batchwright check
      batchwright check --vendor house -m house-small --ask
    """
    from batchwright.assemble.checking import STATE, CheckRequest, check
    from batchwright.cli.running import run_to_end
    from batchwright.core.checkup import Verdict

    settings = options.load_settings(given, sends_rows=True)
    findings = run_to_end(check(settings, CheckRequest(timeout_s=timeout_s, asks=ask)))
    errors = [finding for finding in findings if finding.verdict is Verdict.ERROR]
    warnings = sum(finding.verdict is Verdict.WARNING for finding in findings)
    if as_json:
        _print_json(findings, len(errors), warnings)
    else:
        _print_text(findings)
        say(_sum_text(len(findings), len(errors), warnings))
    if not errors:
        return OK
    return OUR_FAULT if any(finding.subject == STATE for finding in errors) else SOME_FAILED


def _print_text(findings: Sequence[Checked]) -> None:
    from batchwright.cli.screen import is_table, safe_text
    from batchwright.runner.line_breaks import columns_of, fitted

    columns = columns_of(sys.stdout)
    for finding in findings:
        texts = [finding.verdict.value, finding.subject, finding.found, finding.expected]
        if not is_table():
            click.echo("\t".join(safe_text(text) for text in (*texts, finding.remedy)))
            continue
        verdict, subject, found, expected = (safe_text(text) for text in texts)
        line = f"{verdict:<8} {subject}: {found}" + (f"; expected {expected}" if expected else "")
        click.echo(fitted(line, columns, hang=VERDICT_COLUMNS))
        for line in finding.remedy.splitlines():
            # Lines that are set in are to be copied into a file.
            told = line if line.startswith(" ") else fitted(line, columns - VERDICT_COLUMNS)
            click.echo(indent(told, " " * VERDICT_COLUMNS))


def _sum_text(count: int, errors: int, warnings: int) -> str:
    from batchwright.runner.figures import plural

    return f"{plural(count, 'thing')} looked at: {plural(errors, 'error')}, {plural(warnings, 'warning')}."


def _print_json(findings: Sequence[Checked], errors: int, warnings: int) -> None:
    from batchwright.cli import screen

    screen.print_json(
        {
            "ok": not errors,
            "errors": errors,
            "warnings": warnings,
            "findings": [
                {
                    "verdict": finding.verdict.value,
                    "subject": finding.subject,
                    "found": finding.found,
                    "expected": finding.expected or None,
                    "remedy": finding.remedy or None,
                }
                for finding in findings
            ],
        }
    )
