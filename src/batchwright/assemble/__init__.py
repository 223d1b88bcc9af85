"""Joins settings, store, engine, vendors and runner: the only place that knows which adapter is used."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from batchwright.core.batch_spec import Destination
from batchwright.core.errors import BatchwrightError, UsageError
from batchwright.core.pricing import Price
from batchwright.core.rows import SourceRow
from batchwright.core.worker_id import WorkerId
from batchwright.engine.batches import StoreBatches
from batchwright.engine.bounds import LanePrices, with_worst_cases
from batchwright.engine.sweeper import SWEEP_EVERY_S, Sweeper, run_lock_name, worker_lock_name
from batchwright.engine.worker import Worker, WorkerParts
from batchwright.engine.worker_settings import LaneLimits, WorkerSettings
from batchwright.engine.writer import StoreThread
from batchwright.fabric.in_process import Hosted, LoopWorker
from batchwright.fabric.system import SystemChance, SystemClock, utc_day
from batchwright.http.open import open_http_client
from batchwright.ports.batches import Batches
from batchwright.ports.http import HttpClient, Timeouts
from batchwright.ports.observer import Trace, WorkerFigures
from batchwright.ports.store import BatchRow, Store
from batchwright.ports.vendor import Vendor
from batchwright.prices.open import Pricer, open_prices
from batchwright.runner import run as running
from batchwright.runner.deliver import deliver
from batchwright.runner.ended import EndedBatches
from batchwright.runner.interrupts import interrupts_of_process
from batchwright.runner.outcome import RunOutcome
from batchwright.runner.progress_text import work_line
from batchwright.runner.report import NOTHING_DONE
from batchwright.runner.request import Delivery, Pace, RunRequest
from batchwright.runner.seams import Display, HeldElsewhere, HeldLock, RunningWorkers, Seams
from batchwright.runner.source import open_source
from batchwright.settings import Settings
from batchwright.store.backup import back_up
from batchwright.store.file_locks import FileLocks
from batchwright.store.open import look_at_database, look_at_state, open_store, shown_url, upgrade_store
from batchwright.vendors.registry import OpenVendors

STORE_FILE = "batchwright.sqlite"
SERVICE_FOLDER = "service-chunks"
Say = Callable[[str], None]
MS = 1000
THREADS = 2
TELL_EVERY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What one process has of this machine's batches while it is open."""

    settings: Settings
    store: Store
    writer: StoreThread
    reader: StoreThread
    clock: SystemClock
    chance: SystemChance
    locks: FileLocks
    batches: StoreBatches
    sweeper: Sweeper
    find_price: Prices
    host: str


@asynccontextmanager
async def open_machine(settings: Settings, *, threads: int = THREADS) -> AsyncIterator[Machine]:
    """Opens the state folder and makes one pass of the sweeper, so that what fell due meanwhile has happened."""
    clock, chance, locks = SystemClock(), SystemChance(), FileLocks(settings.state_dir)
    host = _host(settings, locks, chance)
    # Each thread may keep a connection, a page cache and zstd contexts of its own: few of them.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(threads, thread_name_prefix="work"))
    store = open_store(store_place(settings))
    owner = WorkerId(f"{host}-{os.getpid()}", chance.hex_id(8))
    find_price = Prices(settings, clock)
    writer, reader = StoreThread("store-writer"), StoreThread("store-reader")
    shared, lease_ms = bool(settings.database), int(settings.lease_s * MS)
    sweeper = Sweeper(store, owner=owner, locks=locks, host=host, lease_ms=lease_ms, shared=shared)

    def is_live(batch: BatchRow) -> bool:
        return not locks.is_free(run_lock_name(batch.batch_id)) or store.is_held(batch.batch_id)

    def hold(batch_id: str) -> Callable[[], None]:
        lock = locks.take(run_lock_name(batch_id), holder=f"process {os.getpid()}")
        # None: a command that runs this very batch holds it already.
        return lock.release if lock is not None else lambda: None

    batches = StoreBatches(
        store,
        writer=writer,
        reader=reader,
        clock=clock,
        owner=owner,
        is_live=is_live,
        find_price=find_price,
        may_state_cost=_may_state_cost,
        day_of=utc_day,
        hold=hold,
    )
    try:
        await writer.do(lambda: _set_clock(clock, store))
        await writer.do(lambda: sweeper.sweep(clock.now_ms()))
        yield Machine(
            settings=settings,
            store=store,
            writer=writer,
            reader=reader,
            clock=clock,
            chance=chance,
            locks=locks,
            batches=batches,
            sweeper=sweeper,
            find_price=find_price,
            host=host,
        )
    finally:
        writer.close()
        reader.close()
        store.close()


