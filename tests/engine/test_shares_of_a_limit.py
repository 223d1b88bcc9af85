"""Real workers on one store share a vendor's limit, on a clock of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from batchwright.core.shares import SHARE_LEASE_S, WHOLE_PPM
from batchwright.ports.store import Store
from batchwright.store.open import open_store
from support.fleet import Fleet, MinuteVendor, run_fleet, until
from support.postgres import PostgresServer
from support.store_drive import new_segment, spec, submit

NAMES = ("a", "b", "c", "d")


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        found = open_store(":memory:")
        yield found
        found.close()
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database() as url:
        found = open_store(url)
        yield found
        found.close()


@pytest.fixture
def store_here() -> Iterator[Store]:
    found = open_store(":memory:")
    yield found
    found.close()


async def watched(fleet: Fleet, seconds: float) -> None:
    """Time goes on, and at no moment is more than the whole in use."""
    for _ in range(int(seconds * 20)):
        await asyncio.sleep(0.05)
        assert fleet.shares_ppm() <= WHOLE_PPM


def test_four_workers_use_one_limit_up_and_trip_it_hardly_ever(store: Store) -> None:
    vendor = MinuteVendor(per_minute=600)
    submit(store, "batch_a", [new_segment(number, 500) for number in range(8)])

    async def scene(fleet: Fleet) -> None:
        for name in NAMES:
            fleet.start(name, rpm=600)
        await watched(fleet, 100.0)

    run_fleet(scene, store, vendor)
    assert vendor.within(10.0, 100.0) >= 0.9 * 900
    assert vendor.refused_share() < 0.02
    for name in NAMES:
        assert vendor.within(10.0, 100.0, name) == pytest.approx(225, rel=0.15), "each its part"


def test_a_workers_share_is_in_use_again_soon_after_it_died(store: Store) -> None:
    vendor = MinuteVendor(per_minute=600)
    submit(store, "batch_a", [new_segment(number, 500) for number in range(8)])

    async def scene(fleet: Fleet) -> None:
        for name in NAMES:
            fleet.start(name, rpm=600)
        await watched(fleet, 20.0)
        fleet.seats["a"].kill()
        fleet.seats["b"].kill()
        died_s = asyncio.get_running_loop().time()
        whole_s = await until(lambda: fleet.shares_ppm() > 0.99 * WHOLE_PPM, at_most_s=20.0)
        assert whole_s - died_s <= 10.0
        await watched(fleet, 30.0)

    end_s = run_fleet(scene, store, vendor).end_s
    assert vendor.within(end_s - 30.0, end_s) >= 0.95 * 300
    assert vendor.refused_share() < 0.02


def test_one_that_ends_gives_its_share_back_at_once_and_one_that_comes_gets_one(store_here: Store) -> None:
    vendor = MinuteVendor(per_minute=600)
    submit(store_here, "batch_a", [new_segment(number, 500) for number in range(8)])

    async def scene(fleet: Fleet) -> None:
        loop = asyncio.get_running_loop()
        fleet.start("a", rpm=600)
        assert await until(lambda: bool(vendor.sent), at_most_s=5.0) < 2.0, "a single one need not wait for anybody"
        await watched(fleet, 10.0)
        fleet.start("b", rpm=600)
        came_s = loop.time()
        first_s = await until(lambda: vendor.within(came_s, loop.time() + 1, "b") > 0, at_most_s=10.0)
        assert first_s - came_s < 5.0
        await watched(fleet, 20.0)
        fleet.seats["a"].worker.stop(grace=False)
        ended_s = loop.time()
        whole_s = await until(lambda: fleet.shares_ppm() == WHOLE_PPM, at_most_s=10.0)
        assert whole_s - ended_s < 5.0
        await watched(fleet, 30.0)

    end_s = run_fleet(scene, store_here, vendor).end_s
    assert vendor.within(end_s - 30.0, end_s, "b") >= 0.95 * 300
    assert vendor.refused_share() == 0.0


def test_who_has_nothing_left_to_send_leaves_its_share_to_the_others(store_here: Store) -> None:
    vendor = MinuteVendor(per_minute=600)
    submit(store_here, "batch_small", [new_segment(0, 40)])
    submit(store_here, "batch_large", [new_segment(number, 500) for number in range(4)])

    async def scene(fleet: Fleet) -> None:
        loop = asyncio.get_running_loop()
        fleet.start("small", rpm=600, only_batch="batch_small")
        fleet.start("large", rpm=600, only_batch="batch_large")
        await until(fleet.seats["small"].task.done, at_most_s=30.0)
        done_s = loop.time()
        whole_s = await until(lambda: fleet.shares_ppm() == WHOLE_PPM, at_most_s=10.0)
        assert whole_s - done_s < 5.0
        await watched(fleet, 30.0)

    run_fleet(scene, store_here, vendor)
    assert vendor.refused_share() == 0.0


def test_a_worker_that_cannot_tell_stops_before_others_take_its_share(store_here: Store) -> None:
    vendor = MinuteVendor(per_minute=600)
    submit(store_here, "batch_a", [new_segment(number, 500) for number in range(8)])

    async def scene(fleet: Fleet) -> None:
        loop = asyncio.get_running_loop()
        for name in ("a", "b"):
            fleet.start(name, rpm=600)
        await watched(fleet, 10.0)
        fleet.seats["a"].writer.goes_on.clear()
        hung_s = loop.time()
        await watched(fleet, 20.0)
        assert not vendor.within(hung_s + SHARE_LEASE_S, loop.time(), "a")
        assert vendor.within(hung_s + 10.0, loop.time(), "b") >= 0.9 * 100, "who has all of it by then"
        fleet.seats["a"].writer.goes_on.set()
        back_s = loop.time()
        await watched(fleet, 20.0)
        assert vendor.within(back_s + 10.0, loop.time(), "a") > 0.9 * 40

    run_fleet(scene, store_here, vendor)
    assert vendor.refused_share() < 0.02


def test_a_limit_that_only_the_headers_say_is_shared_too(store_here: Store) -> None:
    vendor = MinuteVendor(per_minute=600, states=True)
    submit(store_here, "batch_a", [new_segment(number, 500) for number in range(12)])

    async def scene(fleet: Fleet) -> None:
        for name in NAMES:
            fleet.start(name)
        await asyncio.sleep(10.0)  # by then it is known
        await watched(fleet, 170.0)

    run_fleet(scene, store_here, vendor)
    assert vendor.within(60.0, 180.0) >= 0.95 * 1_200
    assert vendor.refused_share() == 0.0
    for name in NAMES:
        assert vendor.within(60.0, 180.0, name) == pytest.approx(300, rel=0.15)


def test_a_lane_keeps_to_what_each_batch_on_it_asks_for_while_it_is_there() -> None:
    """Whoever came first: the lane is open already, for a batch without a limit."""
    store = open_store(":memory:")
    took_s: dict[str, float] = {}
    peaks: dict[str, int] = {}

    async def scene(fleet: Fleet) -> None:
        worker = fleet.start("w").worker
        for name, of in (
            ("free", spec()),
            ("bound", msgspec.structs.replace(spec(), rpm=60, concurrency=2)),
            ("again", spec()),
        ):
            began_s = asyncio.get_running_loop().time()
            submit(store, name, [new_segment(0, 20)], of)
            peaks[name] = 0

            def ended(name: str = name) -> bool:
                peaks[name] = max(peaks[name], worker.sender.in_flight)
                return store.get_batch(name).facts.settled

            took_s[name] = await until(ended, at_most_s=120, step_s=0.01) - began_s

    run_fleet(scene, store, MinuteVendor(1_000_000))
    store.close()
    assert took_s["bound"] > 10 > took_s["free"] + took_s["again"]
    assert peaks["bound"] <= 2 < min(peaks["free"], peaks["again"])


def test_no_batch_asks_for_more_at_once_than_a_vendor_can_work_on() -> None:
    store = open_store(":memory:")
    peak = [0]

    async def scene(fleet: Fleet) -> None:
        worker = fleet.start("w").worker
        for name, concurrency in (("first", 0), ("more", 100), ("less", 2), ("again", 0)):
            submit(store, name, [new_segment(0, 40)], msgspec.structs.replace(spec(), concurrency=concurrency))

            def ended(name: str = name) -> bool:
                peak[0] = max(peak[0], worker.sender.in_flight)
                return store.get_batch(name).facts.settled

            await until(ended, at_most_s=120, step_s=0.01)

    run_fleet(scene, store, MinuteVendor(1_000_000, max_in_flight=4))
    store.close()
    assert peak == [4]
