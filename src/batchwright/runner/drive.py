"""A durable batch, worked on and watched until it ends, pauses, or a person interrupts.

What is shown and decided here is the store's truth, asked for a few times a second; workers are only told to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from batchwright.core.batch_state import BatchState
from batchwright.core.errors import AWAY_MAX_S, NotNow, StoreAway
from batchwright.ports.batches import BatchStatus
from batchwright.ports.observer import WorkerView
from batchwright.runner import commands
from batchwright.runner.meter import Meter
from batchwright.runner.report import NOTHING_DONE, Timing
from batchwright.runner.request import Pace
from batchwright.runner.seams import HeldElsewhere, HeldLock, RunningWorkers, Seams, Snapshot
from batchwright.runner.standing import is_at_service

OWN, WATCHED = "this command", "while it was watched"
REFRESH_S = 0.2
"""Between two looks at the store: the end is noticed within this, and a look costs well under a millisecond."""
LOOKS_WITHOUT_WORKER = 10
"""Looks at an open batch that nobody works on after our workers ended, before that counts as a fault of ours."""
LOCK_EVERY_LOOKS = 5
"""A watcher asks for the other run's lock once in so many looks: it is free when that process has died."""


class WorkersEnded(Exception):
    """The workers ended although rows are open and no pause says why: a fault of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """How it was left. Terminal, paused, interrupted, or (`failure`) nothing can be sent now."""

    status: BatchStatus
    timing: Timing
    interrupted: bool = False
    failure: NotNow | None = None


async def drive(batch_id: str, pace: Pace, seams: Seams, *, opened: bool = False) -> Driven:
    """Works on the batch until it is terminal or paused, or until an interrupt. Raises what ended the workers, unless
    it is a NotNow. `opened`: this very command has opened it again, so that one that has ended was done by others."""
    begun = await seams.batches.status(batch_id)
    if begun.terminal:
        others = Timing(wall_s=0.0, rows_ended=0, part=OWN, by_others=True)
        return Driven(status=begun, timing=others if opened else NOTHING_DONE)
    looking = _Looking(batch_id, begun, seams, working=True)
    try:
        running = await seams.workers.start(batch_id, pace)
    except NotNow as failure:
        return looking.left(begun, failure=failure)
    finished = asyncio.create_task(running.wait(), name=f"workers of {batch_id}")
    try:
        return await _until_end(looking, running, finished)
    finally:
        # Whatever happened, a cancelled task included: nothing of ours is sent any more once this returns.
        await asyncio.shield(_end(running, finished))


async def watch(
    batch_id: str, seams: Seams, *, command: Sequence[str] = (), lock_name: str = ""
) -> tuple[Driven, HeldLock | None]:
    """Only looks. With `lock_name`, also asks for that lock: once it is free and the batch still open, returns with it
    held, and the caller goes on with the batch. `command`: the one that looks, for words of how to go on."""
    looking = _Looking(batch_id, await seams.batches.status(batch_id), seams, working=False)
    looks = alone = 0
    while True:
        status = await looking.look(None)
        if status.terminal or status.state is BatchState.PAUSED:
            return looking.left(status), None
        alone = alone + 1 if status.live is False else 0
        if alone == LOOKS_WITHOUT_WORKER:
            resuming = commands.resume(batch_id, command)
            own = f"`{resuming}` goes on with it, and so does `{commands.work(command)}`"
            how = "a worker of that service does once there is one" if is_at_service(status) else own
            seams.display.say(f"Nobody works on {batch_id} now; {how}.")
        if seams.interrupts.count:
            return looking.left(status, interrupted=True), None
        looks += 1
        if lock_name and looks % LOCK_EVERY_LOOKS == 0:
            lock = seams.locks.take(lock_name)
            if not isinstance(lock, HeldElsewhere):
                return looking.left(status), lock
        await _wait_any([seams.interrupts.wait(0)])


class _Looking:
    """The looks at one batch: how it began, how fast it goes."""

    def __init__(self, batch_id: str, begun: BatchStatus, seams: Seams, *, working: bool) -> None:
        self.batch_id, self.seams = batch_id, seams
        self._begun_ended = _ended(begun)
        self._part = (OWN if working else WATCHED) if begun.tally.attempts else ""
        self._meter = Meter(seams.clock.now_s(), self._begun_ended)
        self._last = begun
        self._away_since_s: float | None = None
        """When a look first found the database away; None: the last one was answered."""

    async def look(self, running: RunningWorkers | None, stopping: str | None = None) -> BatchStatus:
        """Asks the store and shows what it says. `stopping`: the workers are told to stop, and why, in a word; None:
        they are not."""
        status = await self._asked()
        now_s = self.seams.clock.now_s()
        self._meter.note(now_s, _ended(status))
        view = running.view() if running is not None else None
        moves = status.state is not BatchState.PAUSED and stopping is None
        self.seams.display.show(
            Snapshot(
                status=status,
                view=view,
                now_ms=self.seams.clock.now_ms(),
                elapsed_s=self._meter.elapsed_s(now_s),
                rows_per_s=self._meter.rows_per_s(),
                eta_s=self._meter.eta_s(status.counts.open) if moves else -1.0,
                stopping=_stopping_text(stopping, view) if stopping is not None else "",
            )
        )
        return status

    async def _asked(self) -> BatchStatus:
        """What the store says; while a database is away, what it said last: the workers wait for it too."""
        try:
            status = await self.seams.batches.status(self.batch_id)
        except StoreAway:
            now_s = self.seams.clock.now_s()
            if self._away_since_s is None:
                self._away_since_s = now_s
            if self.seams.interrupts.count or now_s - self._away_since_s >= AWAY_MAX_S:
                raise
            return self._last
        self._last, self._away_since_s = status, None
        return status

    def left(self, status: BatchStatus, *, interrupted: bool = False, failure: NotNow | None = None) -> Driven:
        timing = Timing(
            wall_s=self._meter.elapsed_s(self.seams.clock.now_s()),
            rows_ended=_ended(status) - self._begun_ended,
            part=self._part,
        )
        return Driven(status=status, timing=timing, interrupted=interrupted, failure=failure)


async def _until_end(looking: _Looking, running: RunningWorkers, finished: asyncio.Task[None]) -> Driven:
    interrupts = looking.seams.interrupts
    looks_alone = 0
    while True:
        status = await looking.look(running)
        if status.terminal:
            return looking.left(status)
        if status.state is BatchState.PAUSED:
            status = await _stop(looking, running, "")
            return looking.left(status, interrupted=bool(interrupts.count))
        if interrupts.count:
            status = await _stop(looking, running, "stopping")
            return looking.left(status, interrupted=True)
        if finished.done():
            failure = finished.exception()
            if isinstance(failure, NotNow):
                return looking.left(status, failure=failure)
            if failure is not None:
                raise failure
            looks_alone = looks_alone + 1 if status.live is False else 0
            if looks_alone > LOOKS_WITHOUT_WORKER:
                raise WorkersEnded(
                    f"the workers of {looking.batch_id} ended although {status.counts.open} rows are open; "
                    "this is a fault of ours. Nothing is lost: the same command goes on"
                )
            await _wait_any([interrupts.wait(0)])
        else:
            await _wait_any([asyncio.shield(finished), interrupts.wait(0)])


def _stopping_text(why: str, view: WorkerView | None) -> str:
    """What is waited for, if anything is."""
    if view is None or not view.in_flight:
        return why
    return ": ".join([*([why] if why else []), "waiting for what is in flight (Ctrl-C stops at once)"])


async def _stop(looking: _Looking, running: RunningWorkers, why: str) -> BatchStatus:
    """Lets what is in flight finish within the workers' grace, shows it, and heeds a further interrupt."""
    interrupts = looking.seams.interrupts
    seen = interrupts.count
    stopping = asyncio.create_task(running.stop(grace=True), name=f"stop of {looking.batch_id}")
    try:
        while not stopping.done() and interrupts.count == seen < 2:
            await _wait_any([asyncio.shield(stopping), interrupts.wait(seen)])
            await looking.look(running, why)
        if not stopping.done():
            await running.stop(grace=False)
        await stopping
    finally:
        stopping.cancel()
    return await looking.look(running)


async def _end(running: RunningWorkers, finished: asyncio.Task[None]) -> None:
    if not finished.done():
        await running.stop(grace=False)
    # Its error, if it has one, was raised or told already, or came after the batch had ended.
    await asyncio.wait({finished})
    if not finished.cancelled():
        finished.exception()


async def _wait_any(awaitables: list[Awaitable[None]]) -> None:
    """Until one of them ends, at most REFRESH_S. Those that do not end are cancelled (shield what must live on)."""
    tasks = {asyncio.ensure_future(awaitable) for awaitable in awaitables}
    try:
        await asyncio.wait(tasks, timeout=REFRESH_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _ended(status: BatchStatus) -> int:
    """Rows that ended by an answer or a failure of their own; those that were closed unsent are no sign of speed."""
    return status.counts.succeeded + status.counts.failed
