"""Shares of a lane's limit: whatever changes, and in whatever order workers beat, no more than the limit is in use."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.lanes import Lane, LaneEnd, LaneSettings
from batchwright.core.pace import SHARE_LOOK_S
from batchwright.core.rate import Limits
from batchwright.core.shares import (
    FLOOR_PPM,
    SMOOTHED_S,
    WHOLE_PPM,
    Demand,
    LaneUse,
    aim_ppm,
    countable_rows,
    grants,
)

LANE = "v||m#1"
DEMANDS = st.floats(1.0, 10_000.0)


@dataclass
class Sharer:
    """A worker at one lane, as `engine.shares` drives it: lower at once, look and tell in one transaction, then use."""

    demand: float
    told: LaneUse = field(default_factory=lambda: LaneUse(LANE))
    used_ppm: int = 0
    granted_ppm: int = -1
    """Committed, and not in use yet; -1: nothing is."""

    def lower(self, others: list[LaneUse]) -> None:
        self.used_ppm = min(self.used_ppm, aim_ppm(self.demand, (other.demand for other in others)))

    def tell(self, others: list[LaneUse]) -> None:
        use = LaneUse(LANE, demand=self.demand, share_ppm=self.used_ppm)
        self.granted_ppm = grants([use], others).get(LANE, 0)
        self.told = msgspec.structs.replace(use, share_ppm=self.granted_ppm)

    def use(self) -> None:
        if self.granted_ppm >= 0:
            self.used_ppm, self.granted_ppm = self.granted_ppm, -1


def others_of(workers: dict[int, Sharer], name: int) -> list[LaneUse]:
    return [worker.told for other, worker in workers.items() if other != name]


def check(workers: dict[int, Sharer]) -> None:
    assert sum(worker.used_ppm for worker in workers.values()) <= WHOLE_PPM
    assert sum(worker.told.share_ppm for worker in workers.values()) <= WHOLE_PPM
    assert all(worker.used_ppm <= worker.told.share_ppm for worker in workers.values())


STEPS = st.lists(
    st.tuples(st.sampled_from(["lower", "tell", "use", "tell", "use", "demand", "leave"]), st.integers(0, 5), DEMANDS),
    max_size=80,
)


@given(steps=STEPS)
def test_shares_in_use_never_sum_up_to_more_than_the_limit_and_all_reach_their_aims(
    steps: list[tuple[str, int, float]],
) -> None:
    workers: dict[int, Sharer] = {}
    for step, name, demand in steps:
        if step == "leave":
            workers.pop(name, None)  # it stopped sending before anybody takes its share for free
            continue
        worker = workers.setdefault(name, Sharer(demand))
        if step == "lower":
            worker.lower(others_of(workers, name))
        elif step == "tell":
            worker.use()  # a worker has one beat at a time
            worker.tell(others_of(workers, name))
        elif step == "use":
            worker.use()
        else:
            worker.demand = demand
        check(workers)
    for _ in range(3):  # all tell their demand and lower, all raise; the first of them heard of some demands late
        for name, worker in workers.items():
            worker.use()
            worker.lower(others_of(workers, name))
            worker.tell(others_of(workers, name))
            worker.use()
            check(workers)
    for name, worker in workers.items():
        assert worker.used_ppm == aim_ppm(worker.demand, (other.demand for other in others_of(workers, name)))
    if workers:
        unused_ppm = WHOLE_PPM - sum(worker.used_ppm for worker in workers.values())
        assert unused_ppm < len(workers), "but for what rounding leaves the limit is used up"


@given(demands=st.lists(DEMANDS, min_size=1, max_size=200))
def test_aims_are_fair(demands: list[float]) -> None:
    aims = [aim_ppm(own, [*demands[:at], *demands[at + 1 :]]) for at, own in enumerate(demands)]
    assert sum(aims) <= WHOLE_PPM
    assert min(aims) >= min(FLOOR_PPM, WHOLE_PPM // (2 * len(demands)))
    for own, aim in zip(demands, aims, strict=True):
        for other, another in zip(demands, aims, strict=True):
            assert aim <= another or own > other or aim == another, "who has more to send has no less"


def test_aims_go_by_demand_and_who_takes_no_part_counts_for_nothing() -> None:
    assert aim_ppm(300.0, [100.0]) == FLOOR_PPM + (WHOLE_PPM - 2 * FLOOR_PPM) * 3 // 4
    assert aim_ppm(5.0, [0.0, 0.0]) == WHOLE_PPM
    assert aim_ppm(0.0, [5.0]) == 0


def test_one_that_was_silent_so_long_that_others_use_its_share_gets_what_is_free() -> None:
    back = LaneUse(LANE, demand=10.0, share_ppm=500_000)
    assert grants([back], [LaneUse(LANE, demand=10.0, share_ppm=900_000)]) == {LANE: 100_000}
    assert grants([back], [LaneUse("another||m#1", demand=10.0, share_ppm=900_000)]) == {LANE: WHOLE_PPM}


def test_demand_is_smoothed_but_for_its_begin_and_its_end() -> None:
    demand = Demand()
    assert demand.see(10.0, 100.0) == 100.0
    assert demand.see(10.0 + SMOOTHED_S, 0.0) == 0.0
    assert demand.see(20.0, 40.0) == 40.0
    assert 55.0 < demand.see(20.0 + SMOOTHED_S, 70.0) < 60.0, "63% of the way after the time constant"


def test_a_backlog_counts_for_what_the_lane_could_send_soon() -> None:
    assert countable_rows(5_000, 600.0) == 100.0
    assert countable_rows(7, 600.0) == 7.0
    assert countable_rows(0, 600.0) == 1.0
    assert countable_rows(5_000, 1.0) == 1.0
    assert countable_rows(5_000, 0.0) == 64.0


# -------------------------------------------------------------------------------------------------------------- a lane


def sent_within(lane: Lane, from_s: float, until_s: float) -> int:
    """Rows that a lane lets go that is asked whenever it says so."""
    now_s, count = from_s, 0
    while now_s < until_s:
        wait_s = lane.admit(now_s, 0)
        if wait_s <= 0.0:
            count += 1
            lane.succeeded(now_s, now_s)
        now_s += max(wait_s, 1e-6)
    return count


def test_a_lane_sends_its_share_while_that_holds_and_nothing_without() -> None:
    lane = Lane(LaneSettings(requests_per_minute=600.0), now_s=0.0)
    lane.set_share(0.0, 0)
    assert lane.admit(0.0, 0) == SHARE_LOOK_S
    assert "waits for its share" in lane.waiting(0.5)
    lane.set_share(1.0, WHOLE_PPM // 4, until_s=61.0)
    assert sent_within(lane, 1.0, 61.0) == pytest.approx(0.99 * 150, abs=1.5)
    assert sent_within(lane, 61.0, 121.0) == 0, "it could not be told any more"
    lane.set_share(121.0, WHOLE_PPM, until_s=1_000.0)
    assert sent_within(lane, 121.0, 181.0) == pytest.approx(0.99 * 600, abs=1.5), "and nothing was saved up"


def test_what_was_taken_under_a_large_share_is_paid_off_under_a_small_one() -> None:
    lane = Lane(LaneSettings(tokens_per_minute=6_000.0), now_s=0.0)
    assert lane.admit(0.0, 600) == 0.0
    lane.set_share(0.0, WHOLE_PPM // 10)
    assert lane.admit(0.0, 600) == pytest.approx(30.0), "600 of 600 a minute; asked again half a minute later at most"
    assert sent_within(lane, 0.0, 59.0) <= 1


def test_a_limit_that_headers_name_is_shared_too() -> None:
    lane = Lane(LaneSettings(), now_s=0.0)
    assert lane.limits_per_minute == (0.0, 0.0)
    assert lane.admit(0.0, 0) == 0.0
    said = Limits(requests_per_minute=600.0, remaining_requests=300.0)
    lane.ended(0.1, LaneEnd(kind=None, success=True, limits=said, sent_s=0.0), 0.0)
    assert lane.limits_per_minute == (600.0, 0.0)
    lane.set_share(1.0, WHOLE_PPM // 2)
    assert sent_within(lane, 1.0, 61.0) == pytest.approx(0.99 * 300, abs=1.5)
    lane.set_share(61.0, 0)
    assert sent_within(lane, 61.0, 62.0) == 0
    plenty = Limits(requests_per_minute=600.0, remaining_requests=599.0)
    lane.in_flight += 1
    lane.ended(62.0, LaneEnd(kind=None, success=True, limits=plenty, sent_s=61.0), 0.0)
    assert lane.admit(62.0, 0) == 0.0, "while most of it remains nobody is held back by it"
    assert lane.limits_per_minute == (600.0, 0.0)
