"""Usage of single calls on its way to the store.

Whoever counts waits until it is durable; what is counted while a commit is under way goes with the next one, all of it
in one transaction. So a call costs one commit at most, and a thousand at once cost two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from batchwright.core.errors import BatchwrightError
from batchwright.core.records import UsageKey, UsageSum
from batchwright.core.worker_id import WorkerId
from batchwright.engine.writer import Writer
from batchwright.ports.clock import Clock
from batchwright.ports.store import Store


class UsageBook:
    def __init__(
        self, store: Store, *, writer: Writer, clock: Clock, worker: WorkerId, report: Callable[[str], None]
    ) -> None:
        """`worker`: in whose rows it is counted; it must have been registered by the first `count`."""
        self._store = store
        self._writer = writer
        self._clock = clock
        self._worker = worker
        self._report = report
        self._sums: dict[UsageKey, UsageSum] = {}
        self._released: dict[str, int] = {}
        """By key: what calls had drawn from its budget and hold no more."""
        self._next: asyncio.Task[None] | None = None
        """Will write what is in `_sums` now, once the commit before it is done."""
        self._last: asyncio.Task[None] | None = None

    async def count(self, key: UsageKey, spent: UsageSum, *, released_picousd: int = 0) -> None:
        """Returns once it is durable, or was kept for the next commit because the store took none. `released_picousd`:
        what the call had drawn."""
        self._sums.setdefault(key, UsageSum()).add(spent)
        self._release(key.key_id, released_picousd)
        await self.flush()

    async def release(self, key_id: str, picousd: int) -> None:
        """Gives back what a call had drawn that has cost nothing; returns as `count` does."""
        self._release(key_id, picousd)
        await self.flush()

    def _release(self, key_id: str, picousd: int) -> None:
        if picousd:
            self._released[key_id] = self._released.get(key_id, 0) + picousd

    async def flush(self) -> None:
        """Writes what a commit that failed has left, too."""
        if (self._sums or self._released) and self._next is None:
            self._next = asyncio.create_task(self._write(self._last), name="usage of calls")
        if self._next is not None:
            await asyncio.shield(self._next)

    async def _write(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        sums, self._sums = self._sums, {}
        released, self._released = self._released, {}
        self._last, self._next = self._next, None
        try:
            now_ms = self._clock.now_ms()
            await self._writer.do(lambda: self._store.add_usage(self._worker, sums, now_ms, released=released))
        except BatchwrightError as error:
            # The answers are there and paid for: they are given, and their usage goes with the next commit.
            self._report(f"usage of single calls could not be written yet: {error}")
            for key, spent in sums.items():
                self._sums.setdefault(key, UsageSum()).add(spent)
            for key_id, picousd in released.items():
                self._release(key_id, picousd)
