"""The watch over processes: what it tells, when it gives up, and that all is one worker to who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from batchwright.core.errors import StoreError, UsageError
from batchwright.fabric import processes
from batchwright.fabric.hosting import together
from batchwright.fabric.processes import ProcessPlan, ProcessWorkers
from batchwright.fabric.system import SystemClock
from batchwright.ports.observer import LaneView, WorkerView
from support.builders import Build
from support.patience import PATIENCE_S


async def host(build: Build, look: Callable[[ProcessWorkers], bool] | None = None, count: int = 2) -> list[str]:
    """What was said until they ended; stopped once `look` holds of them."""
    said: list[str] = []
    workers = ProcessWorkers(ProcessPlan(build=build, count=count), clock=SystemClock(), say=said.append)
    async with asyncio.timeout(PATIENCE_S):
        if look is not None:
            while not look(workers):
                await SystemClock().sleep(0.02)  # until the next figures: they come by themselves
            await workers.stop(grace=True)
        await workers.wait()
    assert workers.view() is None
    return said


async def all_work() -> None:
    def look(workers: ProcessWorkers) -> bool:
        view = workers.view()
        return view is not None and view.answered == 14 and not view.note

    assert await host(Build(), look) == ["It is built.", "It is built."]


def test_several_are_one_worker_to_who_waits_for_them() -> None:
    asyncio.run(all_work())


def test_what_is_refused_from_the_first_is_not_tried_again() -> None:
    with pytest.raises(UsageError, match="such workers are not to be had"):
        asyncio.run(host(Build(refuses=True)))


def test_starts_that_lead_to_nothing_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "WAIT_MIN_S", 0.01)
    with pytest.raises(StoreError, match=r"ended: the disk is full\. It was started 5 times and never began to work\."):
        asyncio.run(host(Build(fails=True), count=1))


def view_of(answered: int, idle_looks: int, *lanes: LaneView) -> WorkerView:
    return WorkerView(
        in_flight=answered, answered=answered, retries_waiting=1, lanes=lanes, note="no key", idle_looks=idle_looks
    )


def test_several_views_are_one() -> None:
    one = LaneView(lane="openai|KEY|m", in_flight=3, limit=16, waiting="")
    other = LaneView(lane="openai|KEY|m", in_flight=4, limit=32, waiting="rate limit")
    whole = together([view_of(2, 5, one), view_of(3, 4, other)])
    assert whole == WorkerView(
        in_flight=5,
        answered=5,
        retries_waiting=2,
        lanes=(LaneView(lane="openai|KEY|m", in_flight=7, limit=48, waiting="rate limit"),),
        note="no key",
        idle_looks=4,
    )
    assert together([]).idle_looks == 0
