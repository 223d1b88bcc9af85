"""A worker's heartbeat: one row in the store is the lease of every segment it holds.

A worker that was marked dead stops at once. One that cannot renew for half a lease sends nothing more until it can: a
takeover waits for the whole lease, so that two workers never send the same rows. The same row tells the others which
lanes it sends to, and with it the limits of a lane are shared (`engine.shares`); what holds lanes back
(`engine.waits`); and how the worker is, for whoever looks on. With its answer comes what people ask of all workers:
lanes that are closed, and that this one is to end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from batchwright.core.errors import BatchwrightError, WorkerGone
from batchwright.core.worker_state import WorkerState
from batchwright.engine.outages import Who
from batchwright.engine.shares import Shares
from batchwright.engine.waits import Waits
from batchwright.ports.fleet import Heard, WorkerRow

if TYPE_CHECKING:
    from batchwright.engine.worker import Worker

RATE_OVER_S = 5.0
"""A worker's rate is that of the last seconds, so many at least."""


class Heart:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._clock = worker.parts.clock
        self._store = worker.parts.store
        self._writer = worker.parts.beats
        self._early = asyncio.Event()
        self.waits = Waits(worker)
        self.shares = Shares(worker)
        self._counted = (0.0, 0)
        """When answers were counted last (loop seconds), and how many there had been."""
        self._rows_per_minute = 0.0

    async def begin(self, *, host: str, pid: int) -> None:
        """Registers the worker: from here on it has a lease."""
        asked_s = self._clock.now_s()
        identity = self._worker.identity
        state = self._state(asked_s)
        await self._writer.do(
            lambda: self._store.register_worker(identity, host=host, pid=pid, now_ms=self._clock.now_ms(), state=state)
        )
        self._confirm(asked_s)
        self._counted = (asked_s, self._worker.sender.answered)
        pauses = await self._writer.do(self._store.lane_pauses)
        self._worker.floor.lane_pauses = {pause.lane: pause for pause in pauses}
        self._worker.floor.quarantines = tuple(await self._writer.do(self._store.quarantines))
        # A person who gives a batch's own command again wants it tried, whatever was found before.
        self._worker.floor.honours_pauses = not self._worker.only_batch

    def beat_early(self) -> None:
        """Others should know soon: a lane with a limit is sent to, or one waits for something else than before."""
        self._early.set()

    async def run(self) -> None:
        """Beats until it is cancelled or the worker was taken for dead."""
        patience_s = self._worker.settings.heartbeat_s
        while True:
            try:
                async with asyncio.timeout(patience_s):
                    await self._early.wait()
            except TimeoutError:
                pass
            self._early.clear()
            asked_s = self._clock.now_s()
            try:
                heard = await self._beat()
            except BatchwrightError as error:
                parts = self._worker.parts
                if line := parts.outages.met(Who.HEARTBEAT, error, f"heartbeat failed: {error}", now_s=asked_s):
                    parts.report(line)
                # Sooner than else: where a database comes back, whoever is late is taken for dead.
                patience_s = self._worker.settings.heartbeat_s / 5
                continue
            if over := self._worker.parts.outages.passed(Who.HEARTBEAT, self._clock.now_s()):
                self._worker.parts.report(f"{over}; the worker goes on")
            if heard is None:
                self._worker.fail(
                    WorkerGone("this worker was taken for dead and replaced; another goes on with its rows")
                )
                return
            self._confirm(asked_s)
            self.shares.granted(heard.shares_ppm, asked_s)
            patience_s = min(self._worker.settings.heartbeat_s, self.shares.beat_within_s)
            self.obey(heard)
            self._worker.wake()

    async def _beat(self) -> Heard | None:
        worker = self._worker
        others: list[WorkerRow] = []
        if self.shares.limited:
            others = await self._writer.do(self._store.live_workers)
        now_s = self._clock.now_s()
        for desk in worker.floor.desks.values():
            desk.lane.tick(now_s)
        uses = self.shares.prepare(now_s, (row for row in others if row.worker != worker.identity))
        note, waits, state = worker.note, self.waits.take(), self._state(now_s)
        return await self._writer.do(
            lambda: self._store.heartbeat(
                worker.identity, self._clock.now_ms(), note=note, uses=uses, waits=waits, state=state
            )
        )

    def obey(self, heard: Heard) -> None:
        """What people ask of the workers."""
        worker = self._worker
        if heard.quarantines != worker.floor.quarantines:
            worker.closing.quarantined(heard.quarantines)
        if worker.standing_by and not heard.draining:
            worker.work_again()
        elif heard.draining and not worker.only_batch and not worker.standing_by:
            worker.drain()

    def _state(self, now_s: float) -> WorkerState:
        worker = self._worker
        counted_s, answered = self._counted
        if now_s - counted_s >= RATE_OVER_S:
            self._rows_per_minute = (worker.sender.answered - answered) * 60.0 / (now_s - counted_s)
            self._counted = (now_s, worker.sender.answered)
        return WorkerState(
            in_flight=worker.sender.in_flight,
            rows_per_minute=round(self._rows_per_minute, 1),
            checkpoint_ms=worker.landing.landed_ms,
            checkpoint_duration_s=round(worker.landing.lasted_s, 4),
            only_batch=worker.only_batch,
            claims=worker.claims,
            stopping=worker.stopping,
            drained=worker.standing_by,
        )

    def _confirm(self, asked_s: float) -> None:
        """The lease was renewed, not before that moment. Half of it may be used: a takeover waits for the whole."""
        self._worker.sender.send_until_s = asked_s + self._worker.settings.lease_s / 2
