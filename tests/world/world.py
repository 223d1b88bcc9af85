"""One seed, one life: batches, machines, workers, vendors, a user, and everything that goes wrong between them.

All of it runs on one loop in virtual time, in one thread, and draws from one generator: the same seed is the same
life. The auditor looks after every commit; `live` raises what it found.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeVar, cast
from unittest.mock import patch

from batchwright.core import row_map
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.errors import BatchwrightError, CallerError, StoreError
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.worker_id import WorkerId
from batchwright.engine import intake as engine_intake
from batchwright.engine.batches import views_of
from batchwright.engine.bounds import with_worst_cases
from batchwright.engine.intake import take_in
from batchwright.engine.sweeper import SWEEP_EVERY_S, Sweeper, run_lock_name, worker_lock_name
from batchwright.engine.worker import Worker, WorkerParts
from batchwright.engine.worker_settings import WorkerSettings
from batchwright.ports.store import NewBatch, Store
from batchwright.store import rounds
from batchwright.store.open import open_store
from world.auditor import Auditor, Broken, Law
from world.coverage import CRASHES, Coverage, CrashPoint, Fault
from world.plan import START_S, BatchPlan, Plan, SeatPlan, make_plan
from world.vendors import House, HouseVendors, find_price
from world.virtual_loop import VirtualLoop, WorldStuck

T = TypeVar("T")
EPOCH_MS = 1_767_225_600_000
CALM_LIMIT_S = 1_200.0
"""So long after the trouble ends every batch must have ended."""
TURNS_MAX = 1_500_000
"""Of the loop; a life that spins without time going on is broken too."""


class Crash(BaseException):
    """A process dies here. No part of the product may catch it."""


class Process:
    """What ends at once: a worker's, a sweeper's or a user's process."""

    def __init__(self, world: World, host: str, worker: WorkerId) -> None:
        self.world = world
        self.host = host
        self.identity = worker
        self.worker = (worker.name, worker.incarnation)
        self.dead = False
        self.lacks: frozenset[str] = frozenset()
        self.task: asyncio.Task[None] | None = None
        self.locks: set[str] = set()
        self.store = cast(Store, ProcessStore(world, self))
        self.writer = InlineWriter(world, self)
        self.clock = HostClock(world, host)

    def lock(self, name: str) -> None:
        self.locks.add(name)
        self.world.locks.add(name)

    def unlock(self) -> None:
        self.world.locks -= self.locks
        self.locks = set()

    def kill(self) -> None:
        """kill -9: nothing of it runs any more."""
        if self.dead:
            return
        self.dead = True
        self.unlock()
        self.world.auditor.crashed.add(self.worker)
        if self.task is not None:
            self.task.cancel()

    def crash(self) -> None:
        self.kill()
        raise Crash

    def step(self, name: str) -> None:
        """A named step of the engine."""
        if self.dead:
            raise Crash
        if self.world.strikes(CrashPoint.STEP, name):
            self.crash()


class HostClock:
    def __init__(self, world: World, host: str) -> None:
        self._world = world
        self._host = host

    def now_s(self) -> float:
        return self._world.loop.time()

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._world.loop.time() * 1000) + self._world.skew_ms.get(self._host, 0)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class WorldLocks:
    def __init__(self, world: World) -> None:
        self._world = world

    def is_free(self, name: str) -> bool:
        return name not in self._world.locks


class InlineWriter:
    """The writer of one process: runs the work on the loop, after and before seeded delays."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._lock = asyncio.Lock()

    async def do(self, work: Callable[[], T]) -> T:
        world = self._world
        async with self._lock:
            before_s, after_s = world.commit_delays()
            await asyncio.sleep(before_s)
            result = work()
            await asyncio.sleep(after_s)
            if self._process.dead:
                raise Crash
            return result


class ProcessStore:
    """The store as one process reaches it."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def __getattr__(self, name: str) -> Callable[..., Any]:
        world, process = self._world, self._process
        method = getattr(world.store, name)

        def call(*args: Any, **more: Any) -> Any:
            if process.dead:
                raise Crash
            world.actor = (process, name)
            try:
                return method(*args, **more)
            finally:
                world.actor = None

        return call


