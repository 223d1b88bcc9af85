"""A worker that is gone is followed by another in the same process, unless it was told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from batchwright.core.errors import StoreAway, StoreError, WorkerGone
from batchwright.core.worker_id import WorkerId
from batchwright.fabric import in_process
from batchwright.fabric.in_process import Hosted, LoopWorker
from batchwright.ports.observer import WorkerView


class Scripted:
    """Ends as it is told to by `fate`."""

    begun = False
    drained = False
    identity = WorkerId("here-7", "1")

    def __init__(self, standing_by: bool) -> None:
        self.standing_by = standing_by
        self.fate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.limits: list[Mapping[str, Any]] = []
        self.running = asyncio.Event()

    async def run(self) -> None:
        self.running.set()
        await self.fate

    def stop(self, *, grace: bool) -> None:
        if not self.fate.done():
            self.fate.set_exception(WorkerGone("taken for dead"))

    def look_again(self) -> None:
        pass

    def look_at_flags(self) -> None:
        pass

    def view(self) -> WorkerView:
        return WorkerView(in_flight=0, answered=0, retries_waiting=0, lanes=(), note="", drained=self.standing_by)

    def reload(self, vendor_limits: Mapping[str, Any]) -> None:
        self.limits.append(vendor_limits)


class House:
    def __init__(self, *, stays: bool = False) -> None:
        self.made: list[Scripted] = []
        self.let_go: list[Scripted] = []
        self.said: list[str] = []
        self.second_made, self.third_made = asyncio.Event(), asyncio.Event()
        self.told = asyncio.Event()
        self.hosted = LoopWorker(self.make, say=self.say, stays=stays)

    def say(self, text: str) -> None:
        self.said.append(text)
        self.told.set()

    def make(self, standing_by: bool) -> Hosted:
        worker = Scripted(standing_by)
        self.made.append(worker)
        if len(self.made) == 2:
            self.second_made.set()
        if len(self.made) == 3:
            self.third_made.set()
        return Hosted(worker, lambda: self.let_go.append(worker))


async def gone_once() -> House:
    house = House()
    house.hosted.reload({"house": 1})
    await house.made[0].running.wait()
    house.made[0].fate.set_exception(WorkerGone("taken for dead"))
    await house.second_made.wait()
    await house.made[1].running.wait()
    return house


def test_another_takes_the_place_of_one_that_is_gone() -> None:
    async def lives() -> None:
        house = await gone_once()
        assert house.let_go == house.made[:1], "its lock tells the others at once"
        assert house.said == ["A new worker begins in this process, for the last one is gone: taken for dead"]
        assert house.made[1].limits == [{"house": 1}], "what was read again since the start"
        house.made[1].fate.set_result(None)
        await house.hosted.wait()
        assert house.let_go == house.made

    asyncio.run(lives())


def test_whoever_was_told_to_stop_is_followed_by_nobody() -> None:
    async def lives() -> None:
        house = await gone_once()
        await house.hosted.stop(grace=True)
        with pytest.raises(WorkerGone):
            await house.hosted.wait()
        assert house.let_go == house.made
        assert len(house.made) == 2

    asyncio.run(lives())


def test_any_other_failure_goes_up() -> None:
    async def lives() -> None:
        house = House()
        await house.made[0].running.wait()
        house.made[0].fate.set_exception(StoreError("the disk is full"))
        with pytest.raises(StoreError, match="disk is full"):
            await house.hosted.wait()
        assert house.let_go == house.made

    asyncio.run(lives())


def test_one_that_was_drained_stands_by_where_it_would_only_be_begun_again() -> None:
    async def lives() -> None:
        house = House(stays=True)
        await house.made[0].running.wait()
        house.made[0].drained = True
        house.made[0].fate.set_result(None)
        await house.second_made.wait()
        assert [worker.standing_by for worker in house.made] == [False, True]
        (said,) = house.said
        assert said.endswith("It stands by until `batchwright workers resume here-7`.")
        await house.made[1].running.wait()
        house.made[1].fate.set_exception(WorkerGone("taken for dead"))  # as of a machine that slept
        await house.third_made.wait()
        assert house.made[2].standing_by, "its drain lasts"
        await house.made[2].running.wait()
        await house.hosted.stop(grace=True)
        with pytest.raises(WorkerGone):
            await house.hosted.wait()
        assert house.let_go == house.made
        assert len(house.made) == 3

    asyncio.run(lives())


async def drained_and_gone() -> House:
    house = House()
    await house.made[0].running.wait()
    house.made[0].drained = True
    assert house.hosted.drained
    house.made[0].fate.set_exception(WorkerGone("taken for dead"))
    await house.hosted.wait()
    return house


def test_one_that_was_drained_is_followed_by_none() -> None:
    house = asyncio.run(drained_and_gone())
    assert (len(house.made), house.let_go) == (1, house.made)


def test_one_that_has_not_begun_waits_for_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "BEGINS_AGAIN_AFTER_S", 0.001)

    async def lives() -> None:
        house = House()
        for number in range(2):
            await house.made[number].running.wait()
            house.made[number].fate.set_exception(StoreAway("the database is away"))
            await (house.second_made, house.third_made)[number].wait()
        await house.made[2].running.wait()
        assert house.said == ["The worker waits to begin, for 10 minutes at most: the database is away"]
        house.made[2].begun = True
        house.made[2].fate.set_exception(StoreAway("the database was away for ten minutes"))
        with pytest.raises(StoreAway, match="ten minutes"):
            await house.hosted.wait()
        assert house.let_go == house.made
        assert len(house.made) == 3

    asyncio.run(lives())


def test_its_wait_ends_when_it_is_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "BEGINS_AGAIN_AFTER_S", 3600.0)

    async def lives() -> None:
        house = House()
        await house.made[0].running.wait()
        house.made[0].fate.set_exception(StoreAway("the database is away"))
        await house.told.wait()
        await house.hosted.stop(grace=True)
        with pytest.raises(StoreAway):
            await house.hosted.wait()
        assert house.let_go == house.made
        assert len(house.made) == 1

    asyncio.run(lives())
