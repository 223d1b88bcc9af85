"""One seed, one life: batches, machines, workers, vendors, a user, and everything that goes wrong between them.

All of it runs on one loop in virtual time, in one thread, and draws from one generator: the same seed is the same
life. The auditor looks after every commit; `live` raises what it found.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import count
from random import Random
from types import ModuleType
from typing import Any, TypeVar, cast
from unittest.mock import patch

from batchwright.core.errors import BatchwrightError, StoreError
from batchwright.core.worker_id import WorkerId
from batchwright.engine import appetite as engine_appetite
from batchwright.engine import desk as engine_desk
from batchwright.engine import intake as engine_intake
from batchwright.engine import open_segment as engine_open_segment
from batchwright.engine import room as engine_room
from batchwright.engine import sender as engine_sender
from batchwright.engine.batch_views import NO_END, views_of
from batchwright.engine.sweeper import SWEEP_EVERY_S, Sweeper, worker_lock_name
from batchwright.engine.worker import Worker, WorkerParts
from batchwright.engine.worker_settings import WorkerSettings
from batchwright.ports.store import Store
from batchwright.store import blobs, parts, rounds
from batchwright.store import intake as store_intake
from batchwright.store.open import open_store
from world import last_audit
from world.auditor import Auditor
from world.coverage import CRASHES, Coverage, CrashPoint, Fault
from world.databases import Database, StateFile
from world.laws import Broken, Law
from world.plan import START_S, Plan, SeatPlan, make_plan
from world.processes import Crash, Process, WorldLocks
from world.user import User
from world.vendors import House, HouseVendors, find_price
from world.virtual_loop import VirtualLoop, WorldStuck

T = TypeVar("T")
TURNS_MAX = 1_500_000
"""Of the loop; a life that spins without time going on is broken too."""


MIB = 1024 * 1024
BOUNDS: dict[str, tuple[tuple[ModuleType, str], ...]] = {
    "open_segments": ((engine_appetite, "OPEN_SEGMENTS_MAX"), (engine_room, "OPEN_SEGMENTS_MAX")),
    "record_bytes": ((engine_sender, "CHECKPOINT_RECORD_BYTES"),),
    "transaction_bytes": ((blobs, "MAX_BYTES"), (store_intake, "MAX_BYTES")),
    "reserve_min": ((engine_desk, "RESERVE_MIN"),),
    "reserve_max": ((engine_open_segment, "RESERVE_MAX_PER_SEGMENT"),),
    "merge_above": ((parts, "MERGE_ABOVE"),),
}
"""Where the bounds of `Plan.bounds` stand; the others are settings of a worker."""


class World:
    def __init__(self, seed: int, coverage: Coverage | None = None) -> None:
        self.plan: Plan = make_plan(seed)
        self.chance = Random(seed * 7_919 + 1)
        self.coverage = coverage if coverage is not None else Coverage()
        self.loop = VirtualLoop()
        self.loop.set_time(START_S)
        self.store = self._open()
        self._connections = self.store._connections  # type: ignore[attr-defined]
        self._hook_commits()
        self.database = self._database()
        self.auditor = Auditor(self.database, self.coverage)
        if not self.plan.jumps:
            self.auditor.patience_ms = int(20_000 + 6_000 * self.plan.lease_s)
        self.actor: tuple[Process, str] | None = None
        self.locks: set[str] = set()
        self.skew_ms: dict[str, int] = {}
        self.houses = {
            name: House(name, self.plan.rates, self.plan.periods[name], self.plan.latency_s)
            for name in ("north", "south")
        }
        self.always_faulty = False
        self.no_usage_share = self.plan.no_usage
        self.unavailable_share = self.plan.unavailable
        self.living: dict[SeatPlan, tuple[Process, Worker]] = {}
        self.incarnations = 0
        self.user = User(self)
        self.favourite_left = 2 if self.plan.favourite else 0
        self.closing_down = False
        self.reports: list[str] = []

    @property
    def clocks_jump(self) -> bool:
        return bool(self.plan.jumps)

    @property
    def troubled(self) -> bool:
        return self.loop.time() < START_S + self.plan.trouble_until_s

    # ------------------------------------------------------------------------------------------------- transactions

    def _open(self) -> Store:
        return open_store(":memory:")

    def _database(self) -> Database:
        return StateFile(self._connections._driver().cursor())

    def _hook_commits(self) -> None:
        original = self._connections.write
        self._connections.write = self._watched(original)
        self._connections.read = original

    def _watched(
        self, original: Callable[[], AbstractContextManager[Any]]
    ) -> Callable[[], AbstractContextManager[Any]]:
        """Every transaction of the store passes here: it may fail, its process may die, and the auditor looks."""

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
            self._look_at_commit(actor)
            if fate is CrashPoint.AFTER_COMMIT and actor is not None:
                actor[0].crash()
            if fate is CrashPoint.ERROR_AFTER:
                raise StoreError("the connection was lost (simulated)")

        return write

    def _look_at_commit(self, actor: tuple[Process, str] | None) -> None:
        """The auditor does, after each one that has landed."""
        process, call = actor if actor is not None else (None, "")
        self.auditor.committed(process.worker if process is not None else ("", ""), call)
        self._note_superseded(actor)
        if self.auditor.broken is not None:
            self.loop.stop_soon()

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
        elif call == "mark_dead" and self.clocks_jump:
            for other, _ in self.living.values():
                self.auditor.superseded.add(other.worker) if self._is_marked_dead(other) else None

    def _is_marked_dead(self, process: Process) -> bool:
        row = self.database.execute(
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

    def store_of(self, process: Process) -> Store:
        """As that process has opened it."""
        return self.store

    async def work(self, process: Process, work: Callable[[], T]) -> T:
        """What a process's writer does: at one moment, in this kind of world."""
        return work()

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
        going = [batch for batch in sorted(self.user.submitted) if self.auditor.batches[batch].state != "terminal"]
        return self.chance.choice(going) if seat.one_batch and going else ""

    async def _run_worker(self, seat: SeatPlan, process: Process, only_batch: str) -> None:
        worker = Worker(
            WorkerParts(
                store=process.store,
                writer=process.writer,
                beats=process.writer,
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
                input_bytes_max=self.plan.bounds.get("input_bytes", 64 * MIB),
                flight_bytes_max=self.plan.bounds.get("flight_bytes", 64 * MIB),
                answer_bytes_max=self.plan.bounds.get("answer_bytes", 64 * MIB),
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
                twin = self.new_process(seat.host, seat.name)
                twin.lock(worker_lock_name(twin.identity))
                await self._run_worker(SeatPlan(seat.name, seat.host), twin, "")
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
                await asyncio.sleep(SWEEP_EVERY_S if self.troubled else 3 * SWEEP_EVERY_S)
                try:
                    await process.writer.do(lambda s=sweeper, p=process: s.sweep(p.clock.now_ms()))  # type: ignore[misc]
                except (Crash, StoreError):
                    process.kill()
                except BaseException as error:
                    if not isinstance(error, asyncio.CancelledError):
                        self.fail(error)
                    raise

    # ---------------------------------------------------------------------------------------------------------- life

    async def _whole(self) -> None:
        plan = self.plan
        tasks = [
            *(self._seat(seat, self.chance.random()) for seat in plan.seats),
            *(self._sweeper(host) for host in plan.hosts),
            *(self.user.submit(batch) for batch in plan.batches),
            *(self.user.act(at_s, act) for at_s, act in plan.user),
            *(self._kill(at_s) for at_s in plan.kills),
            *(self._jump(*jump) for jump in plan.jumps),
            *(self._twin(at_s) for at_s in plan.twins),
            *self.more(),
        ]
        background = [self.loop.create_task(task) for task in tasks]
        for task in background:
            task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(plan.trouble_until_s + plan.calm_s):
                await self.user.janitor()
        except TimeoutError:
            states = {batch: mirror.state for batch, mirror in self.auditor.batches.items()}
            raise Broken(Law.ENDS, f"{plan.calm_s:.0f} calm seconds were not enough: {states}") from None
        self.closing_down = True
        async with asyncio.timeout(600.0):
            while self.living:
                for _, worker in list(self.living.values()):
                    worker.stop(grace=False)
                await asyncio.sleep(0.5)
        await asyncio.sleep(3 * plan.lease_s)  # whoever died is buried
        for task in background:
            task.cancel()

    def more(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on in this kind of world besides."""
        return []

    def hang(self) -> None:
        """The connection of the transaction that comes now is given up."""

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def live(self) -> None:
        """The whole life. Raises Broken, or whatever escaped from the product."""
        plan = self.plan
        self.loop.set_exception_handler(self._unhandled)
        with ExitStack() as stack:
            stack.enter_context(patch.object(engine_intake, "SEGMENT_ROWS", plan.segment_rows))
            stack.enter_context(patch.object(engine_intake, "WRITE_BYTES", plan.write_bytes))
            stack.enter_context(patch.object(rounds, "STEP", plan.reopen_step))
            for name, value in plan.bounds.items():
                for module, constant in BOUNDS.get(name, ()):
                    stack.enter_context(patch.object(module, constant, value))
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
        last_audit.finish(self.auditor, calm=not (self.auditor.crashed or self.auditor.superseded))
        for batch in sorted(self.user.submitted):
            rows = [
                (view.request_index, view.byte, view.record.cost_picousd, view.record.body)
                if view.record is not None
                else (view.request_index, view.byte, 0, b"")
                for segment in self.store.read_segments(batch, with_input=True)
                for view in views_of(segment, range(NO_END), None)
            ]
            last_audit.check_read(self.auditor, batch, rows)
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


@contextmanager
def many_lives() -> Iterator[Callable[[], None]]:
    """Worlds are full of cycles: they are collected at every tenth call of what this yields, and not otherwise, and
    what was there before them is not looked at again."""
    gc.freeze()
    gc.disable()
    calls = count()

    def collect() -> None:
        if next(calls) % 10 == 9:
            gc.collect()

    try:
        yield collect
    finally:
        gc.enable()
        gc.unfreeze()
