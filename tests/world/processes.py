"""Processes of the world: what dies at once, and the doors (store, writer, clock, locks) through which it acts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from batchwright.core.worker_id import WorkerId
from batchwright.ports.store import Store
from world.coverage import CrashPoint

if TYPE_CHECKING:
    from world.world import World

T = TypeVar("T")
EPOCH_MS = 1_767_225_600_000


class Crash(BaseException):
    """A process dies here. No part of the product may catch it."""


class Process:
    """What ends at once: a worker's, a sweeper's or a user's process."""

    def __init__(self, world: World, host: str, worker: WorkerId) -> None:
        self.world = world
        self.host = host
        self.identity = worker
        self.worker = (worker.name, worker.incarnation)
        self.dead = False
        self.lacks: frozenset[str] = frozenset()
        self.task: asyncio.Task[None] | None = None
        self.locks: set[str] = set()
        self.store = cast(Store, ProcessStore(world, self))
        self.writer = InlineWriter(world, self)
        self.clock = HostClock(world, host)

    def lock(self, name: str) -> None:
        self.locks.add(name)
        self.world.locks.add(name)

    def unlock(self) -> None:
        self.world.locks -= self.locks
        self.locks = set()

    def kill(self) -> None:
        """kill -9: nothing of it runs any more."""
        if self.dead:
            return
        self.dead = True
        self.unlock()
        self.world.auditor.crashed.add(self.worker)
        if self.task is not None:
            self.task.cancel()

    def crash(self) -> None:
        self.kill()
        raise Crash

    def step(self, name: str) -> None:
        """A named step of the engine."""
        if self.dead:
            raise Crash
        if self.world.strikes(CrashPoint.STEP, name):
            self.crash()


class HostClock:
    def __init__(self, world: World, host: str) -> None:
        self._world = world
        self._host = host

    def now_s(self) -> float:
        return self._world.loop.time()

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._world.loop.time() * 1000) + self._world.skew_ms.get(self._host, 0)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class WorldLocks:
    def __init__(self, world: World) -> None:
        self._world = world

    def is_free(self, name: str) -> bool:
        return name not in self._world.locks


class InlineWriter:
    """The writer of one process: runs the work on the loop, after and before seeded delays."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._lock = asyncio.Lock()

    async def do(self, work: Callable[[], T]) -> T:
        world = self._world
        async with self._lock:
            before_s, after_s = world.commit_delays()
            await asyncio.sleep(before_s)
            if after_s < 0:
                world.hang()
            result = await world.work(self._process, work)
            await asyncio.sleep(max(0.0, after_s))
            if self._process.dead:
                raise Crash
            return result


class ProcessStore:
    """The store as one process reaches it."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def __getattr__(self, name: str) -> Callable[..., Any]:
        world, process = self._world, self._process
        method = getattr(world.store_of(process), name)

        def call(*args: Any, **more: Any) -> Any:
            if process.dead:
                raise Crash
            world.actor = (process, name)
            try:
                return method(*args, **more)
            finally:
                world.actor = None

        return call
