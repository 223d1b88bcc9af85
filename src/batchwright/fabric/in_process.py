"""Workers as tasks of the running loop: `run`, and a single `work`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from batchwright.core.errors import AWAY_MAX_S, StoreAway, WorkerGone
from batchwright.core.worker_id import WorkerId
from batchwright.ports.observer import WorkerView

BEGINS_AGAIN_AFTER_S = 1.0
"""Where the store was away when a worker was to begin."""
DRAINED = "This worker was drained: what was out has come back, the rest is left to others. It ends."
STANDS_BY = (
    "This worker was drained: what was out has come back, the rest is left to others. It stands by until "
    "`batchwright workers resume {name}`."
)


class HostedWorker(Protocol):
    @property
    def identity(self) -> WorkerId: ...

    @property
    def begun(self) -> bool: ...

    @property
    def drained(self) -> bool: ...

    async def run(self) -> None: ...

    def stop(self, *, grace: bool) -> None: ...

    def look_again(self) -> None: ...

    def look_at_flags(self) -> None: ...

    def view(self) -> WorkerView: ...

    def reload(self, vendor_limits: Mapping[str, Any]) -> None: ...


class Hosted(NamedTuple):
    worker: HostedWorker
    let_go: Callable[[], None]
    """Of its lock; called when it has ended, however it ended."""


class LoopWorker:
    """One worker as a task. Where it is gone (a machine that slept past the lease, a commit whose reply was lost) and
    was not told to stop, `make` makes another, which goes on as any other would; and so where the store is away before
    one has begun, as for the worker that follows in an outage. One that was drained ends; where whoever watches would
    only begin it again (`stays`), `make(True)` makes one in its place that stands by."""

    def __init__(self, make: Callable[[bool], Hosted], *, say: Callable[[str], None], stays: bool = False) -> None:
        self._make = make
        self._say = say
        self._stays = stays
        self._worker, self._let_go = make(False)
        self._told_to_stop = asyncio.Event()
        self._away_since_s = -1.0
        """When no worker could begin, for the first time since one did; below 0: one has."""
        self._limits: Mapping[str, Any] | None = None
        """As they were last changed."""
        self._task = asyncio.create_task(self._host(), name="worker")

    async def _host(self) -> None:
        while True:
            try:
                await self._worker.run()
                if self._told_to_stop.is_set() or not self._worker.drained:
                    return
                self._say(STANDS_BY.format(name=self._worker.identity.name) if self._stays else DRAINED)
                if not self._stays:
                    return
            except WorkerGone as error:
                if self._told_to_stop.is_set():
                    raise
                if self._worker.drained and not self._stays:
                    return  # it was to end anyway, and others go on with its rows
                self._away_since_s = -1.0
                self._say(f"A new worker begins in this process, for the last one is gone: {error}")
            except StoreAway as error:
                if self._worker.begun or not await self._waited(error):
                    raise
            finally:
                self._let_go()
            self._worker, self._let_go = self._make(self._stays and self._is_drained())
            if self._limits is not None:
                self._worker.reload(self._limits)

    async def _waited(self, error: StoreAway) -> bool:
        """A while, for another try to begin; False: it has been tried for long enough, or this is to end."""
        now_s = asyncio.get_running_loop().time()
        if self._away_since_s < 0:
            self._away_since_s = now_s
            self._say(f"The worker waits to begin, for {AWAY_MAX_S / 60:g} minutes at most: {error}")
        if now_s - self._away_since_s >= AWAY_MAX_S:
            return False
        try:
            async with asyncio.timeout(BEGINS_AGAIN_AFTER_S):
                await self._told_to_stop.wait()
        except TimeoutError:
            return True
        return False

    def _is_drained(self) -> bool:
        return self._worker.drained or self._worker.view().drained

    async def wait(self) -> None:
        """Returns when it has ended; raises what ended it."""
        await asyncio.shield(self._task)

    async def stop(self, *, grace: bool) -> None:
        """Returns when it has stopped sending, checkpointed and given back; raises nothing (`wait` does)."""
        if not self._task.done():
            self._told_to_stop.set()
            self._worker.stop(grace=grace)
            await asyncio.wait([self._task])

    @property
    def drained(self) -> bool:
        """Somebody asked for its end from elsewhere (`batchwright workers drain`)."""
        return self._worker.drained

    def look_again(self) -> None:
        """Batches were submitted, reopened or resumed by this very process."""
        if not self._task.done():
            self._worker.look_again()

    def look_at_flags(self) -> None:
        """Batches were cancelled or paused by this very process."""
        if not self._task.done():
            self._worker.look_at_flags()

    def reload(self, vendor_limits: Mapping[str, Any]) -> None:
        """Other limits of vendors, keys and prices than it began with."""
        self._limits = vendor_limits
        if not self._task.done():
            self._worker.reload(vendor_limits)

    def view(self) -> WorkerView | None:
        return None if self._task.done() else self._worker.view()
