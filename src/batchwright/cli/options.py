"""Options that several commands share, in groups. Each help says the unit and the default.

Options that are also settings are not read here: their text goes to `settings.load`, which knows every place a value
can come from and names the one that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchwright.cli.store_options import given_stores

if TYPE_CHECKING:
    from batchwright.runner.request import Delivery
    from batchwright.settings import ServiceChoice, Settings

F = TypeVar("F", bound=Callable[..., Any])

SETTING_OPTIONS = (
    "model",
    "base_url",
    "api_key_env",
    "vendor",
    "gguf",
    "concurrency",
    "rpm",
    "tpm",
    "timeout",
    "max_attempts",
    "max_cost",
    "deadline",
    "on_uncertain",
    "gate",
    "transport",
    "progress",
    "processes",
    "ray",
    "ray_min",
    "ray_max",
    "ray_cpus",
    "host",
    "port",
    "log",
    "open_metrics",
    "retention",
    "ceiling_rows",
    "ceiling_body",
    "ceiling_stream",
    "ceiling_row",
    "ceiling_export",
)
"""Names of settings that can be given on the command line; values go on as they were typed."""

FORMATS = ("infrai", "openai", "csv", "parquet", "arrow", "feather")
ON_UNCERTAIN = ("retry", "fail")
ON_MISMATCH = ("flag", "fail")
MAX_REPAIRS = 10
TRANSPORTS = ("auto", "own", "curl")
PROGRESS = ("auto", "rich", "plain", "none")
LOGS = ("plain", "json", "quiet")
KINDS = (
    "rate_limited",
    "overloaded",
    "timeout",
    "network",
    "unreachable",
    "answer_too_large",
    "bad_response",
    "quota_exhausted",
    "auth",
    "invalid_request",
    "model_not_found",
    "context_too_long",
    "too_large",
    "content_filtered",
    "invalid_row",
    "unroutable",
    "in_doubt",
    "worker_lost",
    "missing_from_upstream",
    "internal",
    "schema_failed",
    "cancelled",
    "expired",
    "stopped",
)
FLAGS = ("truncated", "refused", "filtered", "empty", "schema_mismatch")
"""These and the kinds are written out so that `--help` imports no table; a test compares them with it."""


def _one_file(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> str:
    if not values:
        raise click.MissingParameter(ctx=context, param=parameter)
    if len(values) > 1:
        raise click.BadParameter(
            f"expected one FILE, found {len(values)} ({values[0]}, {values[1]}{', ...' if values[2:] else ''}); give "
            "several files as a pattern in quotes: 'data/*.jsonl'",
            ctx=context,
            param=parameter,
        )
    return values[0]


source_argument = click.argument("source", metavar="FILE", nargs=-1, callback=_one_file)


def _all(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def endpoint_options(function: F) -> F:
    return _all(
        click.option("-m", "--model", metavar="NAME", help="Model of rows that name none. [default: none]"),
        click.option(
            "--base-url",
            metavar="URL",
            help="Endpoint, up to and without /chat/completions. [default: OpenAI's where OPENAI_API_KEY is set]",
        ),
        click.option(
            "--api-key-env",
            metavar="NAME",
            help="Name of the variable that holds the key; '' for no key. [default: OPENAI_API_KEY if it is set]",
        ),
        click.option(
            "--vendor",
            metavar="NAME",
            help="Send every row to this vendor of batchwright.toml, or to `local` or `simulated`. "
            "[default: by the rows' model names]",
        ),
        click.option("--gguf", metavar="PATH", help="Model file of the local server. [default: SmolLM2-135M]"),
        click.option(
            "--simulate", is_flag=True, help="Use the built-in simulated vendor: nothing is sent. [default: off]"
        ),
    )(function)


def service_options(function: F) -> F:
    return _all(
        click.option(
            "--service",
            metavar="URL",
            help="Send every row through a batch service: Infrai's, or one of `batchwright serve`. [default: none]",
        ),
        click.option(
            "--service-key-env",
            metavar="NAME",
            help="Name of the variable that holds the service's key; '' for no key. "
            "[default: BATCHWRIGHT_SERVICE_KEY, else INFRAI_API_KEY]",
        ),
    )(function)


def there_options(function: F) -> F:
    """Of commands on batches that are there: here, or at a service."""
    return _all(
        click.option("--account", metavar="NAME", help="Only batches of this account of the service. [default: all]"),
        click.option("--service", metavar="URL", help="The batch is at this service. [default: on this machine]"),
        click.option(
            "--service-key-env",
            metavar="NAME",
            help="Name of the variable that holds the service's key; '' for no key. "
            "[default: BATCHWRIGHT_SERVICE_KEY, else INFRAI_API_KEY]",
        ),
    )(function)


def row_options(function: F) -> F:
    return _all(
        click.option(
            "-t",
            "--prompt",
            metavar="TEXT",
            help="The user message made of a table's (or plain objects') columns: {column}; {{ and }} are braces. "
            "[default: none]",
        ),
        click.option(
            "-s",
            "--system",
            metavar="TEXT",
            help="The system message before it, with or without columns. [default: none]",
        ),
        click.option(
            "--param",
            "params",
            multiple=True,
            metavar="KEY=JSON",
            help="Body field of rows that lack it; may be repeated. [default: none]",
        ),
        click.option(
            "--max-tokens",
            type=click.IntRange(min=1),
            help="Short for --param max_tokens=N, by the name that the row's endpoint has for it. [default: none]",
        ),
        click.option("--temperature", type=float, help="Short for --param temperature=X. [default: none]"),
        click.option(
            "--mixed-endpoints", is_flag=True, help="Rows may go to different endpoints. [default: as the first row]"
        ),
        click.option("--limit", type=click.IntRange(min=1), help="Only the first N rows. [default: all]"),
    )(function)


NEWEST = "the file's own"
"""What `--reuse` without a batch means."""


def _batch_or_none(context: click.Context, parameter: click.Parameter, value: str | None) -> bool | str | None:
    """True: no batch was named. What follows `--reuse` is taken for one, and may be the FILE."""
    if value is None or value == NEWEST:
        return None if value is None else True
    digits = value.removeprefix("batch_")
    if value == "@last" or (digits and set(digits) <= set("0123456789abcdef")):
        return value
    raise click.BadParameter(
        f"expected the id of a batch, or nothing, found {value!r}; give FILE before --reuse",
        ctx=context,
        param=parameter,
    )


def reuse_options(function: F) -> F:
    return _all(
        click.option(
            "--reuse",
            metavar="[ID]",
            is_flag=False,
            flag_value=NEWEST,
            callback=_batch_or_none,
            help="Rows with the same request keep the answer of an earlier batch of this FILE (or of this batch), at "
            "no cost; others are asked. Give it behind FILE. [default: off]",
        ),
        click.option(
            "--cache",
            is_flag=True,
            help="The same with the answers of all batches here, each for one row at most. [default: off]",
        ),
        click.option(
            "--dedup",
            is_flag=True,
            help="Rows with the same request are asked once and share the answer; refused where their temperature is "
            "not 0. [default: off]",
        ),
        click.option(
            "--dedup-samples",
            is_flag=True,
            help="The same whatever their temperature: one sample for all of them. [default: off]",
        ),
    )(function)


def pace_options(function: F) -> F:
    return _all(
        click.option(
            "-c", "--concurrency", metavar="N", help="Rows in flight, at most; found by trying. [default: 256]"
        ),
        click.option(
            "--rpm",
            metavar="N",
            help="Requests a minute, at most. [default: as the batch began; else as the vendor allows]",
        ),
        click.option(
            "--tpm",
            metavar="N",
            help="Tokens a minute, at most. [default: as the batch began; else as the vendor allows]",
        ),
        click.option("--timeout", metavar="TIME", help="Whole time of one attempt, e.g. 90s or 2m. [default: 15m]"),
    )(function)


def output_options(function: F) -> F:
    return _all(_output_option("-"), *_format_options(FAILED_HELP))(function)


def export_options(function: F) -> F:
    """Of a batch that is there, here or at a service."""
    return _all(_output_option("-"), *_format_options(FAILED_THERE_HELP))(function)


def later_output_options(function: F) -> F:
    """For commands that go on with a batch: they write answers only where a file is named."""
    return _all(_output_option("none written"), *_format_options(FAILED_THERE_HELP))(function)


FAILED_HELP = "File of the rows without success, as valid input"
FAILED_THERE_HELP = f"{FAILED_HELP}; not with --service, which does not give the requests back"


def _output_option(default: str) -> Callable[[F], F]:
    return click.option(
        "-o", "--output", metavar="FILE", help=f"File of the answers; - is stdout. [default: {default}]"
    )


def _format_options(failed_help: str) -> tuple[Callable[[F], F], ...]:
    return (
        click.option(
            "--format",
            "output_format",
            type=click.Choice(FORMATS),
            help="Shape of the answers. [default: by the suffix .csv, .parquet, .arrow or .feather, else infrai]",
        ),
        click.option("--failed", metavar="FILE", help=f"{failed_help}. [default: none]"),
        click.option("--force", is_flag=True, help="Replace a file too that holds something else. [default: refuse]"),
    )


def outcome_options(function: F) -> F:
    return _all(
        click.option(
            "--strict",
            is_flag=True,
            help="Answers with a flag (truncated, refused, ...) count as failed for the exit code. [default: off]",
        ),
        click.option("--json", "as_json", is_flag=True, help="Report on stdout, as one JSON object. [default: off]"),
        click.option(
            "--progress",
            type=click.Choice(PROGRESS),
            help="How progress is shown on stderr. [default: rich on a terminal, else plain]",
        ),
    )(function)


def transport_option(function: F) -> F:
    return click.option(
        "--transport",
        type=click.Choice(TRANSPORTS),
        help="How requests leave: our own connections, or libcurl. [default: own; curl behind a proxy]",
    )(function)


def serving_options(function: F) -> F:
    return _all(
        click.option("--host", metavar="ADDRESS", help="Address to listen at. [default: 127.0.0.1]"),
        click.option("--port", metavar="N", help="Port; 0: any free one. [default: 8080]"),
        click.option(
            "--log",
            type=click.Choice(LOGS),
            help="How requests are told of on stderr; json is one object a line. [default: plain]",
        ),
        click.option(
            "--open-metrics/--no-open-metrics",
            default=None,
            help="Whether /metrics asks for no key. [default: it asks for one]",
        ),
        click.option(
            "--retention",
            metavar="TIME",
            help="Delete batches that ended longer ago, e.g. 30d, in the background. [default: all are kept]",
        ),
        click.option("--ceiling-rows", metavar="N", help="Rows of a batch, at most. [default: 10,000,000]"),
        click.option("--ceiling-body", metavar="SIZE", help="A submit's JSON body, at most. [default: 256MiB]"),
        click.option(
            "--ceiling-stream", metavar="SIZE", help="A body taken in as it arrives, at most. [default: 64GiB]"
        ),
        click.option("--ceiling-row", metavar="SIZE", help="One row, at most. [default: 32MiB]"),
        click.option("--ceiling-export", metavar="SIZE", help="An export in its envelope, at most. [default: 32MiB]"),
    )(function)


def ray_options(function: F) -> F:
    return _all(
        click.option("--ray-min", metavar="N", help="Actors, at least. [default: 1]"),
        click.option("--ray-max", metavar="N", help="Actors, at most, by how much there is to do. [default: 2]"),
        click.option("--ray-cpus", metavar="X", help="CPUs of the cluster that an actor takes up. [default: 1]"),
    )(function)


def selector_options(function: F) -> F:
    return _all(
        click.option(
            "--kind",
            "kinds",
            multiple=True,
            type=click.Choice(KINDS),
            metavar="KIND",
            help="Failure kind, such as timeout; may be repeated. [default: all]",
        ),
        click.option(
            "--flag",
            "flags",
            multiple=True,
            type=click.Choice(FLAGS),
            help="Flag of an answer; may be repeated. [default: none]",
        ),
    )(function)


def json_option(help_text: str) -> Callable[[F], F]:
    return click.option("--json", "as_json", is_flag=True, help=f"{help_text} [default: off]")


def shows_list(context: click.Context, *, as_json: bool) -> bool:
    """Of a group that lists by itself: whether that was asked for, and not one of its commands."""
    if context.invoked_subcommand is None:
        return True
    if as_json:
        raise click.UsageError(f"--json is of the list alone; leave it out before `{context.invoked_subcommand}`")
    return False


def load_settings(options: Mapping[str, Any], *, sends_rows: bool = False) -> Settings:
    """The settings under these options; options that are no settings are left alone. `sends_rows`: new rows need an
    endpoint to go to, which batches that are there have stored."""
    from batchwright.core.errors import UsageError
    from batchwright.settings import load

    flags = {name: options[name] for name in SETTING_OPTIONS if options.get(name) is not None}
    flags |= given_stores()
    simulate, service = bool(options.get("simulate")), service_of(options)
    account = options.get("account") or ""
    if account and service is not None:
        raise UsageError("--account: at a service its key says whose batches are seen; leave out --account")
    return load(flags, simulate=simulate, service=service, account=account, sends_rows=sends_rows)


def service_of(options: Mapping[str, Any]) -> ServiceChoice | None:
    from batchwright.core.errors import UsageError
    from batchwright.settings import ServiceChoice

    url, key_env = options.get("service"), options.get("service_key_env")
    if url is None:
        if key_env is not None:
            raise UsageError("--service-key-env names the key of a service: give --service URL too")
        return None
    return ServiceChoice(url=url, key_env=key_env)


def delivery_of(given: Mapping[str, Any], *, writes: bool) -> Delivery:
    """`writes` False: answers are written only if `-o` is given. Raises UsageError for a place that cannot be right."""
    from batchwright.cli.places import output_paths
    from batchwright.cli.running import typed_command
    from batchwright.core.errors import UsageError
    from batchwright.runner.deliver import check_delivery
    from batchwright.runner.request import Delivery

    if not writes and given["output"] is None and (given["failed"] or given["output_format"]):
        raise UsageError("--failed and --format go with -o: give the file of the answers too")
    if given["failed"] and given.get("service"):
        raise UsageError("--failed: a service does not give the requests back, so none can be written as input again")
    output, failed = output_paths(given["output"], given["failed"])
    delivery = Delivery(
        output=output,
        output_format=given["output_format"] or "",
        failed_output=failed,
        strict=given["strict"],
        nothing=not writes and given["output"] is None,
        force=given["force"],
        command=typed_command(),
    )
    check_delivery(delivery, ())
    return delivery


def check_output_objects(delivery: Delivery, settings: Settings) -> None:
    """Raises UsageError for outputs that are objects and cannot be written, or hold what would be lost."""
    from batchwright import assemble
    from batchwright.runner.deliver import check_objects

    check_objects(delivery, partial(assemble.object_files, settings))


def check_stdout(given: Mapping[str, Any], *, writes: bool) -> None:
    """Raises UsageError if answers and report would both go to standard output, or either to one that is closed."""
    from batchwright.cli.exits import stdout_is_closed
    from batchwright.cli.places import STREAM, goes_to_stdout, is_stdout
    from batchwright.core.errors import UsageError

    output = given["output"] if given["output"] is not None else STREAM if writes else None
    if given["as_json"] and output is not None and goes_to_stdout(output):
        raise UsageError("--json puts the report on standard output, where the answers go too: give -o FILE")
    if stdout_is_closed() and output is not None and is_stdout(output):
        raise UsageError("standard output is closed, so the answers have nowhere to go: give -o FILE")
    if stdout_is_closed() and given["as_json"]:
        raise UsageError("standard output is closed, so the report has nowhere to go: leave out --json")
