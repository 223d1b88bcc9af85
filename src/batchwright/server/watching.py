"""Looking on at batches: one reader a watched batch and process, however many look on at it.

The reader asks for the batch's status now and then and, when it has changed, wakes all who wait: each takes the same
sight, which is encoded once. It is slower the more look on and the more batches are watched, so that a thousand
watchers of one batch, or of a thousand, cost a bounded share of a core; it ends with its last watcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from batchwright.ports.batches import Batches, BatchStatus
from batchwright.ports.clock import Clock

READ_EVERY_S = 0.2
PER_WATCHER_S = 0.001
"""A change is told to each watcher: 1,000 of them hear of a batch once a second."""
PER_BATCH_S = 0.005
"""Each watched batch is read for itself: all of them together at most 200 times a second."""
READ_AT_LEAST_EVERY_S = 5.0


class Sight:
    """A batch's status at one moment."""

    __slots__ = ("_encoded", "status", "version")

    def __init__(self, status: BatchStatus) -> None:
        self.status = status
        self.version = version_of(status)
        self._encoded: bytes | None = None

    def encoded(self, encode: Callable[[BatchStatus], bytes]) -> bytes:
        """Called once, whoever asks; the same bytes for all who look on."""
        if self._encoded is None:
            self._encoded = encode(self.status)
        return self._encoded


def settled_count(status: BatchStatus) -> int:
    return status.total - status.counts.open


def version_of(status: BatchStatus) -> str:
    """Differs whenever the state, the count of settled rows or what its lanes wait for does."""
    causes = "".join(f".{cause}" for cause in sorted({waiting.cause for waiting in status.waiting}))
    return f"{status.round}.{settled_count(status)}.{status.state.value}{causes}"


class _Place(NamedTuple):
    account: str
    batch_id: str


class Watching:
    """To be used on one loop; `end` before that ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: dict[_Place, Watched] = {}
        self.ending = False

    @contextmanager
    def watch(self, batches: Batches, account: str, batch_id: str) -> Iterator[Watched]:
        """Looks on at a batch of the account, whose `batches` these are, while it is open."""
        place = _Place(account, batch_id)
        watched = self._watched.get(place)
        if watched is None:
            watched = self._watched[place] = Watched(self, batches, batch_id)
        watched.watchers += 1
        try:
            yield watched
        finally:
            watched.watchers -= 1
            if not watched.watchers:
                del self._watched[place]
                watched.stop()

    def end(self) -> None:
        """Everybody who waits is woken and told to go: the process ends."""
        self.ending = True
        for watched in self._watched.values():
            watched.wake()

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def batches_watched(self) -> int:
        return len(self._watched)


class Watched:
    """One batch that somebody looks on at."""

    def __init__(self, watching: Watching, batches: Batches, batch_id: str) -> None:
        self.watchers = 0
        self._watching = watching
        self._batches = batches
        self._batch_id = batch_id
        self._sight: Sight | None = None
        self._read_began_s = 0.0
        self._error: Exception | None = None
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read_on(), name=f"watch {batch_id}")

    @property
    def clock(self) -> Clock:
        return self._watching.clock

    @property
    def last(self) -> Sight | None:
        """As it was read last, news or not."""
        return self._sight

    async def look(self) -> Sight:
        """The batch as it is now, read for this caller; others hear of it if it is news. Raises NoSuchBatch."""
        return await self._read()

    async def after(self, version: str, within_s: float, gone: asyncio.Future[None] | None = None) -> Sight | None:
        """The newest sight of another version than this, as soon as there is one. None: there was none in time, `gone`
        is done, or the process ends. Raises what the batch can no longer be read for (it was deleted)."""
        clock = self._watching.clock
        until_s = clock.now_s() + within_s
        while not self._watching.ending and not (gone is not None and gone.done()):
            if self._error is not None:
                raise self._error
            if self._sight is not None and self._sight.version != version:
                return self._sight
            left_s = until_s - clock.now_s()
            if left_s <= 0:
                break
            awaited = (self._changed,) if gone is None else (self._changed, gone)
            await asyncio.wait(awaited, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        return None

    def wake(self) -> None:
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)

    def stop(self) -> None:
        self._reader.cancel()

    async def _read_on(self) -> None:
        try:
            while True:
                await self._watching.clock.sleep(self._wait_s())
                await self._read()
        except Exception as error:
            # Told to those who wait, each of whom answers for it.
            self._error = error
            self.wake()

    def _wait_s(self) -> float:
        crowd_s = max(PER_WATCHER_S * self.watchers, PER_BATCH_S * self._watching.batches_watched)
        return min(max(READ_EVERY_S, crowd_s), READ_AT_LEAST_EVERY_S)

    async def _read(self) -> Sight:
        began_s = self._watching.clock.now_s()
        sight = Sight(await self._batches.status(self._batch_id))
        # Of two reads at once the one that began earlier may end later: it is no news.
        if began_s >= self._read_began_s:
            self._read_began_s = began_s
            before, self._sight = self._sight, sight
            if before is None or before.version != sight.version:
                self.wake()
        return sight
