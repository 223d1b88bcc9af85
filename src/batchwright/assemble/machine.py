"""What a process has of this machine's batches: which store, clock, locks and threads it opens."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from batchwright.assemble.home import store_mark, store_place
from batchwright.assemble.prices import Prices, may_state_cost_of
from batchwright.core.errors import ObjectsAway
from batchwright.core.worker_id import WorkerId
from batchwright.engine.batches import StoreBatches
from batchwright.engine.outages import Outages
from batchwright.engine.sweeper import Sweeper, run_lock_name
from batchwright.engine.writer import StoreThread
from batchwright.fabric.system import SystemChance, SystemClock, utc_day
from batchwright.ports.store import BatchRow, Store
from batchwright.settings import Settings
from batchwright.store.file_locks import FileLocks
from batchwright.store.open import answers_within_s, open_store, shown_url

MS = 1000
TOLD_AFTER_S = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What one process has of this machine's batches while it is open."""

    settings: Settings
    store: Store
    writer: StoreThread
    reader: StoreThread
    beats: StoreThread
    """Renews leases. With an object store it is a thread of its own: the writer may wait for a slow put longer than a
    lease lasts."""
    clock: SystemClock
    chance: SystemChance
    locks: FileLocks
    batches: StoreBatches
    sweeper: Sweeper
    find_price: Prices
    host: str
    outages: Outages


@asynccontextmanager
async def open_machine(settings: Settings, *, say: Callable[[str], None] | None = None) -> AsyncIterator[Machine]:
    """Opens the state folder and makes one pass of the sweeper, so that what fell due meanwhile has happened. `say` is
    told, on another thread, where that takes long; None: stderr is."""
    clock, chance, locks = SystemClock(), SystemChance(), FileLocks(settings.state_dir)
    host = _host(settings, locks, chance)
    with told_if_late(settings, say or _say_on_stderr):
        store = open_store_of(settings, chance)
    owner = WorkerId(f"{host}-{os.getpid()}", chance.hex_id(8))
    find_price = Prices(settings, clock)
    writer, reader = StoreThread("store-writer"), StoreThread("store-reader")
    beats = StoreThread("store-beats") if settings.blobs else writer
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
        may_state_cost=may_state_cost_of,
        day_of=utc_day,
        hold=hold,
        mark=store_mark(settings),
    )
    try:
        await writer.do(lambda: set_clock(clock, store))
        with suppress(ObjectsAway):  # what is to go there goes with a later pass
            await writer.do(lambda: sweeper.sweep(clock.now_ms()))
        yield Machine(
            settings=settings,
            store=store,
            writer=writer,
            reader=reader,
            beats=beats,
            clock=clock,
            chance=chance,
            locks=locks,
            batches=batches,
            sweeper=sweeper,
            find_price=find_price,
            host=host,
            outages=Outages(),
        )
    finally:
        writer.close()
        beats.close()
        reader.close()
        store.close()


@contextmanager
def told_if_late(settings: Settings, say: Callable[[str], None]) -> Iterator[None]:
    """Says what is waited for, and for how long, where a database does not answer soon."""
    if not settings.database:
        yield
        return
    within_s = answers_within_s(settings.database)
    bound = f"each of its addresses is given {within_s:g} s (connect_timeout in the URL)" if within_s else "without end"
    text = f"Waiting for the database {shown_url(settings.database)} to answer: {bound}."
    timer = threading.Timer(TOLD_AFTER_S, say, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say_on_stderr(text: str) -> None:
    with suppress(OSError, ValueError):  # closed, or nobody reads it
        print(text, file=sys.stderr, flush=True)


def open_store_of(settings: Settings, chance: SystemChance) -> Store:
    if not settings.blobs:
        return open_store(store_place(settings))
    from batchwright.assemble.objects import outlying  # only where one is named

    return open_store(store_place(settings), outlying(settings, chance))


def _host(settings: Settings, locks: FileLocks, chance: SystemChance) -> str:
    """Where this process is, as other processes on the same store know it: a lock proves something to those who have
    the same folder of locks, and a database is shared by others too."""
    host = socket.gethostname()
    return f"{host}@{locks.place(chance.hex_id(8))}" if settings.database else host


def set_clock(clock: SystemClock, store: Store) -> None:
    own_ms = clock.now_ms()
    clock.behind_ms += store.now_ms(own_ms) - own_ms
