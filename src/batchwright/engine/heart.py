"""A worker's heartbeat: one row in the store is the lease of every segment it holds.

A worker that was marked dead stops at once. One that cannot renew for half a lease sends nothing more until it can: a
takeover waits for the whole lease, so that two workers never send the same rows. The same row tells the others which
lanes it sends to, and with it a limit that a person set is divided by the live workers of a lane; and what holds lanes
back (`engine.waits`), for whoever looks on at a batch.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from batchwright.core.errors import BatchwrightError, WorkerGone
from batchwright.engine.waits import Waits

if TYPE_CHECKING:
    from batchwright.engine.desk import LaneDesk
    from batchwright.engine.worker import Worker

CALLED_LATELY_S = 120.0
"""A lane that had a single call so lately counts as one that this worker sends to: calls come now and then."""


class Heart:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._clock = worker.parts.clock
        self._store = worker.parts.store
        self._writer = worker.parts.writer
        self._early = asyncio.Event()
        self.waits = Waits(worker)

    async def begin(self, *, host: str, pid: int) -> None:
        """Registers the worker: from here on it has a lease."""
        asked_s = self._clock.now_s()
        identity = self._worker.identity
        await self._writer.do(
            lambda: self._store.register_worker(identity, host=host, pid=pid, now_ms=self._clock.now_ms())
        )
        self._confirm(asked_s)
        pauses = await self._writer.do(self._store.lane_pauses)
        self._worker.floor.lane_pauses = {pause.lane: pause for pause in pauses}
        # A person who gives a batch's own command again wants it tried, whatever was found before.
        self._worker.floor.honours_pauses = not self._worker.only_batch

    def beat_early(self) -> None:
        """A lane with a limit was opened, or one waits for something else than before: the others should know soon."""
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
                alive = await self._beat()
            except BatchwrightError as error:
                self._worker.parts.report(f"heartbeat failed: {error}")
                # Sooner than else: where a database comes back, whoever is late is taken for dead.
                patience_s = self._worker.settings.heartbeat_s / 5
                continue
            patience_s = self._worker.settings.heartbeat_s
            if not alive:
                self._worker.fail(
                    WorkerGone("this worker was taken for dead and replaced; another goes on with its rows")
                )
                return
            self._confirm(asked_s)
            self._worker.wake()

    async def _beat(self) -> bool:
        worker = self._worker
        note, waits = worker.opening.note, self.waits.take()
        called_since_s = self._clock.now_s() - CALLED_LATELY_S
        lanes = frozenset(
            text for text, desk in worker.floor.desks.items() if desk.lines or desk.called_s > called_since_s
        )

        def beat() -> tuple[bool, dict[str, int]]:
            now_ms = self._clock.now_ms()
            alive = self._store.heartbeat(worker.identity, now_ms, note=note, lanes=lanes, waits=waits)
            return alive, self._sharers(lanes)

        alive, sharers = await self._writer.do(beat)
        now_s = self._clock.now_s()
        for text, desk in worker.floor.desks.items():
            desk.lane.tick(now_s)
            divide(desk, sharers.get(text, 1), now_s)
        return alive

    def _sharers(self, lanes: frozenset[str]) -> dict[str, int]:
        """How many live workers, this one among them, send to each of these lanes."""
        others = [row for row in self._store.live_workers() if row.worker != self._worker.identity]
        return {lane: 1 + sum(lane in row.lanes for row in others) for lane in lanes}

    def _confirm(self, asked_s: float) -> None:
        """The lease was renewed, not before that moment. Half of it may be used: a takeover waits for the whole."""
        self._worker.sender.send_until_s = asked_s + self._worker.settings.lease_s / 2


def divide(desk: LaneDesk, sharers: int, now_s: float) -> None:
    """A worker's part of the limits that a person set for the lane; what a vendor states is for each as it stands."""
    limits = desk.limits
    if (limits.rpm or limits.tpm) and sharers != desk.sharers:
        desk.sharers = sharers
        desk.lane.set_rates(now_s, requests_per_minute=limits.rpm / sharers, tokens_per_minute=limits.tpm / sharers)