def store_place(settings: Settings) -> Path | str:
    """As `open_store` takes it."""
    return settings.database or settings.state_dir / STORE_FILE


def _host(settings: Settings, locks: FileLocks, chance: SystemChance) -> str:
    """Where this process is, as other processes on the same store know it: a lock proves something to those who have
    the same folder of locks, and a database is shared by others too."""
    host = socket.gethostname()
    return f"{host}@{locks.place(chance.hex_id(8))}" if settings.database else host


def _set_clock(clock: SystemClock, store: Store) -> None:
    own_ms = clock.now_ms()
    clock.behind_ms += store.now_ms(own_ms) - own_ms


@asynccontextmanager
async def open_batches(settings: Settings) -> AsyncIterator[Batches]:
    """This machine's batches, or those of the service that the settings name. Here the sweeper makes one pass first."""
    if settings.service is not None:
        from batchwright.assemble.client import open_service_batches  # only where one is asked

        async with open_service_batches(settings, settings.service) as there:
            yield there
        return
    async with open_machine(settings) as machine:
        yield machine.batches.of_operator(settings.account)


class Prices:
    """Finds prices by the settings' table, which is read when the first is asked for: a command that asks for none
    does not end with a table that cannot be read."""

    def __init__(self, settings: Settings, clock: SystemClock) -> None:
        self._table = settings.price_table
        self._clock = clock
        self._pricer: Pricer | None = None

    def __call__(self, destination: Destination, model: str) -> Price | None:
        if destination.protocol == "service":
            return None  # what its rows cost it says itself; a vendor's own price is not what it bills
        name = destination.vendor if destination.protocol == "openai" else destination.protocol
        return self.load().price(name, model, destination.base_url)

    def load(self) -> Pricer:
        """Raises UsageError for a table that cannot be read: asked before rows are taken in or sent."""
        if self._pricer is None:
            today = date.fromisoformat(utc_day(self._clock.now_ms()))
            self._pricer = open_prices(self._table, today=today)
        return self._pricer

    def reload(self, settings: Settings) -> None:
        """Goes by these settings' table from now on. Raises UsageError, and then goes on with the one before."""
        today = date.fromisoformat(utc_day(self._clock.now_ms()))
        pricer = open_prices(settings.price_table, today=today)
        self._table, self._pricer = settings.price_table, pricer


def _may_state_cost(destination: Destination, endpoint: str, body: bytes) -> bool:
    from batchwright.vendors.stated_cost import may_state_cost  # asked for by `reprice` alone

    return may_state_cost(destination, endpoint, body)


# ----------------------------------------------------------------------------------------------------------- workers


