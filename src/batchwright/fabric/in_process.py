"""Workers as tasks of the running loop: `run`, and a single `work`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from batchwright.ports.observer import WorkerView


class HostedWorker(Protocol):
    async def run(self) -> None: ...

    def stop(self, *, grace: bool) -> None: ...

    def view(self) -> WorkerView: ...


class LoopWorker:
    """One worker as a task. `held` (its lock) is let go when the task has ended, however it ended."""

    def __init__(self, worker: HostedWorker, held: AbstractContextManager[object], name: str) -> None:
        self._worker = worker
        self._held = held
        self._task = asyncio.create_task(self._host(), name=name)

    async def _host(self) -> None:
        with self._held:
            await self._worker.run()

    async def wait(self) -> None:
        """Returns when it has ended; raises what ended it."""
        await asyncio.shield(self._task)

    async def stop(self, *, grace: bool) -> None:
        """Returns when it has stopped sending, checkpointed and given back; raises nothing (`wait` does)."""
        if not self._task.done():
            self._worker.stop(grace=grace)
            await asyncio.wait([self._task])

    def view(self) -> WorkerView | None:
        return None if self._task.done() else self._worker.view()


Host = Callable[[], tuple[HostedWorker, AbstractContextManager[object], str]]
"""Builds a worker on the running loop: (worker, its lock, its name)."""


def host(build: Host) -> LoopWorker:
    worker, held, name = build()
    return LoopWorker(worker, held, name)
