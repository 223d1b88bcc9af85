"""`batchwright work`: who hosts the workers on all batches of this machine, until they are told to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from batchwright.assemble.hosting import WorkerOrder, working
from batchwright.assemble.machine import Machine
from batchwright.assemble.seams import seams_here
from batchwright.fabric.hosting import RunningWorker, Say
from batchwright.runner.ended import EndedBatches
from batchwright.runner.progress_text import work_line
from batchwright.runner.seams import Display, Seams
from batchwright.settings import Settings
from batchwright.settings.frozen import freeze
from batchwright.store.open import shown_url

TELL_EVERY_S = 5.0


async def work(settings: Settings, *, until_idle: bool, display: Display) -> int:
    """`batchwright work`: works on every batch of this machine until it is told to end; returns the exit code."""
    async with seams_here(settings, display) as (machine, seams):
        machine.find_price.load()
        async with _hosted(machine, display.say, until_idle=until_idle) as worker:
            ending = asyncio.create_task(_end_on_interrupt(worker, seams), name="interrupts")
            ended = EndedBatches(seams.batches)
            telling = asyncio.create_task(_tell_of_work(worker, ended, machine, display.say), name="telling")
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


@asynccontextmanager
async def _hosted(machine: Machine, say: Say, *, until_idle: bool) -> AsyncIterator[RunningWorker]:
    """The workers where the settings want them: in this process, in several, or on a Ray cluster."""
    settings, hosts = machine.settings, machine.settings.hosts
    if not hosts.processes and not hosts.ray:
        async with working(machine, say, until_idle=until_idle) as worker:
            yield worker
        return
    from batchwright.fabric.processes import ProcessPlan, ProcessWorkers  # of several processes alone

    with ExitStack() as stack:
        if hosts.ray:
            from batchwright.assemble.clusters import ray_host  # of those who have a cluster alone

            host, name = stack.enter_context(ray_host(settings)), "Ray driver process"
            plan = ProcessPlan(build=host, count=1, name=name, until_idle=until_idle, own_group=True)
        else:
            order = WorkerOrder(settings=freeze(settings), sweeps=False)
            plan = ProcessPlan(build=order, count=hosts.processes, until_idle=until_idle)
        workers = ProcessWorkers(plan, clock=machine.clock, say=say)
        try:
            yield workers
        finally:
            await workers.stop(grace=False)


async def _tell_of_work(worker: RunningWorker, ended: EndedBatches, machine: Machine, say: Say) -> None:
    """A line now and then about what the worker does, one when it has nothing to do, and one a batch that ended."""
    clock, database = machine.clock, machine.settings.database
    place = shown_url(database) if database else "this machine"
    say(f"Working on the batches of {place}; Ctrl-C ends. Answers are kept; `batchwright export` writes them.")
    told = ""
    await ended.texts()
    await clock.sleep(TELL_EVERY_S)  # before that "no rows to take" would only mean that none was looked for yet
    while (view := worker.view()) is not None:
        for text in await ended.texts():
            say(text)
        text = work_line(view)
        if text != told:
            say(text)
            told = text
        await clock.sleep(TELL_EVERY_S)


async def _end_on_interrupt(worker: RunningWorker, seams: Seams) -> None:
    await seams.interrupts.wait(0)
    seams.display.say("Ending: rows in flight may finish; the same signal again ends it at once.")
    first = asyncio.create_task(worker.stop(grace=True), name="orderly end")
    await seams.interrupts.wait(1)
    await worker.stop(grace=False)
    await first
