"""Lanes that a person closes, and workers that are asked to end, in real workers on a clock of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from batchwright.core.batch_spec import Destination, RouteStep
from batchwright.core.batch_state import PauseCause
from batchwright.core.lane_wait import LaneWait, WaitCause
from batchwright.core.quarantine import Quarantine
from batchwright.core.records import InputRow, SegmentInput
from batchwright.core.worker_id import WorkerId
from batchwright.ports.store import Store
from batchwright.store.open import open_store
from batchwright.wire import frames
from support.fleet import EPOCH_MS, Fleet, MinuteVendor, run_fleet, until
from support.store_drive import LANE, new_segment, spec, submit

NAME = f"{LANE}#00000000"
HEARD_S = 6.0
"""A heartbeat, and a turn of the worker."""
OPENAI = Quarantine(vendor="openai", model="", reason="their bills are wrong", since_ms=EPOCH_MS)


@pytest.fixture
def store() -> Iterator[Store]:
    found = open_store(":memory:")
    yield found
    for row in found.find_batches():
        assert found.check(row.batch_id) == []
    found.close()


def test_a_closed_lane_gets_nothing_from_any_worker_until_it_is_opened(store: Store) -> None:
    vendor = MinuteVendor(per_minute=6_000)
    submit(store, "batch_a", [new_segment(number, 500) for number in range(8)])

    async def scene(fleet: Fleet) -> None:
        loop = asyncio.get_running_loop()
        for name in ("a", "b"):
            fleet.start(name, rpm=600)
        await asyncio.sleep(10.0)
        store.set_quarantine(OPENAI)
        await asyncio.sleep(HEARD_S)
        closed_s = loop.time()
        waits = store.get_batch("batch_a").waits
        assert {wait.cause for wait in waits} == {WaitCause.QUARANTINED}
        assert waits[0].sentence(EPOCH_MS) == "quarantined: their bills are wrong"
        await asyncio.sleep(400.0)  # longer than from one probe to the next
        assert vendor.within(closed_s, loop.time()) == 0
        (pause,) = store.get_batch("batch_a").pauses
        assert pause.cause is PauseCause.LANE
        assert pause.reason == (
            "openai, m: quarantined: their bills are wrong; `batchwright lanes resume openai` lifts it"
        )
        store.resume_batch("batch_a")
        await asyncio.sleep(HEARD_S)
        assert len(store.get_batch("batch_a").pauses) == 1, "to resume the batch opens no lane"
        assert vendor.within(closed_s, loop.time()) == 0
        assert store.lift_quarantine("openai", "")
        opened_s = loop.time()
        await asyncio.sleep(HEARD_S + 10.0)
        assert vendor.within(opened_s, loop.time()) > 0.9 * 100
        assert store.get_batch("batch_a").pauses == ()

    run_fleet(scene, store, vendor)


def test_a_worker_that_comes_while_a_lane_is_closed_sends_nothing_there_either(store: Store) -> None:
    vendor = MinuteVendor(per_minute=6_000)
    store.set_quarantine(Quarantine(vendor="openai", model="m", reason="", since_ms=EPOCH_MS))
    submit(store, "batch_a", [new_segment(0, 50)])

    async def scene(fleet: Fleet) -> None:
        fleet.start("a")
        await until(lambda: bool(store.get_batch("batch_a").pauses), at_most_s=10.0)
        assert vendor.sent == []
        fleet.start("run", only_batch="batch_a")
        await until(fleet.seats["run"].task.done, at_most_s=10.0)  # `run` ends, and says why
        assert vendor.sent == []
        store.lift_quarantine("openai", "m")
        await until(lambda: store.get_batch("batch_a").settled_at_ms > 0, at_most_s=30.0)

    run_fleet(scene, store, vendor)
    assert len(vendor.sent) == 50


def test_rows_of_a_route_go_to_its_next_lane(store: Store) -> None:
    vendor = MinuteVendor(per_minute=60_000)
    names = ("first", "second")
    of = msgspec.structs.replace(
        spec(),
        destinations=tuple(
            Destination(vendor=name, base_url=f"https://{name}.test/v1", key_env="KEY") for name in names
        ),
        routes={"any": tuple(RouteStep(vendor=name, model="m", weight=1) for name in names)},
    )
    lanes = [f"{name}|KEY|m" for name in names]
    rows = [InputRow(body=b'{"model":"m"}', model="m", route="any", line=row + 1) for row in range(500)]
    packed = frames.pack_input(SegmentInput(lanes=lanes, rows=rows))
    submit(store, "batch_a", [replace(new_segment(0, 500, lanes="\n".join(lanes)), input=packed)], of)

    async def scene(fleet: Fleet) -> None:
        fleet.start("a")
        await until(lambda: vendor.by_name["first"] > 0, at_most_s=10.0)
        store.set_quarantine(Quarantine(vendor="first", model="", reason="", since_ms=EPOCH_MS))
        await until(lambda: store.get_batch("batch_a").settled_at_ms > 0, at_most_s=60.0)

    vendor.latency_s = 2.0
    run_fleet(scene, store, vendor)
    assert vendor.by_name["first"] < 200
    assert vendor.by_name.total() == 500


def test_what_people_ask_is_heard_before_the_next_heartbeat(tmp_path: Path) -> None:
    vendor = MinuteVendor(per_minute=60_000, latency_s=1.0)
    path = tmp_path / "batchwright.sqlite"
    store, elsewhere = open_store(path), open_store(path)
    submit(store, "batch_a", [new_segment(number, 500) for number in range(8)])

    async def scene(fleet: Fleet) -> None:
        loop = asyncio.get_running_loop()
        for name in ("busy", "idle"):
            fleet.start(name)
            fleet.seats[name].worker.settings = replace(fleet.seats[name].worker.settings, heartbeat_s=600.0)
        busy, idle = (fleet.seats[name].worker for name in ("busy", "idle"))
        idle.claims = False
        await until(lambda: busy.sender.in_flight > 0, at_most_s=5.0)
        began_s = loop.time()
        elsewhere.set_quarantine(OPENAI)
        await until(lambda: busy.floor.quarantines == idle.floor.quarantines == (OPENAI,), at_most_s=3.0)
        elsewhere.lift_quarantine("openai", "")
        await until(lambda: busy.floor.quarantines == idle.floor.quarantines == (), at_most_s=3.0)
        for worker in (busy, idle):
            assert elsewhere.drain_worker(worker.identity)
        await until(lambda: busy.drained and idle.drained, at_most_s=3.0)
        assert loop.time() - began_s < 10.0

    run_fleet(scene, store, vendor)
    elsewhere.close()
    store.close()


def test_a_worker_that_stands_by_takes_rows_once_its_drain_is_ended(store: Store) -> None:
    vendor = MinuteVendor(per_minute=60_000)
    submit(store, "batch_a", [new_segment(0)])

    async def scene(fleet: Fleet) -> None:
        worker = fleet.start("a", standing_by=True).worker
        await asyncio.sleep(60.0)
        assert vendor.sent == []
        assert worker.view().drained
        (row,) = store.live_workers()
        assert (row.state.drained, "workers resume a" in row.note) == (True, True)
        assert store.end_drain(worker.identity)
        await until(lambda: store.get_batch("batch_a").settled_at_ms > 0, at_most_s=20.0)
        assert not worker.view().drained

    run_fleet(scene, store, vendor)


def test_a_lane_that_was_opened_is_named_no_more_though_its_workers_say_so(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    who = WorkerId("w", "1")
    store.register_worker(who, host="here", pid=7, now_ms=EPOCH_MS)
    told = [LaneWait(NAME, cause, "", EPOCH_MS, 0) for cause in (WaitCause.QUARANTINED, WaitCause.OUTAGE)]
    store.heartbeat(who, EPOCH_MS, waits=told)
    store.set_quarantine(OPENAI)
    assert [wait.cause for wait in store.get_batch("batch_a").waits] == [WaitCause.QUARANTINED, WaitCause.OUTAGE]
    assert store.lift_quarantine("openai", "")
    assert [wait.cause for wait in store.get_batch("batch_a").waits] == [WaitCause.OUTAGE]
    store.end_worker(who)


def test_a_drained_worker_lets_its_rows_come_back_and_ends_while_others_go_on(store: Store) -> None:
    vendor = MinuteVendor(per_minute=60_000, latency_s=2.0)
    submit(store, "batch_a", [new_segment(number, 500) for number in range(8)])

    async def scene(fleet: Fleet) -> None:
        for name in ("a", "b"):
            fleet.start(name, rpm=600)
        await asyncio.sleep(10.0)
        leaving = fleet.seats["a"]
        assert store.drain_worker(leaving.worker.identity)
        await until(leaving.task.done, at_most_s=HEARD_S + 5.0)
        assert leaving.task.exception() is None
        assert leaving.worker.drained
        assert not fleet.seats["b"].task.done()
        assert not fleet.seats["b"].worker.drained
        assert [row.worker.name for row in store.live_workers()] == ["b"]
        ended_s = asyncio.get_running_loop().time()
        await asyncio.sleep(20.0)
        assert vendor.within(ended_s + 5.0, ended_s + 20.0, "b") > 0.9 * 150
        tally = store.get_batch("batch_a").tally
        assert tally.doubts == 0, "nothing that was out was dropped"

    run_fleet(scene, store, vendor)