@asynccontextmanager
async def open_vendors(settings: Settings, clock: SystemClock, *, say: Say) -> AsyncIterator[OpenVendors]:
    """Every vendor and client that is opened is closed at the end, the local model's server with them."""
    keys, environ = settings.key_values(), settings.process_environment()
    variables = settings.variables

    def open_http(timeout_s: float) -> HttpClient:
        timeouts = Timeouts(first_byte_s=timeout_s, total_s=timeout_s) if timeout_s else Timeouts()
        return open_http_client(timeouts, transport=settings.transport.value, environ=environ)

    async def open_local(destination: Destination, http: HttpClient) -> Vendor:
        from batchwright.vendors.local_vendor import open_local_vendor  # 11 ms that other vendors are spared

        cache = settings.cache_dir
        return await open_local_vendor(destination, http=http, environ=environ, cache=cache, clock=clock)

    async def open_service(destination: Destination, http: HttpClient, key: str) -> Vendor:
        from batchwright.assemble.client import ServiceSeat, open_service_vendor  # only where one is used

        locks = FileLocks(settings.state_dir)
        seat = ServiceSeat(
            folder=settings.state_dir / SERVICE_FOLDER,
            take_lock=lambda name: locks.take(name, holder=f"process {os.getpid()}"),
            report=say,
        )
        return await open_service_vendor(destination, http, key, seat)

    vendors = OpenVendors(
        open_http,
        keys,
        clock,
        local=open_local,
        service=open_service,
        dotenv_keys=variables.dotenv,
        dotenv_file=variables.dotenv_file,
    )
    try:
        yield vendors
    finally:
        await vendors.close()


def _worker_settings(settings: Settings, asked: LaneLimits) -> WorkerSettings:
    return WorkerSettings(
        lease_s=settings.lease_s,
        heartbeat_s=settings.heartbeat_s,
        grace_s=settings.grace_s,
        checkpoint_s=settings.checkpoint_interval_s,
        asked=asked,
        vendor_limits=vendor_limits(settings),
    )


def vendor_limits(settings: Settings) -> dict[str, LaneLimits]:
    return {
        name: LaneLimits(concurrency=limits.concurrency, rpm=limits.rpm, tpm=limits.tpm)
        for name, limits in settings.limits.items()
    }


def start_worker(
    machine: Machine,
    vendors: OpenVendors,
    *,
    say: Callable[[str], None],
    asked: LaneLimits,
    only_batch: str = "",
    until_idle: bool = False,
    trace: Trace | None = None,
) -> LoopWorker:
    """A worker on this loop."""
    return host_worker(
        machine,
        lambda: build_worker(
            machine, vendors, say=say, asked=asked, only_batch=only_batch, until_idle=until_idle, trace=trace
        ),
        say=say,
    )


def host_worker(machine: Machine, build: Callable[[], Worker], *, say: Callable[[str], None]) -> LoopWorker:
    """Its lock is taken before it is registered: a worker that is in the store without a lock counts as dead."""

    def make() -> Hosted:
        worker = build()
        lock = machine.locks.take(worker_lock_name(worker.identity), holder=f"process {os.getpid()}")
        assert lock is not None, "a fresh incarnation's lock cannot be taken already"
        return Hosted(worker, lock.release)

    return LoopWorker(make, say=say)


def build_worker(
    machine: Machine,
    vendors: OpenVendors,
    *,
    say: Callable[[str], None],
    asked: LaneLimits,
    only_batch: str = "",
    until_idle: bool = False,
    claims: bool = True,
    figures: WorkerFigures | None = None,
    trace: Trace | None = None,
) -> Worker:
    identity = WorkerId(f"{machine.host}-{os.getpid()}", machine.chance.hex_id(8))
    return Worker(
        WorkerParts(
            store=machine.store,
            writer=machine.writer,
            vendors=vendors,
            find_price=machine.find_price,
            clock=machine.clock,
            chance=machine.chance,
            day_of=utc_day,
            report=say,
            figures=figures or WorkerFigures(),
            trace=trace,
        ),
        identity=identity,
        settings=_worker_settings(machine.settings, asked),
        only_batch=only_batch,
        until_idle=until_idle,
        claims=claims,
        host=machine.host,
        pid=os.getpid(),
    )


