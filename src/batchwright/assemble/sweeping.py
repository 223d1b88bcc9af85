"""How often a command that stays sweeps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from batchwright.assemble.beside import beside
from batchwright.assemble.machine import Machine, set_clock
from batchwright.core.errors import BatchwrightError
from batchwright.engine.outages import Who
from batchwright.engine.sweeper import SWEEP_EVERY_S
from batchwright.engine.writer import StoreThread
from batchwright.fabric.hosting import Say

MS = 1000


@asynccontextmanager
async def swept(machine: Machine, say: Say, *, retention_s: float = 0.0) -> AsyncIterator[None]:
    """The sweeper runs on beside every command that stays: the rows of another worker that dies meanwhile would
    otherwise be held, and waited for, for ever."""
    # On a server a pass that deletes for seconds is to hold up no heartbeat and no checkpoint of this process; a state
    # file lets one write at a time anyway.
    own = StoreThread("store-sweeper") if machine.settings.database else None

    def passes() -> Coroutine[Any, Any, None]:
        return _sweep(machine, own or machine.writer, say, keep_ended_ms=int(retention_s * MS))

    try:
        async with beside("sweeper", passes, clock=machine.clock, say=say):
            yield
    finally:
        if own is not None:
            own.close()


async def _sweep(machine: Machine, thread: StoreThread, say: Say, *, keep_ended_ms: int) -> None:
    while True:
        await machine.clock.sleep(machine.sweeper.rest_s(machine.clock.now_ms()))
        try:
            await machine.writer.do(lambda: set_clock(machine.clock, machine.store))
            await thread.do(lambda: machine.sweeper.sweep(machine.clock.now_ms(), keep_ended_ms=keep_ended_ms))
        except BatchwrightError as error:
            text = f"The sweeper's pass failed; one follows each {SWEEP_EVERY_S:g} s: {error}"
            line = machine.outages.met(Who.SWEEP, error, text, now_s=machine.clock.now_s())
        else:
            over = machine.outages.passed(Who.SWEEP, machine.clock.now_s())
            line = over and f"{over}; the sweeper goes on"
        if line:
            say(line)
