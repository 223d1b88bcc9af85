"""`batchwright.run` and `batchwright.run_async`: rows in, results out, in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Generic, TypedDict, TypeVar, Unpack, get_args, get_origin, get_type_hints

from batchwright.core.durations import shown
from batchwright.core.errors import BatchPaused, BatchwrightError, CallerError, InputRefused, UsageError
from batchwright.core.object_urls import ObjectURL, object_url
from batchwright.fabric.own_process import own_loop
from batchwright.library.results import Results
from batchwright.runner.outcome import RunOutcome
from batchwright.runner.report import EXIT_INTERRUPTED, EXIT_OUR_FAULT, EXIT_PAUSED
from batchwright.runner.request import Delivery
from batchwright.settings import Settings

T = TypeVar("T")
_KIND_WORDS: dict[Any, str] = {
    str: "a text",
    Path: "a path",
    bool: "True or False",
    int: "a whole number",
    object: "a dict, a path or a Pydantic class",
    Mapping[str, object]: "a mapping with names",
    Mapping[str, str]: "a mapping of texts to texts",
    Sequence[str]: "a list of texts",
}
"""What an option expects, in words; for every type that `Options` has beside the settings' own."""


class RowsFailed(CallerError):
    """Raised under `raise_on_failure` when rows have no success. Nothing is lost: `results` has them all."""

    def __init__(self, message: str, results: Results) -> None:
        super().__init__(message)
        self.results = results


class Options(TypedDict, total=False):
    """What both functions take; each is the command's option of that name and means the same."""

    output: str | Path | None
    output_format: str
    failed: str | Path | None
    model: str
    base_url: str
    api_key_env: str
    vendor: str
    gguf: str | Path
    simulate: bool
    service: str
    service_key_env: str
    prompt: str
    template: str
    template_file: str | Path
    system: str
    image: Sequence[str]
    where: str
    select: Sequence[str]
    params: Mapping[str, object]
    limit: int
    mixed_endpoints: bool
    skip_invalid: bool
    fresh: bool
    group_prefix: bool
    dedup: bool
    dedup_samples: bool
    reuse: bool | str
    cache: bool
    force: bool
    strict: bool
    concurrency: int
    rpm: int
    tpm: int
    timeout: float | str | timedelta
    max_attempts: int
    max_cost: float | str | Decimal
    allow_unpriced: bool
    deadline: float | str | timedelta
    on_uncertain: str
    gate: bool
    on_gate: str
    stop_after_failures: int | str
    via: str
    schema: object
    on_mismatch: str
    repair: int
    prices: str | Path
    transport: str
    progress: str
    home: str | Path
    metadata: Mapping[str, str]
    raise_on_failure: bool


_OF_THE_RUN = {
    "prompt",
    "template",
    "template_file",
    "system",
    "image",
    "where",
    "select",
    "params",
    "limit",
    "mixed_endpoints",
    "skip_invalid",
    "fresh",
    "group_prefix",
    "dedup",
    "dedup_samples",
    "reuse",
    "cache",
    "allow_unpriced",
    "on_gate",
    "stop_after_failures",
    "via",
    "schema",
    "on_mismatch",
    "repair",
    "metadata",
}
"""What `Settings.to_request` takes; what is left are settings."""
_OURS = {
    "service",
    "service_key_env",
    "output",
    "output_format",
    "failed",
    "force",
    "strict",
    "simulate",
    "raise_on_failure",
}


def run(source: str | Path | Iterable[object], **options: Unpack[Options]) -> Results:
    """Sends rows as one batch and returns when it has ended.

    `source`: the path of a rows file, or a list of them, the URL of an object (`s3://bucket/rows.jsonl`, or a prefix
    that ends with a slash), rows (dicts, or one JSON object each as text or bytes), or a table: whatever gives itself
    as Arrow data, as frames of pandas and polars and pyarrow's tables do. The same rows with the same options again go
    on with an unfinished batch, and of a complete one give the results without sending anything; `fresh=True` starts
    anew. May be called where an event loop runs already (a notebook): it then works in a thread and a loop of its own,
    and `await run_async(...)` in the one that runs.

    A bad row is a result with `ok` False, never an exception, unless `raise_on_failure`. Raises InputRefused and
    UsageError before anything is sent, BatchPaused where it cannot go on now (the text says why), KeyboardInterrupt.
    """
    return _in_own_loop(lambda: run_async(source, **options))