class MachineWorkers:
    """Implements the runner's `Workers`: one worker on this loop, for one batch."""

    def __init__(self, machine: Machine, stack: AsyncExitStack, say: Callable[[str], None]) -> None:
        self._machine = machine
        self._stack = stack
        self._say = say

    async def start(self, batch_id: str, pace: Pace) -> RunningWorkers:
        vendors = await self._stack.enter_async_context(
            open_vendors(self._machine.settings, self._machine.clock, say=self._say)
        )
        asked = LaneLimits(concurrency=pace.concurrency, rpm=pace.rpm, tpm=pace.tpm, timeout_s=pace.timeout_s)
        return start_worker(self._machine, vendors, say=self._say, asked=asked, only_batch=batch_id)


class MachineLocks:
    """Implements the runner's `RunLocks` on the state folder."""

    def __init__(self, locks: FileLocks) -> None:
        self._locks = locks

    def take(self, name: str) -> HeldLock | HeldElsewhere:
        held = self._locks.take(name, holder=f"process {os.getpid()}")
        return held if held is not None else HeldElsewhere(self._locks.holder(name) or "another process")


@asynccontextmanager
async def swept(machine: Machine, say: Callable[[str], None], *, retention_s: float = 0.0) -> AsyncIterator[None]:
    """The sweeper runs on beside every command that stays: the rows of another worker that dies meanwhile would
    otherwise be held, and waited for, for ever."""
    sweeping = asyncio.create_task(_sweep(machine, say, int(retention_s * MS)), name="sweeper")
    try:
        yield
    finally:
        sweeping.cancel()
        await asyncio.wait([sweeping])


async def _sweep(machine: Machine, say: Callable[[str], None], keep_ended_ms: int) -> None:
    while True:
        await machine.clock.sleep(SWEEP_EVERY_S)
        try:
            await machine.writer.do(lambda: _set_clock(machine.clock, machine.store))
            await machine.writer.do(lambda: machine.sweeper.sweep(machine.clock.now_ms(), keep_ended_ms=keep_ended_ms))
        except BatchwrightError as error:
            say(f"The sweeper's pass failed; the next is in {SWEEP_EVERY_S:g} s: {error}")


@asynccontextmanager
async def _seams(
    settings: Settings, display: Display, *, operator: bool = True
) -> AsyncIterator[tuple[Machine, Seams]]:
    """`operator` False: of this machine's own account alone, so that a run never goes on with another's batch."""
    loop = asyncio.get_running_loop()
    try:
        with interrupts_of_process(loop) as interrupts:
            async with open_machine(settings) as machine, AsyncExitStack() as stack, swept(machine, display.say):
                yield (
                    machine,
                    Seams(
                        batches=machine.batches.of_operator(settings.account) if operator else machine.batches,
                        workers=MachineWorkers(machine, stack, display.say),
                        display=display,
                        clock=machine.clock,
                        locks=MachineLocks(machine.locks),
                        interrupts=interrupts,
                    ),
                )
    finally:
        display.close()


@asynccontextmanager
async def _seams_there(settings: Settings, display: Display, *, sends: bool) -> AsyncIterator[Seams]:
    """Those of the service that the settings name, or of this machine. `sends`: with prices, which rows need."""
    if settings.service is None:
        async with _seams(settings, display) as (machine, seams):
            if sends:
                machine.find_price.load()
            yield seams
        return
    from batchwright.assemble.client import NoLocks, ServiceWorkers, open_service_batches

    try:
        with interrupts_of_process(asyncio.get_running_loop()) as interrupts:
            async with open_service_batches(settings, settings.service) as batches:
                yield Seams(
                    batches=batches,
                    workers=ServiceWorkers(),
                    display=display,
                    clock=SystemClock(),
                    locks=NoLocks(),
                    interrupts=interrupts,
                )
    finally:
        display.close()


# ---------------------------------------------------------------------------------------------------------- commands


async def run(settings: Settings, request: RunRequest, *, display: Display) -> RunOutcome:
    """`batchwright run`: from the file to the file."""
    _refuse_state_file(settings, request.delivery)
    async with _seams(settings, display, operator=False) as (machine, seams):
        machine.find_price.load()
        return await running.run(request, seams, chance=machine.chance)


