"""What runs on beside a command that stays: the sweeper, the outbox, and their like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from batchwright.core.errors import told_of_fault
from batchwright.ports.clock import Clock

AGAIN_AFTER_S = 10.0


@asynccontextmanager
async def beside(
    what: str, begin: Callable[[], Coroutine[Any, Any, None]], *, clock: Clock, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """`begin` runs on while this is open. A fault that it does not expect is told, and it begins again: what others
    wait for must not end unseen."""
    running = asyncio.create_task(_go_on(what, begin, clock, say), name=what)
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def _go_on(
    what: str, begin: Callable[[], Coroutine[Any, Any, None]], clock: Clock, say: Callable[[str], None]
) -> None:
    while True:
        try:
            await begin()
            return
        except Exception as error:
            # Not the error's own text, which may hold a row's: this goes into logs.
            say(
                f"A fault of batchwright itself ended the {what}: {told_of_fault(error)}. It begins again in "
                f"{AGAIN_AFTER_S:g} s."
            )
        await clock.sleep(AGAIN_AFTER_S)
