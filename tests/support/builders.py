"""Builders of workers that do one thing, for hosts that are to be looked at without a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from batchwright.core.errors import StoreError, UsageError
from batchwright.ports.observer import WorkerView

VIEW = WorkerView(in_flight=1, answered=7, retries_waiting=0, lanes=(), note="")


class _Waiting:
    """Works until it is told to stop."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()

    async def wait(self) -> None:
        await self._stopped.wait()

    async def stop(self, *, grace: bool) -> None:
        self._stopped.set()

    def view(self) -> WorkerView:
        return VIEW


@dataclass(frozen=True)
class Build:
    refuses: bool = False
    fails: bool = False

    @asynccontextmanager
    async def __call__(self, say: Callable[[str], None]) -> AsyncIterator[_Waiting]:
        say("It is built.")
        if self.refuses:
            raise UsageError("such workers are not to be had")
        if self.fails:
            raise StoreError("the disk is full.")
        yield _Waiting()