async def run_async(source: str | Path | Iterable[object], **options: Unpack[Options]) -> Results:
    """`run` for callers that have a loop. Cancelling it stops sending at once; nothing that was answered is lost."""
    from batchwright import assemble, settings
    from batchwright.runner.progress import open_display
    from batchwright.settings.endpoint_help import endpoint_help_text

    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    _check(given)
    service = None
    if given.get("service") is not None:
        service = settings.ServiceChoice(url=given["service"], key_env=given.get("service_key_env"))
    found = settings.load(_settings_of(given), simulate=bool(given.get("simulate")), service=service)
    output, failed = _path(given.get("output")), _path(given.get("failed"))
    request = found.to_request(
        source,
        objects=partial(assemble.object_files, found),
        delivery=Delivery(
            output=output,
            output_format=given.get("output_format") or "",
            failed_output=failed,
            strict=bool(given.get("strict")),
            nothing=output is None and failed is None,
            force=bool(given.get("force")),
        ),
        **{name: value for name, value in given.items() if name in _OF_THE_RUN},
    )
    display = open_display(found.progress)
    try:
        outcome = await assemble.run(found, request, display=display)
    except InputRefused as error:
        if help_text := endpoint_help_text(found, error.findings):
            error.add_note(help_text)
        raise
    finally:
        display.close()
    results = _results_of(found, outcome, given.get("schema"))
    if given.get("raise_on_failure") and outcome.exit_code:
        raise RowsFailed(outcome.text, results)
    return results


def _check(given: Mapping[str, Any]) -> None:
    """An option that does not exist is a TypeError, as for any function. Raises UsageError for a value of another type
    than the option has; what is a setting is looked at where settings are read."""
    unknown = given.keys() - Options.__annotations__.keys()
    if unknown:
        raise TypeError(f"run() has no option {', '.join(sorted(unknown))}")
    for name, hint in get_type_hints(Options).items():
        if name not in given or name not in _OF_THE_RUN | _OURS:
            continue
        kinds = [kind for kind in get_args(hint) if kind is not NoneType] if isinstance(hint, UnionType) else [hint]
        if not any(_is_a(given[name], kind) for kind in kinds):
            words = " or ".join(_KIND_WORDS[kind] for kind in kinds)
            raise UsageError(f"{name}: expected {words}, found {shown(given[name])}")


def _is_a(value: object, kind: Any) -> bool:
    if get_origin(kind) is Sequence:
        return isinstance(value, Sequence) and all(isinstance(each, str) for each in value)
    if of := get_args(kind):
        return isinstance(value, Mapping) and all(
            isinstance(key, str) and (of[1] is object or isinstance(each, of[1])) for key, each in value.items()
        )
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _settings_of(given: Mapping[str, Any]) -> dict[str, object]:
    """What is a setting, as it would be typed."""
    kept = {name: value for name, value in given.items() if name not in _OF_THE_RUN | _OURS}
    return {name: _typed(value) for name, value in kept.items()}


def _typed(value: object) -> object:
    match value:
        case timedelta():
            return value.total_seconds()
        case Path() | Decimal():
            return str(value)
        case _:
            return value


def _path(value: object) -> Path | ObjectURL | None:
    return None if value is None else object_url(value) or Path(str(value))


def _results_of(settings: Settings, outcome: RunOutcome, schema: object) -> Results:
    """Raises what kept the batch from its end."""
    if outcome.exit_code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt(outcome.text)
    if outcome.exit_code == EXIT_PAUSED:
        raise BatchPaused(outcome.text)
    if outcome.exit_code == EXIT_OUR_FAULT or outcome.report is None:
        raise BatchwrightError(outcome.text)
    return Results(settings, outcome, outcome.report, model=schema)


def _in_own_loop(begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs it to its end, in this thread if no loop runs here, else in one of its own."""
    if _loop_runs_here():
        return _InThread(begin).result()
    with own_loop() as runner:
        return runner.run(begin())


def _loop_runs_here() -> bool:
    """Asked apart, so that what a run raises is not told as raised while this was handled."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _InThread(Generic[T]):
    """A coroutine in a thread and loop of its own, waited for from a thread whose loop is busy."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._begin = begin
        self._ended: list[T] = []
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._thread = threading.Thread(target=self._run, name="batchwright run")

    def result(self) -> T:
        self._thread.start()
        try:
            self._thread.join()
        except KeyboardInterrupt:
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join()
            raise
        if self._error is not None:
            raise self._error
        return self._ended[0]

    def _run(self) -> None:
        async def work() -> T:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            return await self._begin()

        try:
            with own_loop() as runner:
                self._ended.append(runner.run(work()))
        except BaseException as error:
            self._error = error
