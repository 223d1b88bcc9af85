"""A desk's calls go before its rows, within the lane; and what they used is written, whatever becomes of a commit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any, cast

from batchwright.core.batch_spec import Destination, LaneKey
from batchwright.core.errors import StoreError
from batchwright.core.lanes import Lane, LaneSettings
from batchwright.core.records import UsageKey, UsageSum
from batchwright.core.worker_id import WorkerId
from batchwright.engine.desk import BatchLine, LaneDesk
from batchwright.engine.sender import Sender
from batchwright.engine.usage_book import UsageBook
from batchwright.engine.worker_settings import NO_LIMITS, WorkerSettings
from batchwright.engine.writer import StoreThread
from batchwright.ports.observer import WorkerFigures
from batchwright.ports.row_files import NoFiles
from batchwright.ports.store import Store
from batchwright.ports.vendor import Vendor
from support.loop_clock import LoopClock

KEY = UsageKey("2026-11-30", "KEY", "m", "acme")


class Ring:
    """A call that waits at a desk."""

    tokens = 1

    def __init__(self) -> None:
        self.went = False
        self.refused_s = -1.0

    def go(self, vendor: Vendor, now_s: float) -> None:
        self.went = True

    def refuse(self, retry_after_s: float) -> None:
        self.refused_s = retry_after_s


class WatchedDesk(LaneDesk):
    """Has no rows, and counts how often it is asked for one."""

    asked = 0

    def next_ready(self) -> BatchLine | None:
        self.asked += 1
        return None


def desk_of(ceiling: int) -> WatchedDesk:
    desk = WatchedDesk(
        LaneKey("acme", "", "m"),
        name="acme",
        destination=Destination(vendor="acme", base_url=""),
        lane=Lane(LaneSettings(start=ceiling, ceiling=ceiling), now_s=0.0),
        limits=NO_LIMITS,
        price=None,
    )
    desk.vendor = cast(Vendor, object())
    return desk


def sender() -> Sender:
    sender = Sender(
        settings=WorkerSettings(),
        attempts=cast(Any, None),
        clock=LoopClock(),
        call_soon=lambda call: None,
        call_later=lambda delay_s, call, desk: cast(Any, None),
        wake=lambda: None,
        hurry=lambda: None,
        report=print,
        figures=WorkerFigures(),
        files=NoFiles(),
    )
    sender.send_until_s = math.inf
    return sender


def test_no_row_is_asked_for_while_a_call_waits() -> None:
    desk, sending, rings = desk_of(2), sender(), [Ring(), Ring(), Ring()]
    desk.callers.extend(rings)
    sending.pump(desk, 1.0)
    assert [ring.went for ring in rings] == [True, True, False]
    assert (desk.asked, desk.lane.in_flight) == (0, 2)
    desk.lane.succeeded(2.0, 1.0)
    sending.pump(desk, 2.0)
    assert rings[2].went
    assert desk.asked == 1


def test_calls_go_although_rows_may_not() -> None:
    """A worker whose lease has run out, or that stops, still answers who is here."""
    desk, sending, ring = desk_of(2), sender(), Ring()
    sending.sending = False
    sending.send_until_s = 0.0
    desk.callers.append(ring)
    sending.pump(desk, 1.0)
    assert ring.went
    assert desk.asked == 0


def test_a_paused_lane_refuses_what_waits() -> None:
    desk, sending, ring = desk_of(2), sender(), Ring()
    desk.lane.pause(1.0, "auth (401 invalid_api_key): no such key")
    desk.callers.append(ring)
    sending.pump(desk, 1.0)
    assert (ring.went, ring.refused_s) == (False, math.inf)
    assert not desk.callers


class MoodyStore:
    """Takes no usage the first time."""

    def __init__(self) -> None:
        self.written: list[dict[UsageKey, UsageSum]] = []
        self.released: list[dict[str, int]] = []
        self.refusals = 1

    def add_usage(
        self, worker: WorkerId, deltas: Mapping[UsageKey, UsageSum], now_ms: int, *, released: Mapping[str, int]
    ) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreError("the disk is full")
        self.written.append(dict(deltas))
        self.released.append(dict(released))


def test_usage_that_could_not_be_written_goes_with_the_next() -> None:
    async def work() -> tuple[MoodyStore, list[str]]:
        store, writer = MoodyStore(), StoreThread("writer")
        said: list[str] = []
        try:
            book = UsageBook(
                cast(Store, store), writer=writer, clock=LoopClock(), worker=WorkerId("w", "1"), report=said.append
            )
            await book.count(KEY, UsageSum(answers=1, cost_picousd=5), released_picousd=9)
            assert not store.written
            await asyncio.gather(*(book.count(KEY, UsageSum(answers=1, cost_picousd=7)) for _ in range(50)))
            await book.flush()
        finally:
            writer.close()
        return store, said

    store, said = asyncio.run(work())
    total = UsageSum()
    for deltas in store.written:
        total.add(deltas[KEY])
    assert (total.answers, total.cost_picousd) == (51, 5 + 50 * 7)
    assert len(store.written) == 1, "what is counted at once goes in one transaction"
    assert store.released == [{KEY.key_id: 9}]
    assert "the disk is full" in said[0]
