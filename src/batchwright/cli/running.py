"""What commands that open the store have in common: one event loop, the display, the outcome's printing."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    import asyncio

    from batchwright.core.errors import BatchwrightError
    from batchwright.ports.batches import Batches
    from batchwright.runner.outcome import RunOutcome
    from batchwright.settings import Settings

T = TypeVar("T")
SHOWN_UNROUTABLE = 3


def typed_command() -> tuple[str, ...]:
    """The command as it was typed, for messages that say how to go on."""
    return ("batchwright", *sys.argv[1:])


def run_async(work: Coroutine[Any, Any, T], *, sends: bool = False) -> T:
    """Runs it to its end. `sends`: on the fast loop and with flat memory, which pay where rows are sent."""
    import asyncio

    from batchwright.fabric.system import collect_seldom, keep_memory_flat

    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if sends:
        keep_memory_flat()
        collect_seldom()
    if sends and sys.platform != "win32":
        import uvloop

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(work)


def with_batches(settings: Settings, ask: Callable[[Batches], Awaitable[T]]) -> T:
    """Opens this machine's batches, asks, closes them."""
    from batchwright import assemble

    async def asked() -> T:
        async with assemble.open_batches(settings) as batches:
            return await ask(batches)

    return run_async(asked())


def resolve(settings: Settings, text: str) -> str:
    """The full id. Raises NoSuchBatch."""
    return with_batches(settings, lambda batches: batches.resolve(text))


def finish(outcome: RunOutcome, *, as_json: bool) -> int:
    """Prints how it ended: all of it on stderr, or with `--json` the report on stdout and the rest on stderr."""
    from batchwright.runner.report_text import report_json

    if as_json and outcome.report is not None:
        click.echo(report_json(outcome.report))
        text = "\n".join(outcome.closing)
    else:
        text = outcome.text
    if text:
        click.echo(text, err=True)
    return outcome.exit_code


def endpoint_help_text(settings: Settings) -> str:
    return "\n".join(("Where rows can go:", *(f"  {line}" for line in settings.endpoint_help())))


def add_endpoint_help(error: BatchwrightError, settings: Settings) -> None:
    """Rows without any endpoint to go to: says how to get one, and not the same finding a hundred times."""
    from batchwright.core.errors import InputRefused

    if settings.destinations or not isinstance(error, InputRefused):
        return
    unroutable = [finding for finding in error.findings if finding.code == "unroutable"]
    if unroutable:
        error.add_note(endpoint_help_text(settings))
        if len(unroutable) == len(error.findings):
            error.findings = error.findings[:SHOWN_UNROUTABLE]
