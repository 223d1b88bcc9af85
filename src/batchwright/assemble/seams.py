"""What the runner is handed: batches, workers and locks of this machine, or of a service."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from batchwright.assemble.machine import Machine, open_machine
from batchwright.assemble.sweeping import swept
from batchwright.assemble.vendors import group_seat, open_vendors
from batchwright.assemble.workers import limits_of_pace, start_worker
from batchwright.fabric.system import SystemClock
from batchwright.ports.object_files import ObjectFiles
from batchwright.runner.interrupts import interrupts_of_process
from batchwright.runner.request import Pace
from batchwright.runner.seams import Display, HeldElsewhere, HeldLock, RunningWorkers, Seams
from batchwright.settings import Settings
from batchwright.store.file_locks import FileLocks


class MachineWorkers:
    """Implements the runner's `Workers`: one worker on this loop, for one batch."""

    def __init__(self, machine: Machine, stack: AsyncExitStack, say: Callable[[str], None]) -> None:
        self._machine = machine
        self._stack = stack
        self._say = say

    async def start(self, batch_id: str, pace: Pace) -> RunningWorkers:
        vendors = await self._stack.enter_async_context(
            open_vendors(self._machine.settings, self._machine.clock, say=self._say, seat=group_seat(self._machine))
        )
        asked = limits_of_pace(pace)
        return start_worker(self._machine, vendors, say=self._say, asked=asked, only_batch=batch_id)


class MachineLocks:
    """Implements the runner's `RunLocks` on the state folder."""

    def __init__(self, locks: FileLocks) -> None:
        self._locks = locks

    def take(self, name: str) -> HeldLock | HeldElsewhere:
        held = self._locks.take(name, holder=f"process {os.getpid()}")
        return held if held is not None else HeldElsewhere(self._locks.holder(name) or "another process")


def object_files(settings: Settings) -> ObjectFiles:
    """Of inputs and outputs that are objects. Raises StoreError where the extra is missing."""
    from batchwright.assemble.objects import stored_files  # only where one is named

    return stored_files(settings)


@asynccontextmanager
async def seams_here(
    settings: Settings, display: Display, *, operator: bool = True
) -> AsyncIterator[tuple[Machine, Seams]]:
    """`operator` False: of this machine's own account alone, so that a run never goes on with another's batch."""
    loop = asyncio.get_running_loop()
    try:
        with interrupts_of_process(loop) as interrupts:
            async with (
                open_machine(settings, say=display.say) as machine,
                AsyncExitStack() as stack,
                swept(machine, display.say),
            ):
                yield (
                    machine,
                    Seams(
                        batches=machine.batches.of_operator(settings.account) if operator else machine.batches,
                        workers=MachineWorkers(machine, stack, display.say),
                        display=display,
                        clock=machine.clock,
                        locks=MachineLocks(machine.locks),
                        interrupts=interrupts,
                        objects=partial(object_files, settings),
                    ),
                )
    finally:
        display.close()


@asynccontextmanager
async def seams_there(settings: Settings, display: Display, *, sends: bool) -> AsyncIterator[Seams]:
    """Those of the service that the settings name, or of this machine. `sends`: with prices, which rows need."""
    if settings.service is None:
        async with seams_here(settings, display) as (machine, seams):
            if sends:
                machine.find_price.load()
            yield seams
        return
    from batchwright.assemble.client import NoLocks, ServiceWorkers, open_service_batches

    try:
        with interrupts_of_process(asyncio.get_running_loop()) as interrupts:
            async with open_service_batches(settings, settings.service, say=display.say) as batches:
                yield Seams(
                    batches=batches,
                    workers=ServiceWorkers(),
                    display=display,
                    clock=SystemClock(),
                    locks=NoLocks(),
                    interrupts=interrupts,
                    objects=partial(object_files, settings),
                )
    finally:
        display.close()
