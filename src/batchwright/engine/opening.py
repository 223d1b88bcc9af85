"""A worker's vendors on their way: a desk sends nothing until its vendor is open, and says why if it cannot be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from batchwright.core.errors import VendorUnavailable

if TYPE_CHECKING:
    from batchwright.engine.desk import LaneDesk
    from batchwright.engine.worker import Worker


class Opening:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._tasks: set[asyncio.Task[None]] = set()
        self.lacking: dict[str, str] = {}
        """By lane: what this process lacks to serve it (a key's variable)."""

    @property
    def note(self) -> str:
        """What is lacking, for people."""
        return "; ".join(sorted(self.lacking.values()))

    def open(self, desk: LaneDesk) -> None:
        """Begins to open a desk's vendor; whoever waits there goes on once it is open, or is refused."""
        worker = self._worker
        desk.lacks = worker.parts.vendors.lacks(desk.destination)
        if desk.lacks:
            if not worker.only_batch:
                worker.parts.report(f"{desk.lacks}; its rows are left to workers that can send there")
            self.lacking[desk.name] = desk.lacks
            worker.wake_now()
            return
        desk.opening = True
        task = asyncio.get_running_loop().create_task(self._opened(desk), name=f"open {desk.key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def open_anew(self) -> None:
        """Keys, limits or addresses may be others than before."""
        self.lacking.clear()
        for desk in list(self._worker.floor.desks.values()):
            if not desk.opening and (desk.vendor is not None or desk.lacks):
                self.open(desk)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _opened(self, desk: LaneDesk) -> None:
        worker = self._worker
        try:
            desk.vendor = await worker.parts.vendors.open(desk.destination, timeout_s=desk.limits.timeout_s)
        except VendorUnavailable as error:
            if worker.only_batch and not any(line.context.route_lanes for line in desk.lines):
                worker.fail(error)
            else:  # its rows wait, or go on to another lane of their route
                desk.lane.pause(worker.parts.clock.now_s(), str(error))
                desk.probing = desk.known_pause = False  # what a probe cleared is to be written again
        except Exception as error:
            worker.fail(error)
        else:
            desk.set_ceiling(worker.settings.concurrency)
        finally:
            desk.opening = False
            worker.heart.shares.look(worker.parts.clock.now_s())
            worker.wake_now()
            if desk.callers:
                worker.sender.pump(desk, worker.parts.clock.now_s())