def _refuse_state_file(settings: Settings, delivery: Delivery) -> None:
    """The database's own files, by whatever way they are named."""
    state = os.path.realpath(settings.state_dir)  # not Path.resolve, which raises for a link that leads to itself
    for path in (delivery.output, delivery.failed_output):
        if path is not None and os.path.dirname(os.path.realpath(path)) == state and path.name.startswith(STORE_FILE):
            raise UsageError(f"{path} holds the state of all batches here; choose another output")


async def go_on(settings: Settings, batch_id: str, *, delivery: Delivery, pace: Pace, display: Display) -> RunOutcome:
    """Works on a durable batch until it ends or pauses, and delivers it (`retry`, `resume`)."""
    async with _seams_there(settings, display, sends=True) as seams:
        return await running.go_on(batch_id, delivery, pace, seams)


async def look_on(settings: Settings, batch_id: str, *, delivery: Delivery, display: Display) -> RunOutcome:
    """`batchwright watch`: shows a batch until it ends or pauses; sends and writes nothing."""
    async with _seams_there(settings, display, sends=False) as seams:
        return await running.look_on(batch_id, delivery, seams)


async def export(settings: Settings, batch_id: str, *, delivery: Delivery, display: Display) -> RunOutcome:
    """`batchwright export`: writes the answers of a batch, in input order."""
    _refuse_state_file(settings, delivery)
    async with _seams_there(settings, display, sends=False) as seams:
        status = await seams.batches.status(batch_id)
        return await deliver(status, delivery, NOTHING_DONE, seams)


def lane_prices(settings: Settings) -> LanePrices:
    """The prices that a run of these settings would bound its rows by."""
    return LanePrices(Prices(settings, SystemClock()), settings.destinations, settings.routes)


def source_rows(
    request: RunRequest, prices: LanePrices, *, say: Callable[[str], None]
) -> Iterator[Sequence[SourceRow]]:
    """The rows a run would send, checked and bounded; nothing is stored (`run --dry-run`). `say` hears how the input
    is read."""
    with open_source(request.source, request.rows, skip_invalid=True) as source:
        for text in source.notes:
            say(text)
        yield from with_worst_cases(source.chunks(), prices)


async def backup(settings: Settings, target: Path) -> int:
    """`batchwright backup`: returns the copy's size in bytes. Raises UsageError, StoreError."""
    if settings.database:
        raise UsageError(
            f"the batches are in {shown_url(settings.database)}: a server's databases are backed up with its own "
            "tools, pg_dump or pg_basebackup. This command copies the file of a state folder"
        )
    source = settings.state_dir / STORE_FILE
    if not source.exists():
        raise UsageError(f"there is no state to back up: {source} does not exist")
    async with open_machine(settings):
        return await asyncio.to_thread(back_up, source, target)


def check_database(settings: Settings) -> str:
    """`batchwright db check`: what was found, as a sentence. Raises StoreError for a schema that is not this one."""
    if settings.database:
        return f"{shown_url(settings.database)} {look_at_database(settings.database)}."
    path = settings.state_dir / STORE_FILE
    return f"{path} {look_at_state(path)}."


def upgrade_database(settings: Settings) -> str:
    """`batchwright db upgrade`: what was done, as a sentence. Raises StoreError."""
    name = shown_url(settings.database) if settings.database else str(settings.state_dir / STORE_FILE)
    changed = upgrade_store(store_place(settings))
    return f"{name} has the tables of this version now." if changed else f"{name} had them already; nothing was done."


async def work(settings: Settings, *, until_idle: bool, display: Display) -> int:
    """`batchwright work`: works on every batch of this machine until it is told to end; returns the exit code."""
    from batchwright.assemble.tracing import tracing  # of those that stay alone

    async with _seams(settings, display) as (machine, seams), tracing(settings, display.say) as trace:
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
