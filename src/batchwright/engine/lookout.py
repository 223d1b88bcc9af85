"""While rows are out, a worker looks for what others have asked of its batches: a cancel, a pause, an end.

A checkpoint brings that too, but only of batches that something has happened to, and as it was when the checkpoint
began; a fast vendor answers hundreds of rows meanwhile. So several times a second the store is asked whether another
process has committed anything (a look that costs microseconds), and only then which of the batches held are to stop:
one small query, whatever their rows. It only ever stops sending: what goes on again a checkpoint says. What people ask
of all workers, a drain or a lane that is closed or opened, it brings sooner than the next heartbeat would.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING

from batchwright.core.errors import StoreError

if TYPE_CHECKING:
    from batchwright.engine.worker import Worker


WISHES_EVERY_S = 1.0
"""At most so often: where many work, somebody always has committed something."""


class Lookout:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._store = worker.parts.store
        self._writer = worker.parts.writer
        self._version = 0
        self._wishes_version, self._wishes_s = 0, -math.inf
        """Of when people's wishes of all workers were read last."""
        self._wanted = asyncio.Event()
        """Rows are out, or somebody asks."""
        self._asked = asyncio.Event()

    def keep(self) -> None:
        """To be called at each turn: it looks as long as rows are out."""
        if self._worker.sender.in_flight:
            self._wanted.set()

    def look_now(self) -> None:
        """This very process has asked for something: its own commits do not show."""
        self._asked.set()
        self._wanted.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            if not self._worker.sender.in_flight:
                with suppress(TimeoutError):
                    async with asyncio.timeout(WISHES_EVERY_S):
                        await self._wanted.wait()
            self._wanted.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._worker.settings.wake_poll_s):
                    await self._asked.wait()
            # A store that cannot be read is the next checkpoint's to tell of, which tries again.
            with suppress(StoreError):
                await self._look()

    async def _look(self) -> None:
        version = self._store.data_version()
        now_s = self._worker.parts.clock.now_s()
        if version != self._wishes_version and now_s - self._wishes_s >= WISHES_EVERY_S:
            self._wishes_version, self._wishes_s = version, now_s
            heard = await self._writer.do(lambda: self._store.wishes(self._worker.identity))
            if heard is not None:  # else its next heartbeat says so
                self._worker.heart.obey(heard)
        if version == self._version and not self._asked.is_set():
            return
        self._version = version
        self._asked.clear()
        await self._look_for_stops()

    async def _look_for_stops(self) -> None:
        contexts = self._worker.floor.contexts
        held = [batch_id for batch_id, context in contexts.items() if context.closing is None and not context.paused]
        if not held:
            return
        found = await self._writer.do(lambda: self._store.stop_signals(held))
        # Of a round that is over by now it says nothing.
        rounds = {batch_id: context.round for batch_id, context in contexts.items()}
        stopped = {batch_id: signal for batch_id, signal in found.items() if rounds.get(batch_id) == signal.round}
        if stopped:
            self._worker.closing.signalled(stopped, self._worker.parts.clock.now_s())
            self._worker.wake_now()
