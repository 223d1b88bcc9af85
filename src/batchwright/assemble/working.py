"""`batchwright work`: a worker on all batches of this machine, until it is told to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from batchwright.assemble.seams import seams_here
from batchwright.assemble.vendors import open_vendors
from batchwright.assemble.workers import start_worker
from batchwright.engine.worker_settings import LaneLimits
from batchwright.fabric.in_process import LoopWorker
from batchwright.fabric.system import SystemClock
from batchwright.runner.ended import EndedBatches
from batchwright.runner.progress_text import work_line
from batchwright.runner.seams import Display, Seams
from batchwright.settings import Settings

TELL_EVERY_S = 5.0


async def work(settings: Settings, *, until_idle: bool, display: Display) -> int:
    """`batchwright work`: works on every batch of this machine until it is told to end; returns the exit code."""
    from batchwright.assemble.tracing import tracing  # of those that stay alone

    async with seams_here(settings, display) as (machine, seams), tracing(settings, display.say) as trace:
        machine.find_price.load()
        async with open_vendors(settings, machine.clock, say=display.say) as vendors:
            asked = LaneLimits()
            worker = start_worker(machine, vendors, say=display.say, asked=asked, until_idle=until_idle, trace=trace)
            ending = asyncio.create_task(_end_on_interrupt(worker, seams), name="interrupts")
            ended = EndedBatches(seams.batches)
            telling = asyncio.create_task(_tell_of_work(worker, ended, machine.clock, display.say), name="telling")
            try:
                await worker.wait()
            finally:
                ending.cancel()
                telling.cancel()
                await worker.stop(grace=False)
            for text in await ended.texts():
                display.say(text)
            if until_idle and not seams.interrupts.count:
                display.say("No batch has rows to send now; that is the end (--until-idle).")
        # Without --until-idle to be told to end is how it ends well, as a service does; a second time it was cut short.
        told = seams.interrupts.count
        return 0 if not told or (told == 1 and not until_idle) else 130


async def _tell_of_work(
    worker: LoopWorker, ended: EndedBatches, clock: SystemClock, say: Callable[[str], None]
) -> None:
    """A line now and then about what the worker does, one when it has nothing to do, and one a batch that ended."""
    say("Working on the batches of this machine; Ctrl-C ends. Answers are kept; `batchwright export` writes them.")
    told = ""
    await ended.texts()
    await clock.sleep(TELL_EVERY_S)  # before that "no rows to send" would only mean that none was looked for yet
    while (view := worker.view()) is not None:
        for text in await ended.texts():
            say(text)
        text = work_line(view)
        if text != told:
            say(text)
            told = text
        await clock.sleep(TELL_EVERY_S)


async def _end_on_interrupt(worker: LoopWorker, seams: Seams) -> None:
    await seams.interrupts.wait(0)
    first = asyncio.create_task(worker.stop(grace=True), name="orderly end")
    await seams.interrupts.wait(1)
    await worker.stop(grace=False)
    await first
