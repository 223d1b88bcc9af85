"""Workers as tasks of the running loop: `run`, and a single `work`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from batchwright.ports.observer import WorkerView


class HostedWorker(Protocol):
    async def run(self) -> None: ...

    def stop(self, *, grace: bool) -> None: ...

    def look_again(self) -> None: ...

    def look_at_flags(self) -> None: ...

    def view(self) -> WorkerView: ...

    def reload(self, vendor_limits: Mapping[str, Any]) -> None: ...


class LoopWorker:
    """One worker as a task. `let_go` (of its lock) is called when the task has ended, however it ended."""

    def __init__(self, worker: HostedWorker, let_go: Callable[[], None], name: str) -> None:
        self._worker = worker
        self._let_go = let_go
        self._task = asyncio.create_task(self._host(), name=name)

    async def _host(self) -> None:
        try:
            await self._worker.run()
        finally:
            self._let_go()

    async def wait(self) -> None:
        """Returns when it has ended; raises what ended it."""
        await asyncio.shield(self._task)

    async def stop(self, *, grace: bool) -> None:
        """Returns when it has stopped sending, checkpointed and given back; raises nothing (`wait` does)."""
        if not self._task.done():
            self._worker.stop(grace=grace)
            await asyncio.wait([self._task])

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
        if not self._task.done():
            self._worker.reload(vendor_limits)

    def view(self) -> WorkerView | None:
        return None if self._task.done() else self._worker.view()
