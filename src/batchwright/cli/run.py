"""`batchwright run`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import options
from batchwright.cli.column_options import column_options, of_columns
from batchwright.cli.preview import show_preview
from batchwright.cli.running import add_endpoint_help, finish, run_to_end, typed_command
from batchwright.core.gate import OnGate
from batchwright.core.object_urls import object_url
from batchwright.core.via import Via

if TYPE_CHECKING:
    from batchwright.runner.object_inputs import OpenObjects
    from batchwright.runner.outcome import RunOutcome
    from batchwright.runner.request import RunRequest
    from batchwright.settings import Settings


@click.command(name="run")
@options.source_argument
@options.output_options
@options.endpoint_options
@options.service_options
@options.row_options
@column_options
@options.pace_options
@click.option("--max-attempts", metavar="N", help="Attempts a row, at most. [default: 5]")
@click.option(
    "--max-retries", type=click.IntRange(min=0), metavar="N", help="The same, said as attempts less one. [default: 4]"
)
@click.option(
    "--max-cost", metavar="USD", help="Pause before the batch costs more than so many US dollars. [default: none]"
)
@click.option(
    "--allow-unpriced",
    is_flag=True,
    help="With --max-cost: also send rows without a price or a bound; the cap is then soft. [default: off]",
)
@click.option("--deadline", metavar="TIME", help="Give up what is not done after this time, e.g. 2h. [default: none]")
@click.option(
    "--via",
    type=click.Choice([way.value for way in Via]),
    default=Via.LIVE.value,
    help="Send rows live; through the vendor's own batch API, which is slow and cheaper; or through that while there "
    "is time, and live what is not back when a third of the time to --deadline (2 h at most) is left. [default: live]",
)
@click.option(
    "--on-uncertain",
    type=click.Choice(options.ON_UNCERTAIN),
    help="Rows that may have been answered and paid for without us knowing: send again, or fail. [default: retry]",
)
@click.option(
    "--gate/--no-gate",
    default=None,
    help="Halt when the first 25 rows all fail for good in the same way. [default: --gate]",
)
@click.option(
    "--on-gate",
    type=click.Choice([way.value for way in OnGate]),
    help="What the batch does then: pause (exit 5; the same command tries again), or stop (what is left ends as "
    "stopped; retry opens it). [default: pause]",
)
@click.option(
    "--stop-after-failures",
    metavar="N|P%",
    help="End once N rows, or P% of those ended (of 100 or more), have failed for good: what is left ends as stopped, "
    "but rows that are out then finish; retry opens it, and counts anew. [default: go on]",
)
@click.option(
    "--schema",
    metavar="FILE",
    help="JSON Schema that the JSON in each answer has to match; sent along where the vendor takes one. "
    "[default: none]",
)
@click.option(
    "--on-mismatch",
    type=click.Choice(options.ON_MISMATCH),
    help="Answers that do not match: kept under the flag schema_mismatch, or failed rows. [default: flag]",
)
@click.option(
    "--repair",
    type=click.IntRange(min=0, max=options.MAX_REPAIRS),
    metavar="N",
    help="Ask again, at most N times a row, with the answer and what is wrong with it. [default: 0]",
)
@click.option(
    "--skip-invalid", is_flag=True, help="Rows that cannot be sent count as failed rows. [default: refuse all]"
)
@click.option("--fresh", is_flag=True, help="Start anew even if this very run exists. [default: go on with it]")
@options.reuse_options
@click.option(
    "--group-prefix/--no-group-prefix",
    default=None,
    help="Send rows whose prompts begin alike one after another; the answers stay in the order of the rows. "
    "[default: on for the local model, and for vendors of the profile llamacpp]",
)
@click.option("-n", "--dry-run", is_flag=True, help="Check the rows and show the plan; nothing is sent. [default: off]")
@options.transport_option
@options.outcome_options
def run_command(source: str, **given: Any) -> int:
    """Send a file of requests and write the answers.

    FILE is JSONL or a JSON array (OpenAI batch lines, chat bodies, or {"prompt": ...}), CSV with --prompt, Parquet or
    Arrow with either, or a saved dataset's folder; also .gz or .zst; - is stdin. Several files are one input as a
    pattern in quotes, 'data/*.jsonl'. FILE and OUTPUT may be objects, s3://BUCKET/NAME; as FILE also all below a
    prefix, s3://BUCKET/FOLDER/.
    One answer a row, in the order of the rows. The same command again goes on where it stopped, and only writes the
    file once all is done. Ctrl-C once finishes what is in flight; twice stops at once; nothing is lost.

    \b
    Examples:
      batchwright run tickets.jsonl -o answers.jsonl -m gpt-4o-mini --max-cost 5.00
      batchwright run tickets.csv -o answers.csv -t 'One word sentiment: {text}' -m local/smollm2
    """
    return send(source, given)


def send(source: str, given: dict[str, Any]) -> int:
    """What `run` does, and `attach`, with what was given. Returns the exit code."""
    from batchwright.core.errors import BatchwrightError

    if not given["dry_run"]:
        options.check_stdout(given, writes=True)
    settings, request = make_request(source, given)
    try:
        if given["dry_run"]:
            options.check_output_objects(request.delivery, settings)
            return show_preview(settings, request, as_json=given["as_json"])
        outcome = _run(settings, request)
    except BatchwrightError as error:
        add_endpoint_help(error, settings)
        raise
    return finish(outcome, as_json=given["as_json"])


def _run(settings: Settings, request: RunRequest) -> RunOutcome:
    from batchwright import assemble
    from batchwright.runner.progress import open_display

    return run_to_end(assemble.run(settings, request, display=open_display(settings.progress)), sends=True)


def make_request(source: str, given: dict[str, Any]) -> tuple[Settings, RunRequest]:
    """Of `run` and `validate`. Raises UsageError before anything is read or sent."""
    from batchwright.cli.params import read_params
    from batchwright.cli.places import check_source, output_paths
    from batchwright.core.errors import UsageError
    from batchwright.runner.deliver import check_delivery, is_input
    from batchwright.runner.request import Delivery

    check_source(source)
    if given.get("as_json") and is_input(None, source):
        raise UsageError("standard output is the input itself; --json would write into it. Send it elsewhere")
    output, failed = output_paths(given.get("output"), given.get("failed"))
    settings = options.load_settings({**given, "max_attempts": _attempts(given)}, sends_rows=True)
    request = settings.to_request(
        source,
        delivery=Delivery(
            output=output,
            output_format=given.get("output_format") or "",
            failed_output=failed,
            strict=given.get("strict", False),
            force=given.get("force", False),
            command=typed_command(),
        ),
        objects=_open_objects(settings, source),
        params=read_params(given["params"], given["max_tokens"], given["temperature"]),
        prompt=given["prompt"] or "",
        system=given["system"] or "",
        **of_columns(given),
        mixed_endpoints=given["mixed_endpoints"],
        limit=given["limit"] or 0,
        skip_invalid=given.get("skip_invalid", False),
        fresh=given.get("fresh", False),
        group_prefix=given.get("group_prefix"),
        dedup=given.get("dedup", False),
        dedup_samples=given.get("dedup_samples", False),
        reuse=given.get("reuse"),
        cache=given.get("cache", False),
        allow_unpriced=given.get("allow_unpriced", False),
        on_gate=_on_gate(given),
        stop_after_failures=given.get("stop_after_failures"),
        via=given.get("via", Via.LIVE.value),
        attach=given.get("attach", ""),
        schema=given.get("schema"),
        on_mismatch=given.get("on_mismatch"),
        repair=given.get("repair"),
    )
    check_delivery(request.delivery, source)
    return settings, request


def _open_objects(settings: Settings, source: str) -> OpenObjects | None:
    if object_url(source) is None:
        return None
    from batchwright import assemble

    return partial(assemble.object_files, settings)


def _on_gate(given: dict[str, Any]) -> str:
    from batchwright.core.errors import UsageError

    wish: str | None = given.get("on_gate")
    if wish is not None and given.get("gate") is False:
        raise UsageError(f"--on-gate {wish} says what the gate does, and --no-gate takes it away: give one of them")
    return wish or OnGate.PAUSE.value


def _attempts(given: dict[str, Any]) -> str | None:
    """`--max-retries N` is `--max-attempts N+1`. Raises UsageError if both are given and differ."""
    from batchwright.core.errors import UsageError

    attempts, retries = given.get("max_attempts"), given.get("max_retries")
    if retries is None:
        return attempts
    if attempts is not None and str(attempts).strip() != str(retries + 1):
        raise UsageError(
            f"--max-retries {retries} means --max-attempts {retries + 1}, but --max-attempts is {attempts}"
        )
    return str(retries + 1)
