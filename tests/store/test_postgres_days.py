"""Bodies by days on a PostgreSQL server: a day goes as a whole, and nobody who works or reads notices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from batchwright.core.errors import NoSuchBatch, StoreError
from batchwright.core.tenants import Tenant
from batchwright.core.worker_id import WorkerId
from batchwright.engine.sweeper import Sweeper, worker_lock_name
from batchwright.ports.store import NewBatch, Store
from batchwright.store import body_days
from batchwright.store.body_days import LOOKED_EVERY_MS, OPEN, UNNEEDED_MS, DayState, states
from batchwright.store.file_locks import FileLocks
from batchwright.store.open import connect, open_store
from batchwright.store.postgres import PostgresConnections
from support.postgres import PostgresServer
from support.store_drive import INTAKE, Worker, bodies, new_segment, spec

DAY_MS = 86_400_000
FIRST = 100
NOW_MS = (FIRST + 10) * DAY_MS
KEEP_MS = 3 * DAY_MS


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.new_database()
    yield url
    postgres.drop(url)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture
def server(url: str) -> Iterator[PostgresConnections]:
    opened = connect(url)
    assert isinstance(opened, PostgresConnections)
    yield opened
    opened.close()


def begin(store: Store, batch_id: str, moment_ms: int, segments: int = 2) -> None:
    new = NewBatch(batch_id=batch_id, tenant=Tenant("acme"), spec=spec(), created_at_ms=moment_ms, owner=INTAKE)
    store.create_batch(new, [new_segment(number) for number in range(segments)], close=True)


def ended(store: Store, worker: Worker, batch_id: str, moment_ms: int) -> None:
    begin(store, batch_id, moment_ms)
    worker.run(batch_id=batch_id, now_ms=moment_ms)


def days(server: PostgresConnections) -> dict[int, str]:
    return {day: state for day, state in server.look(states).items() if day < FIRST + 10 - OPEN}


def sweep(store: Store, now_ms: int) -> int:
    """As a sweeper does that finds a day unneeded, and looks again once that has been so for long enough."""
    later_ms = now_ms + max(UNNEEDED_MS, LOOKED_EVERY_MS)
    return store.sweep_days(now_ms) + store.sweep_days(later_ms)


def count(url: str, what: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(f"SELECT count(*) FROM {what}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_days_are_ready_before_they_come(store: Store, server: PostgresConnections) -> None:
    store.sweep_days(NOW_MS)
    today = NOW_MS // DAY_MS
    assert server.look(states) == dict.fromkeys(range(today, today + body_days.AHEAD + 1), DayState.ATTACHED)


def test_what_nobody_has_thought_of_has_its_day_at_once(store: Store, server: PostgresConnections) -> None:
    """By several at the same moment."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: begin(store, f"batch_{number}", FIRST * DAY_MS), range(4)))
    assert days(server) == {FIRST: DayState.ATTACHED}


def test_an_old_day_goes_while_others_work_and_read(
    url: str, store: Store, server: PostgresConnections, tmp_path: Path
) -> None:
    worker = Worker(store)
    locks = FileLocks(tmp_path)
    lives = locks.take(worker_lock_name(worker.id), holder="a test")
    assert lives is not None
    ended(store, worker, "batch_old", FIRST * DAY_MS)
    begin(store, "batch_slow", FIRST * DAY_MS + DAY_MS, 3)
    ended(store, worker, "batch_beside", FIRST * DAY_MS + DAY_MS)
    reading = store.read_segments("batch_old")
    assert next(reading).number == 0
    sweeper = Sweeper(store, owner=WorkerId("sweeper", "1"), locks=locks, host="here", lease_ms=10**12)

    one, two = worker.claim(limit=2, batch_id="batch_slow", now_ms=NOW_MS)
    worker.checkpoint(one.reserve(0, 1).change(), now_ms=NOW_MS)
    sweeper.sweep(NOW_MS, keep_ended_ms=KEEP_MS)
    assert count(url, f"blob_{FIRST}") == 4, "its bodies stay, which go with their day"
    with pytest.raises(NoSuchBatch):
        next(reading)
    worker.checkpoint(one.answer(0).change(), now_ms=NOW_MS)
    sweeper.sweep(NOW_MS + UNNEEDED_MS, keep_ended_ms=KEEP_MS)
    assert days(server) == {FIRST + 1: DayState.ATTACHED}, "a batch has its inputs there that goes on"
    worker.finish(two, now_ms=NOW_MS)
    worker.checkpoint(one.answer(1).reserve(2, 3).change(), now_ms=NOW_MS)
    worker.checkpoint(one.answer(2, 3).change(), now_ms=NOW_MS)
    worker.run(batch_id="batch_slow", now_ms=NOW_MS)
    assert len(bodies(store, "batch_slow")) == 12
    assert store.check("batch_slow") == []
    lives.release()


