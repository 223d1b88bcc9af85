"""What commands that open the store have in common: one event loop, the display, the outcome's printing."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from batchwright.core.errors import BatchwrightError
    from batchwright.ports.batches import Batches
    from batchwright.runner.outcome import RunOutcome
    from batchwright.settings import Settings

T = TypeVar("T")
SHOWN_UNROUTABLE = 3


def typed_command() -> tuple[str, ...]:
    """The command as it was typed, for messages that say how to go on."""
    return ("batchwright", *sys.argv[1:])


def run_to_end(work: Coroutine[Any, Any, T], *, sends: bool = False, threads: int = 0) -> T:
    """On a loop of its own. `sends`: on the fast one and with flat memory, which pay where rows are sent. `threads`
    beside it; 0: as few as usual."""
    try:
        from batchwright.fabric.own_process import THREADS, own_loop, tune_own_process

        if sends:
            tune_own_process()
        with own_loop(fast=sends, threads=threads or THREADS) as runner:
            return runner.run(work)
    finally:
        # An interrupt may have come before the loop was there; Python would complain of work that never began.
        work.close()


def with_batches(settings: Settings, ask: Callable[[Batches], Awaitable[T]]) -> T:
    """Opens this machine's batches, asks, closes them."""
    from batchwright import assemble
    from batchwright.cli.exits import say

    async def asked() -> T:
        async with AsyncExitStack() as stack:
            batches = await stack.enter_async_context(assemble.open_batches(settings, say=say))
            return await ask(batches)

    return run_to_end(asked())


def resolve(settings: Settings, text: str) -> str:
    """The full id. Raises NoSuchBatch."""
    return with_batches(settings, lambda batches: batches.resolve(text))


def finish(outcome: RunOutcome, *, as_json: bool) -> int:
    """Prints how it ended: all of it on stderr, or with `--json` the report on stdout and the rest on stderr."""
    from batchwright.cli import exits
    from batchwright.runner.report_text import report_json

    if as_json and outcome.report is not None:
        # Last of all: whatever becomes of it, what is said on stderr has been said.
        if outcome.closing:
            exits.say("\n".join(outcome.closing))
        try:
            click.echo(report_json(outcome.report))
        except BrokenPipeError:
            exits.forget(sys.stdout)
        except OSError as error:
            exits.forget(sys.stdout)
            exits.say(f"{outcome.text}\nThe report cannot be written to standard output: {error.strerror}.")
            return exits.OUR_FAULT
    elif outcome.text:
        exits.say(outcome.text)
    return outcome.exit_code


def add_endpoint_help(error: BatchwrightError, settings: Settings) -> None:
    """Rows without any endpoint to go to: says how to get one, and not the same finding a hundred times."""
    from batchwright.core.errors import InputRefused
    from batchwright.settings.endpoint_help import endpoint_help_text

    if not isinstance(error, InputRefused):
        return
    if help_text := endpoint_help_text(settings, error.findings):
        error.add_note(help_text)
        if all(finding.code == "unroutable" for finding in error.findings):
            error.findings = error.findings[:SHOWN_UNROUTABLE]
