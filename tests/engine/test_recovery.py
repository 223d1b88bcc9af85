"""A worker dies, or comes back under its name: how soon its segments run again, on a clock of their own.

Real workers on one store, each in a place of its own: what they know of each other goes through the store alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchwright.core.errors import WorkerGone
from batchwright.core.failures import FailureKind
from batchwright.core.row_map import KIND_BYTES, PLAIN_SUCCESS
from batchwright.core.worker_id import WorkerId
from batchwright.engine.sweeper import Sweeper
from batchwright.engine.worker_settings import WorkerSettings
from batchwright.ports.store import Store
from batchwright.store.open import open_store
from support.fleet import EPOCH_MS, Fleet, MinuteVendor, Seat, run_fleet, until
from support.postgres import PostgresServer
from support.store_drive import new_segment, submit

LEASE_S = WorkerSettings().lease_s
HEARTBEAT_S = WorkerSettings().heartbeat_s
ROWS = 100
IN_FLIGHT = WorkerSettings().concurrency_start
PLENTY = 10**6
"""Requests a minute."""
LONG_S = 500.0
DEATHS_MAX = 20


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        found = open_store(tmp_path / "state" / "batchwright.sqlite")
        yield found
        found.close()
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database() as url:
        found = open_store(url)
        yield found
        found.close()


class NoLocks:
    def is_free(self, name: str) -> bool:
        return False


async def sweeps(store: Store, host: str, later_s: float) -> None:
    """As a process of that place does beside its work."""
    loop = asyncio.get_running_loop()
    lease_ms = int(LEASE_S * 1000)
    owner = WorkerId(host, "1")
    sweeper = Sweeper(store, owner=owner, locks=NoLocks(), host=host, lease_ms=lease_ms, shared=True)
    await asyncio.sleep(later_s)
    while True:
        now_ms = EPOCH_MS + int(loop.time() * 1000)
        sweeper.sweep(now_ms)
        await asyncio.sleep(sweeper.rest_s(now_ms))


def held_by(seat: Seat) -> set[object]:
    return set(seat.worker.floor.segments)


async def begun(fleet: Fleet) -> Seat:
    """A worker that holds all there is, with rows at the vendor that are not answered soon."""
    seat = fleet.start("first")
    await until(lambda: seat.worker.sender.in_flight == IN_FLIGHT, at_most_s=10.0)
    assert len(held_by(seat)) == 1
    return seat


async def ended(store: Store) -> None:
    await until(lambda: store.get_batch("batch_a").settled_at_ms > 0, at_most_s=60.0)


def vendor_and_batch(store: Store) -> MinuteVendor:
    submit(store, "batch_a", [new_segment(0, ROWS)])
    return MinuteVendor(per_minute=PLENTY, latency_s=LONG_S)


@pytest.mark.parametrize("phase_s", [0.1, 2.4, 4.8])
def test_what_a_dead_worker_held_runs_again_within_its_lease_and_two_seconds(store: Store, phase_s: float) -> None:
    """It dies just after a heartbeat, when others come to know of it latest; they sweep at any moment."""
    vendor = vendor_and_batch(store)

    async def scene(fleet: Fleet) -> None:
        loop = asyncio.get_running_loop()
        first = await begun(fleet)
        others = [fleet.start(name) for name in ("second", "third")]
        sweeping = [asyncio.create_task(sweeps(store, name, phase_s)) for name in ("second", "third")]
        await asyncio.sleep(HEARTBEAT_S)
        (beat_ms,) = [row.heartbeat_ms for row in store.live_workers() if row.worker.name == "first"]
        await asyncio.sleep((beat_ms - EPOCH_MS) / 1000 + HEARTBEAT_S + 0.1 - loop.time())
        lost = held_by(first)
        first.kill()
        vendor.latency_s = 0.2
        died_s = loop.time()
        again_s = await until(lambda: any(held_by(seat) == lost for seat in others), at_most_s=60.0)
        assert LEASE_S / 2 < again_s - died_s <= LEASE_S + 2.0
        await ended(store)
        for task in sweeping:
            task.cancel()

    run_fleet(scene, store, vendor)
    tally = store.get_batch("batch_a").tally
    assert tally.counts == {PLAIN_SUCCESS: ROWS}
    assert tally.doubts >= IN_FLIGHT
    assert store.check("batch_a") == []


def test_one_that_comes_back_under_its_name_has_its_own_again_at_once(store: Store) -> None:
    vendor = vendor_and_batch(store)

    async def scene(fleet: Fleet) -> None:
        first = await begun(fleet)
        lost = held_by(first)
        first.kill()
        died_s = asyncio.get_running_loop().time()
        vendor.latency_s = 0.2
        again = fleet.start("first", incarnation="2")
        assert await until(lambda: held_by(again) == lost, at_most_s=10.0) - died_s < 2.0
        await ended(store)

    run_fleet(scene, store, vendor)
    assert store.get_batch("batch_a").tally.counts == {PLAIN_SUCCESS: ROWS}
    assert store.check("batch_a") == []


def test_of_two_that_live_under_one_name_one_writes(store: Store) -> None:
    """The older one does not know yet: what it is answered meanwhile is orphan spend, and it ends."""
    vendor = vendor_and_batch(store)
    vendor.latency_s = 2.0

    async def scene(fleet: Fleet) -> None:
        older = await begun(fleet)
        fleet.start("first", incarnation="2")
        await until(older.task.done, at_most_s=20.0)
        assert isinstance(older.task.exception(), WorkerGone)
        del fleet.seats["first"]
        await ended(store)

    run_fleet(scene, store, vendor)
    tally = store.get_batch("batch_a").tally
    assert (tally.counts, tally.orphans) == ({PLAIN_SUCCESS: ROWS}, IN_FLIGHT)
    assert tally.doubts >= IN_FLIGHT
    assert store.check("batch_a") == []


def test_a_row_that_kills_workers_of_several_machines_is_found_by_halves_and_ends_alone(store: Store) -> None:
    vendor = vendor_and_batch(store)
    vendor.latency_s = 0.2
    guilty = b'{"row":%d}' % (ROWS * 2 // 3)
    out: list[int] = []
    """Rows that each dead worker had sent and not got back."""

    async def scene(fleet: Fleet) -> None:
        died = asyncio.Event()

        def on_body(worker: str, body: bytes) -> None:
            if body == guilty:
                asyncio.get_running_loop().call_soon(die, worker)

        def die(worker: str) -> None:
            out.append(fleet.seats[worker].worker.sender.in_flight)
            fleet.seats[worker].kill()
            died.set()

        vendor.on_body = on_body
        for number in range(DEATHS_MAX):
            seat = fleet.start(f"w{number}")
            await until(lambda: died.is_set() or store.get_batch("batch_a").settled_at_ms > 0, at_most_s=60.0)
            if not died.is_set():
                return
            died.clear()
            store.mark_dead([seat.worker.identity])
        raise AssertionError(f"{DEATHS_MAX} workers died of it: {out}")

    run_fleet(scene, store, vendor)
    assert out[0] > 1
    assert out[-1] == 1, "it was all that the last one had out"
    batch = store.get_batch("batch_a")
    assert batch.tally.counts == {PLAIN_SUCCESS: ROWS - 1, KIND_BYTES[FailureKind.WORKER_LOST]: 1}
    assert store.check("batch_a") == []