def test_a_transaction_under_way_puts_it_off_and_keeps_nobody_waiting(
    url: str, store: Store, server: PostgresConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_days, "PATIENCE_S", 0.2)
    worker = Worker(store)
    ended(store, worker, "batch_old", FIRST * DAY_MS)
    store.drop_batch("batch_old", with_day=True)
    with psycopg.connect(url) as reader:
        reader.execute("SELECT count(*) FROM blob")
        assert sweep(store, NOW_MS) == 0
        assert days(server) == {FIRST: DayState.DETACHING}
        ended(store, worker, "batch_new", NOW_MS)
        assert store.check("batch_new") == []
    assert store.sweep_days(NOW_MS + 2 * UNNEEDED_MS) == 1
    assert days(server) == {}


def test_what_a_crash_left_between_the_two_is_done_with(url: str, store: Store, server: PostgresConnections) -> None:
    ended(store, Worker(store), "batch_old", FIRST * DAY_MS)
    store.drop_batch("batch_old", with_day=True)
    with psycopg.connect(url, autocommit=True) as crashed:
        crashed.execute(f"ALTER TABLE blob DETACH PARTITION blob_{FIRST} CONCURRENTLY".encode())
    assert days(server) == {FIRST: DayState.APART}
    assert store.sweep_days(NOW_MS) == 1
    assert days(server) == {}


def test_a_day_that_was_left_half_gone_can_be_written_again(
    url: str, store: Store, server: PostgresConnections
) -> None:
    with psycopg.connect(url, autocommit=True) as crashed:
        begin(store, "batch_a", FIRST * DAY_MS)
        Worker(store).run(batch_id="batch_a", now_ms=FIRST * DAY_MS)
        store.drop_batch("batch_a", with_day=True)
        crashed.execute(f"ALTER TABLE blob DETACH PARTITION blob_{FIRST} CONCURRENTLY".encode())
    begin(store, "batch_a", FIRST * DAY_MS)
    assert days(server) == {FIRST: DayState.ATTACHED}
    assert store.check("batch_a") == []


def test_two_sweepers_at_once_drop_each_day_once(url: str, store: Store, server: PostgresConnections) -> None:
    worker = Worker(store)
    for day in range(4):
        ended(store, worker, f"batch_{day}", (FIRST + day) * DAY_MS)
        store.drop_batch(f"batch_{day}", with_day=True)
    other = open_store(url)
    barrier = threading.Barrier(2)

    def work(which: Store) -> int:
        which.sweep_days(NOW_MS)
        barrier.wait()
        return which.sweep_days(NOW_MS + UNNEEDED_MS)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (store, other)))
    other.sweep_days(NOW_MS + 2 * UNNEEDED_MS)
    assert days(server) == {}
    other.close()


def test_what_a_person_deletes_goes_at_once(url: str, store: Store, server: PostgresConnections) -> None:
    worker = Worker(store)
    ended(store, worker, "batch_a", FIRST * DAY_MS)
    ended(store, worker, "batch_b", FIRST * DAY_MS)
    store.drop_batch("batch_a")
    assert count(url, "blob WHERE key LIKE '%/input/batch_a/%'") == 0
    assert sweep(store, NOW_MS) == 0
    store.drop_batch("batch_b")
    assert count(url, "blob") == 0
    assert sweep(store, NOW_MS + DAY_MS) == 1
    assert days(server) == {}


def test_a_day_that_one_batch_holds_is_emptied_of_the_others(
    url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_days, "STEPS", 1)
    monkeypatch.setattr(body_days, "_KEYS", body_days._KEYS.limit(40))
    monkeypatch.setattr(body_days, "STEP", 40)
    worker = Worker(store)
    begin(store, "batch_held", FIRST * DAY_MS)
    (one,) = worker.claim(batch_id="batch_held", now_ms=FIRST * DAY_MS)
    worker.checkpoint(one.reserve(0, 1).change(), now_ms=FIRST * DAY_MS)
    worker.checkpoint(one.answer(0).change(), now_ms=FIRST * DAY_MS)
    kept = count(url, "blob")
    for number in range(15):
        ended(store, worker, f"batch_{number}", FIRST * DAY_MS)
        store.drop_batch(f"batch_{number}", with_day=True)
    assert count(url, "blob") == kept + 60
    store.sweep_days(NOW_MS)
    assert count(url, "blob") == kept + 60, "without a retention it may be that all is to be kept"
    store.sweep_days(NOW_MS + LOOKED_EVERY_MS, KEEP_MS)
    assert kept < count(url, "blob") < kept + 60, "a step at a time"
    store.sweep_days(NOW_MS + 2 * LOOKED_EVERY_MS, KEEP_MS)
    assert count(url, "blob") == kept
    worker.checkpoint(one.answer(1).change(), now_ms=NOW_MS)
    assert store.check("batch_held") == []


def test_who_does_not_own_the_tables_is_told_so(postgres: PostgresServer, url: str, store: Store) -> None:
    ended(store, Worker(store), "batch_a", FIRST * DAY_MS)
    store.drop_batch("batch_a")
    store.sweep_days(NOW_MS)
    name = url.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(b"CREATE ROLE guest LOGIN")
        owner.execute(b"GRANT ALL ON ALL TABLES IN SCHEMA public TO guest")
    guest = open_store(postgres.url(name).replace("postgres@", "guest@"))
    with pytest.raises(StoreError, match="to own the tables there"):
        guest.sweep_days(NOW_MS + UNNEEDED_MS)
    guest.close()
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(b"DROP OWNED BY guest; DROP ROLE guest")
