"""By what a process that was just begun builds its worker: an order that it unpickles, and what it has itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass

from batchwright.assemble.machine import Machine, open_machine, open_store_of
from batchwright.assemble.sweeping import swept
from batchwright.assemble.tracing import tracing
from batchwright.assemble.vendors import group_seat, open_vendors
from batchwright.assemble.workers import limits_of_pace, start_worker
from batchwright.fabric.hosting import Say
from batchwright.fabric.in_process import LoopWorker
from batchwright.fabric.system import SystemChance
from batchwright.settings.frozen import FrozenSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOrder:
    """Implements `fabric.hosting.FleetBuilder`."""

    settings: FrozenSettings
    sweeps: bool
    """Whether it sweeps beside its work: where no other process is sure to."""

    @asynccontextmanager
    async def __call__(self, say: Say) -> AsyncIterator[LoopWorker]:
        settings = self.settings.thaw()
        async with open_machine(settings, say=say) as machine, swept(machine, say) if self.sweeps else nullcontext():
            machine.find_price.load()
            async with working(machine, say, stays=True) as worker:
                yield worker

    @contextmanager
    def open_load(self) -> Iterator[Callable[[], int]]:
        store = open_store_of(self.settings.thaw(), SystemChance())
        try:
            yield store.segments_to_do
        finally:
            store.close()


@asynccontextmanager
async def working(
    machine: Machine, say: Say, *, until_idle: bool = False, stays: bool = False
) -> AsyncIterator[LoopWorker]:
    """A worker on all batches, on this loop, with vendors of its own; stopped at the end if it still runs. `stays`:
    somebody watches who would begin it again, so that one that was drained stands by instead."""
    settings = machine.settings
    async with (
        tracing(settings, say) as trace,
        open_vendors(settings, machine.clock, say=say, seat=group_seat(machine)) as vendors,
    ):
        worker = start_worker(
            machine,
            vendors,
            say=say,
            asked=limits_of_pace(settings.pace),
            until_idle=until_idle,
            stays=stays,
            trace=trace,
        )
        try:
            yield worker
        finally:
            await worker.stop(grace=False)