class World:
    def __init__(self, seed: int, coverage: Coverage | None = None) -> None:
        self.plan: Plan = make_plan(seed)
        self.chance = Random(seed * 7_919 + 1)
        self.coverage = coverage if coverage is not None else Coverage()
        self.loop = VirtualLoop()
        self.loop.set_time(START_S)
        self.store = open_store(":memory:")
        self._connections = self.store._connections  # type: ignore[attr-defined]
        self._hook_commits()
        driver = self._connections._driver()
        self.auditor = Auditor(driver.cursor(), self.coverage)
        if not self.plan.jumps:
            self.auditor.patience_ms = int(20_000 + 6_000 * self.plan.lease_s)
        self.actor: tuple[Process, str] | None = None
        self.locks: set[str] = set()
        self.skew_ms: dict[str, int] = {}
        self.houses = {
            name: House(name, self.plan.rates, self.plan.periods[name], self.plan.latency_s) for name in ("north", "south")
        }
        self.always_faulty = False
        self.no_usage_share = self.plan.no_usage
        self.unavailable_share = self.plan.unavailable
        self.living: dict[SeatPlan, tuple[Process, Worker]] = {}
        self.incarnations = 0
        self.submitted: set[str] = set()
        self.retries_left: dict[str, int] = {}
        self.favourite_left = 2 if self.plan.favourite else 0
        self.closing_down = False
        self.reports: list[str] = []

    @property
    def troubled(self) -> bool:
        return self.loop.time() < START_S + self.plan.trouble_until_s

    # ------------------------------------------------------------------------------------------------- transactions

    def _hook_commits(self) -> None:
        """Every transaction of the store passes here: it may fail, its process may die, and the auditor looks."""
        original = self._connections.write

        @contextmanager
        def write() -> Iterator[Any]:
            actor = self.actor
            fate = self._fate(actor)
            with original() as connection:
                yield connection
                if fate is CrashPoint.BEFORE_COMMIT and actor is not None:
                    actor[0].crash()
                if fate is CrashPoint.ERROR_BEFORE:
                    raise StoreError("the disk is full (simulated)")
            process, call = actor if actor is not None else (None, "")
            self.auditor.committed(process.worker if process is not None else ("", ""), call)
            self._note_superseded(actor)
            if self.auditor.broken is not None:
                self.loop.stop_soon()
            if fate is CrashPoint.AFTER_COMMIT and actor is not None:
                actor[0].crash()
            if fate is CrashPoint.ERROR_AFTER:
                raise StoreError("the connection was lost (simulated)")

        self._connections.write = write
        self._connections.read = original

    def _fate(self, actor: tuple[Process, str] | None) -> CrashPoint | None:
        if actor is None or not self.troubled:
            return None
        name = actor[1]
        points = [CrashPoint.BEFORE_COMMIT, CrashPoint.AFTER_COMMIT]
        if name == "checkpoint":
            points += [CrashPoint.ERROR_BEFORE, CrashPoint.ERROR_AFTER]
        return next((point for point in points if self.strikes(point, name)), None)

    def strikes(self, point: CrashPoint, name: str) -> bool:
        """Whether this crash point happens now."""
        if not self.troubled:
            return False
        full = f"{point.value}: {name}"
        rate = self.plan.crash_rate / 4
        if full == self.plan.favourite and self.favourite_left:
            rate = 0.5
        if not rate or self.chance.random() >= rate:
            return False
        if full == self.plan.favourite:
            self.favourite_left -= 1
        if full in CRASHES:
            self.coverage.hit(full)
        return True

    def _note_superseded(self, actor: tuple[Process, str] | None) -> None:
        """Tells the auditor of workers that lose their leases without being able to know: a newer incarnation of the
        name, or another machine's clock that jumped."""
        if actor is None:
            return
        process, call = actor
        if call == "register_worker":
            for other, _ in self.living.values():
                if other.identity.name == process.identity.name and other is not process:
                    self.auditor.superseded.add(other.worker)
        elif call == "mark_dead" and self.plan.jumps:
            for other, _ in self.living.values():
                self.auditor.superseded.add(other.worker) if self._is_marked_dead(other) else None

    def _is_marked_dead(self, process: Process) -> bool:
        row = self._connections._driver().cursor().execute(
            "SELECT dead FROM worker WHERE name = ? AND incarnation = ?", process.worker
        ).fetchone()
        return bool(row and row[0])

    def commit_delays(self) -> tuple[float, float]:
        """Seconds before and after a transaction."""
        chance = self.chance
        delay_s = self.plan.commit_s * chance.random()
        if self.troubled and self.plan.stalls and chance.random() < self.plan.stalls:
            self.coverage.hit(Fault.STALL)
            delay_s = self.plan.lease_s * (0.6 + 2 * chance.random())
        elif delay_s > 0.2:
            self.coverage.hit(Fault.SLOW_COMMIT)
        return (delay_s, 0.0) if chance.random() < 0.5 else (0.0, delay_s)

    # ----------------------------------------------------------------------------------------------------- processes

    def new_process(self, host: str, name: str) -> Process:
        self.incarnations += 1
        return Process(self, host, WorkerId(name, f"{self.incarnations:08x}"))

    async def _seat(self, seat: SeatPlan, later_s: float = 0.0) -> None:
        """Starts a worker, again whenever it ended, until the world closes down."""
        await asyncio.sleep(later_s)
        while not self.closing_down:
            name = f"{seat.name}-{self.incarnations}" if seat.fresh_names else seat.name
            process = self.new_process(seat.host, name)
            process.lacks = seat.lacks if self.troubled else frozenset()
            process.lock(worker_lock_name(process.identity))
            await self._run_worker(seat, process, self._only_batch(seat))
            await asyncio.sleep(self.chance.choice((0.1, 1.0, 5.0, self.plan.lease_s * 1.5)))

    def _only_batch(self, seat: SeatPlan) -> str:
        """Of a seat for one batch a time, as `run` has it: which."""
        going = [batch for batch in sorted(self.submitted) if self.auditor.batches[batch].state != "terminal"]
        return self.chance.choice(going) if seat.one_batch and going else ""

    async def _run_worker(self, seat: SeatPlan, process: Process, only_batch: str) -> None:
        worker = Worker(
            WorkerParts(
                store=process.store,
                writer=process.writer,
                vendors=HouseVendors(self, process),
                find_price=find_price,
                clock=process.clock,
                chance=cast(Any, self.chance),
                day_of=lambda ms: datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d"),
                report=self.reports.append,
                step=process.step,
            ),
            identity=process.identity,
            settings=WorkerSettings(
                lease_s=self.plan.lease_s,
                heartbeat_s=self.plan.lease_s / 6,
                grace_s=6.0,
                deadline_grace_s=2.0,
                checkpoint_s=self.plan.checkpoint_s,
                idle_poll_s=2.0,
                wake_poll_s=2.0,
                lane_probe_s=20.0,
                concurrency_start=4,
                concurrency=self.plan.concurrency,
            ),
            host=process.host,
            only_batch=only_batch,
            until_idle=seat.until_idle,
        )
        process.task = self.loop.create_task(self._life(worker), name=f"worker {process.identity}")
        self.living[seat] = (process, worker)
        try:
            await asyncio.wait([process.task])
        finally:
            process.unlock()
            if self.living.get(seat, (None,))[0] is process:
                del self.living[seat]
            process.dead = True

    async def _life(self, worker: Worker) -> None:
        try:
            await worker.run()
        except (BatchwrightError, Crash) as error:
            self.auditor.crashed.add((worker.identity.name, worker.identity.incarnation))
            self.reports.append(f"{worker.identity} ended: {error!r}")
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """An exception nobody foresaw: a bug, of the product or of this world."""
        if self._failed is None:
            self._failed = error
        self.loop.stop_soon()

    _failed: BaseException | None = None

    async def _twin(self, at_s: float) -> None:
        """A second process with the name of a living one."""
        await asyncio.sleep(at_s)
        for seat, (process, _) in list(self.living.items()):
            if not seat.fresh_names and not process.dead:
                self.coverage.hit(Fault.SECOND_INCARNATION)
                process = self.new_process(seat.host, seat.name)
                process.lock(worker_lock_name(process.identity))
                await self._run_worker(SeatPlan(seat.name, seat.host), process, "")
                return

    async def _kill(self, at_s: float) -> None:
        await asyncio.sleep(at_s)
        victims = [process for process, _ in self.living.values() if not process.dead]
        if victims:
            self.coverage.hit(CrashPoint.ANY_MOMENT.value)
            self.chance.choice(victims).kill()

    async def _jump(self, at_s: float, host: str, by_ms: int) -> None:
        await asyncio.sleep(at_s)
        self.coverage.hit(Fault.CLOCK_FORWARD if by_ms > 0 else Fault.CLOCK_BACK)
        self.skew_ms[host] = self.skew_ms.get(host, 0) + by_ms

    async def _sweeper(self, host: str) -> None:
        while True:
            process = self.new_process(host, f"sweeper-{host}")
            sweeper = Sweeper(
                process.store,
                owner=process.identity,
                locks=WorldLocks(self),
                host=host,
                lease_ms=int(self.plan.lease_s * 1000),
            )
            while not process.dead:
                await asyncio.sleep(SWEEP_EVERY_S)
                try:
                    await process.writer.do(lambda s=sweeper, p=process: s.sweep(p.clock.now_ms()))  # type: ignore[misc]
                except (Crash, StoreError):
                    process.kill()
                except BaseException as error:
                    if not isinstance(error, asyncio.CancelledError):
                        self.fail(error)
                    raise

    # ------------------------------------------------------------------------------------------------------ the user

    async def _as_user(self, act: Callable[[Process], T], host: str = "h1") -> T:
        """Runs `act` in a process of its own; if that dies, in another, as a person would."""
        while True:
            process = self.new_process(host, "user")
            try:
                return await process.writer.do(lambda p=process: act(p))  # type: ignore[misc]
            except Crash:
                await asyncio.sleep(1.0)
            finally:
                process.unlock()

    async def _submit(self, batch: BatchPlan) -> None:
        await asyncio.sleep(batch.submit_at_s)
        tries = iter(range(100))

        def submit(process: Process) -> str:
            for found in process.store.find_batches(prefix=batch.tag):
                if not found.facts.accepting:
                    return found.batch_id  # it had landed
                if self.chance.random() < 0.5:
                    process.store.drop_batch(found.batch_id)  # or else the sweeper does
            batch_id = f"{batch.tag}{next(tries):02}"
            self.auditor.max_attempts[batch_id] = batch.spec.max_attempts
            process.lock(run_lock_name(batch_id))
            now_ms = process.clock.now_ms()
            new = NewBatch(
                batch_id=batch_id,
                account="local",
                spec=batch.spec,
                created_at_ms=now_ms,
                deadline_ms=now_ms + int(batch.deadline_s * 1000) if batch.deadline_s else 0,
                owner=process.identity,
            )
            take_in(process.store, new, with_worst_cases(batch.chunks(batch_id), find_price), clock=process.clock)
            return batch_id

        batch_id = await self._as_user(submit)
        self.retries_left[batch_id] = batch.retries
        self.submitted.add(batch_id)

    async def _act(self, at_s: float, act: Fault) -> None:
        await asyncio.sleep(at_s)
        if act in (Fault.STOP_GRACE, Fault.STOP_NOW):
            for process, worker in list(self.living.values())[:1]:
                if not process.dead:
                    self.coverage.hit(act)
                    worker.stop(grace=act is Fault.STOP_GRACE)
            return
        if not self.submitted:
            return
        batch_id = self.chance.choice(sorted(self.submitted))

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
                    cap = int(found.budget_taken_picousd * (0.5 + 2 * self.chance.random()))
                    if cap < found.budget_taken_picousd:
                        self.auditor.soft.add(batch_id)
                    store.set_cap(batch_id, cap, soft=False)
            except CallerError:
                return
            self.coverage.hit(act)

        await self._as_user(do)

    async def _janitor(self) -> None:
        """Retries what has settled and, once the trouble is over, clears whatever holds a batch up."""
        while True:
            await asyncio.sleep(4.0)
            for batch_id in sorted(self.submitted):
                await self._tend(batch_id)
            if not self.troubled:
                for process, worker in self.living.values():
                    if worker.lacking:
                        worker.stop(grace=True)  # and comes back with the key
            if len(self.submitted) == len(self.plan.batches) and not self.troubled and self._all_over():
                return

    def _all_over(self) -> bool:
        return all(
            self.auditor.batches[batch].state == "terminal" and not self.retries_left[batch] for batch in self.submitted
        )

    async def _tend(self, batch_id: str) -> None:
        found = self.store.get_batch(batch_id)
        for pause in found.pauses:
            fault = {PauseCause.GATE: Fault.GATE_SHUT, PauseCause.BUDGET: Fault.BUDGET_SPENT}.get(pause.cause)
            if pause.cause is PauseCause.LANE:
                fault = Fault.LANE_PAUSED
            if fault is not None:
                self.coverage.hit(fault)
        if found.facts.expired:
            self.coverage.hit(Fault.DEADLINE)
        if any(byte == row_map.KIND_BYTES[FailureKind.INVALID_ROW] for byte in found.tally.counts):
            self.coverage.hit(Fault.INVALID_ROW)
        if found.facts.settled or found.facts.reopening:
            if self.retries_left[batch_id] or found.facts.reopening:
                await self._retry(batch_id)
        elif found.pauses and (not self.troubled or self.chance.random() < 0.2):
            await self._clear(batch_id)

    async def _retry(self, batch_id: str) -> None:
        chance = self.chance
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
                return process.store.reopen(batch_id, chosen, now_ms, deadline_ms).rows
            except CallerError:
                return 0  # the first try had landed, and the round runs

        self.retries_left[batch_id] = max(0, self.retries_left[batch_id] - 1)
        if await self._as_user(retry):
            self.coverage.hit(way)

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

    # ---------------------------------------------------------------------------------------------------------- life

    async def _whole(self) -> None:
        plan = self.plan
        tasks = [
            *(self._seat(seat, self.chance.random()) for seat in plan.seats),
            *(self._sweeper(host) for host in plan.hosts),
            *(self._submit(batch) for batch in plan.batches),
            *(self._act(at_s, act) for at_s, act in plan.user),
            *(self._kill(at_s) for at_s in plan.kills),
            *(self._jump(*jump) for jump in plan.jumps),
            *(self._twin(at_s) for at_s in plan.twins),
        ]
        background = [self.loop.create_task(task) for task in tasks]
        for task in background:
            task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(plan.trouble_until_s + CALM_LIMIT_S):
                await self._janitor()
        except TimeoutError:
            states = {batch: mirror.state for batch, mirror in self.auditor.batches.items()}
            raise Broken(Law.ENDS, f"{CALM_LIMIT_S:.0f} calm seconds were not enough: {states}") from None
        self.closing_down = True
        async with asyncio.timeout(600.0):
            while self.living:
                for _, worker in list(self.living.values()):
                    worker.stop(grace=False)
                await asyncio.sleep(0.5)
        await asyncio.sleep(3 * plan.lease_s)  # whoever died is buried
        for task in background:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def live(self) -> None:
        """The whole life. Raises Broken, or whatever escaped from the product."""
        plan = self.plan
        self.loop.set_exception_handler(self._unhandled)
        with (
            patch.object(engine_intake, "SEGMENT_ROWS", plan.segment_rows),
            patch.object(engine_intake, "WRITE_BYTES", plan.write_bytes),
            patch.object(rounds, "STEP", plan.reopen_step),
        ):
            try:
                self._run()
            finally:
                self._bury()

    def _run(self) -> None:
        whole = self.loop.create_task(self._whole(), name="world")
        whole.add_done_callback(lambda _: self.loop.stop_soon())
        try:
            self.loop.run_until_stopped(TURNS_MAX)
        except WorldStuck:
            raise Broken(Law.ENDS, "everybody waits for what will never come") from None
        if self.auditor.broken is not None:
            raise self.auditor.broken
        if self._failed is not None:
            raise self._failed
        if not whole.done():
            raise Broken(Law.ENDS, f"{TURNS_MAX:,} turns of the loop were not enough: somebody spins")
        whole.result()
        self.auditor.finish(calm=not (self.auditor.crashed or self.auditor.superseded))
        for batch in sorted(self.submitted):
            rows = [
                (view.request_index, view.byte, view.record.cost_picousd, view.record.body)
                if view.record is not None
                else (view.request_index, view.byte, 0, b"")
                for segment in self.store.read_segments(batch, with_input=True)
                for view in views_of(segment, start=0, wanted=None)
            ]
            self.auditor.check_read(batch, rows)
            if wrong := self.store.check(batch):
                raise Broken(Law.OWN_CHECK, f"{batch}: {'; '.join(wrong)}")

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, Crash):
            self.fail(error)

    def _bury(self) -> None:
        self.loop.set_exception_handler(lambda *_: None)
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.store.close()
        self.loop.bury()


def live(seed: int, coverage: Coverage | None = None) -> World:
    """Lives one seed to its end; raises what the auditor found."""
    world = World(seed, coverage)
    world.live()
    return world


def collect(seed: int) -> None:
    """Worlds are full of cycles; collected now and then, and what was there before them is not looked at again."""
    if not gc.get_freeze_count():
        gc.freeze()
        gc.disable()
    if seed % 10 == 0:
        gc.collect()
