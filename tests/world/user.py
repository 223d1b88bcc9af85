"""The user: submits, cancels, pauses, resumes, retries, and in the end clears whatever holds a batch up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from batchwright.core import row_map
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.errors import CallerError, StoreError
from batchwright.core.failures import FailureKind, Flag
from batchwright.engine.bounds import LanePrices, with_worst_cases
from batchwright.engine.intake import take_in
from batchwright.engine.sweeper import run_lock_name
from batchwright.ports.store import NewBatch
from world.coverage import Fault
from world.plan import BatchPlan
from world.processes import Crash, Process
from world.vendors import find_price

if TYPE_CHECKING:
    from world.world import World

T = TypeVar("T")


class User:
    """Each act is a process of its own: one that dies is done again, as a person would."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.submitted: set[str] = set()
        self._retries_left: dict[str, int] = {}

    async def _as_user(self, act: Callable[[Process], T], host: str = "h1") -> T:
        """Runs `act` in a process of its own; if that dies, in another, as a person would."""
        while True:
            process = self._world.new_process(host, "user")
            try:
                return await process.writer.do(lambda p=process: act(p))  # type: ignore[misc]
            except (Crash, StoreError):
                await asyncio.sleep(1.0)
            finally:
                process.unlock()

    async def submit(self, batch: BatchPlan) -> None:
        await asyncio.sleep(batch.submit_at_s)
        tries = iter(range(100))

        def submit(process: Process) -> str:
            for found in process.store.find_batches(prefix=batch.tag):
                if not found.facts.accepting:
                    return found.batch_id  # it had landed
                if self._world.chance.random() < 0.5:
                    process.store.drop_batch(found.batch_id)  # or else the sweeper does
            batch_id = f"{batch.tag}{next(tries):02}"
            self._world.auditor.max_attempts[batch_id] = batch.spec.max_attempts
            self._world.auditor.ways[batch_id] = batch.ways()
            self._world.auditor.repeats[batch_id] = batch.repeats
            process.lock(run_lock_name(batch_id))
            now_ms = process.clock.now_ms()
            new = NewBatch(
                batch_id=batch_id,
                spec=batch.spec,
                created_at_ms=now_ms,
                deadline_ms=now_ms + int(batch.deadline_s * 1000) if batch.deadline_s else 0,
                owner=process.identity,
            )
            take_in(
                process.store,
                new,
                with_worst_cases(
                    batch.chunks(batch_id), LanePrices(find_price, batch.spec.destinations, batch.spec.routes)
                ),
                clock=process.clock,
            )
            return batch_id

        batch_id = await self._as_user(submit)
        self._retries_left[batch_id] = batch.retries
        self.submitted.add(batch_id)

    async def act(self, at_s: float, act: Fault) -> None:
        await asyncio.sleep(at_s)
        if act in (Fault.STOP_GRACE, Fault.STOP_NOW):
            for process, worker in list(self._world.living.values())[:1]:
                if not process.dead:
                    self._world.coverage.hit(act)
                    worker.stop(grace=act is Fault.STOP_GRACE)
            return
        if not self.submitted:
            return
        batch_id = self._world.chance.choice(sorted(self.submitted))

        def do(process: Process) -> None:
            store, now_ms = process.store, process.clock.now_ms()
            try:
                if act is Fault.CANCEL:
                    store.request_close(batch_id, FailureKind.CANCELLED, now_ms)
                    while store.close_step(batch_id, now_ms, 2):
                        pass
                elif act is Fault.PAUSE:
                    store.pause_batch(batch_id, Pause(cause=PauseCause.USER, reason="a person", since_ms=now_ms))
                elif act is Fault.RESUME:
                    store.resume_batch(batch_id)
                else:
                    found = store.get_batch(batch_id)
                    if found.spec.max_cost_picousd < 0:
                        return
                    cap = int(found.budget_taken_picousd * (0.5 + 2 * self._world.chance.random()))
                    if cap < found.budget_taken_picousd:
                        self._world.auditor.soft.add(batch_id)
                    store.set_cap(batch_id, cap, soft=False)
            except CallerError:
                return
            self._world.coverage.hit(act)

        await self._as_user(do)

    async def janitor(self) -> None:
        """Retries what has settled and, once the trouble is over, clears whatever holds a batch up."""
        while True:
            await asyncio.sleep(4.0)
            for batch_id in sorted(self.submitted):
                with suppress(StoreError):  # next time
                    await self._tend(batch_id)
            if not self._world.troubled:
                for _, worker in self._world.living.values():
                    if worker.opening.lacking:
                        worker.stop(grace=True)  # and comes back with the key
            if len(self.submitted) == len(self._world.plan.batches) and not self._world.troubled and self._all_over():
                return

    def _all_over(self) -> bool:
        return all(
            self._world.auditor.batches[batch].state == "terminal" and not self._retries_left[batch]
            for batch in self.submitted
        )

    async def _tend(self, batch_id: str) -> None:
        found = self._world.store.get_batch(batch_id)
        for pause in found.pauses:
            fault = {PauseCause.GATE: Fault.GATE_SHUT, PauseCause.BUDGET: Fault.BUDGET_SPENT}.get(pause.cause)
            if pause.cause is PauseCause.LANE:
                fault = Fault.LANE_PAUSED
            if fault is not None:
                self._world.coverage.hit(fault)
        if found.facts.expired:
            self._world.coverage.hit(Fault.DEADLINE)
        if any(byte == row_map.KIND_BYTES[FailureKind.INVALID_ROW] for byte in found.tally.counts):
            self._world.coverage.hit(Fault.INVALID_ROW)
        if found.facts.settled or found.facts.reopening:
            if self._retries_left[batch_id] or found.facts.reopening:
                await self._retry(batch_id)
        elif found.pauses and (not self._world.troubled or self._world.chance.random() < 0.2):
            await self._clear(batch_id)

    async def _retry(self, batch_id: str) -> None:
        chance = self._world.chance
        way = chance.choice((Fault.RETRY, Fault.RETRY, Fault.RETRY_KINDS, Fault.RETRY_FLAGS))
        chosen = row_map.FAILURE_BYTES
        if way is Fault.RETRY_KINDS:
            chosen = row_map.select_bytes(chance.sample(list(FailureKind), 8), ())
        elif way is Fault.RETRY_FLAGS:
            chosen = row_map.select_bytes((), chance.sample(list(Flag), 2))
        deadline_s = chance.choice((0.0, 0.0, 6.0))

        def retry(process: Process) -> int:
            now_ms = process.clock.now_ms()
            deadline_ms = now_ms + int(deadline_s * 1000) if deadline_s else 0
            try:
                return process.store.reopen(batch_id, chosen, deadline_ms=deadline_ms).rows
            except CallerError:
                return 0  # the first try had landed, and the round runs

        self._retries_left[batch_id] = max(0, self._retries_left[batch_id] - 1)
        if await self._as_user(retry):
            self._world.coverage.hit(way)

    async def _clear(self, batch_id: str) -> None:
        def clear(process: Process) -> None:
            store = process.store
            try:
                found = store.get_batch(batch_id)
                if any(pause.cause is PauseCause.BUDGET for pause in found.pauses):
                    store.set_cap(batch_id, found.budget_taken_picousd * 2 + 10**9, soft=False)
                for pause in found.pauses:
                    if pause.cause is PauseCause.LANE and pause.lane:
                        store.clear_lane(pause.lane)
                store.resume_batch(batch_id)
            except CallerError:
                pass

        await self._as_user(clear)
