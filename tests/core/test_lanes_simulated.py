"""Lanes in simulated time against vendors that behave as real ones do (`support.lane_world`)."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.core.failures import FailureKind
from batchwright.core.lanes import LaneSettings
from batchwright.core.rate import Limits
from support.lane_world import LaneWorld, Reply, VendorModel

LIMITED = FailureKind.RATE_LIMITED
SEEDS = range(8)


def scattered(
    seed: int, *, limited: float = 0.0, overloaded: float = 0.0, dropped: float = 0.0, wait_s: float = 0.0
) -> VendorModel:
    """50 ms on average; fails so large shares of attempts, at any speed."""
    chance = random.Random(seed)

    def vendor(now_s: float, row: int, nth: int) -> Reply:
        latency_s = 0.05 * (0.5 + chance.random())
        draw = chance.random()
        if draw < limited:
            return Reply(kind=LIMITED, latency_s=0.005, wait_s=wait_s)
        if draw < limited + overloaded:
            return Reply(kind=FailureKind.OVERLOADED, latency_s=0.005)
        if draw < limited + overloaded + dropped:
            return Reply(kind=FailureKind.NETWORK, latency_s=latency_s)
        return Reply(latency_s=latency_s)

    return vendor


def bucket(per_minute: float, *, capacity: float, latency_s: float, states: bool, wait_s: float = 0.0) -> VendorModel:
    """Refuses what a token bucket does not hold."""
    level, filled_s = capacity, 1.0

    def vendor(now_s: float, row: int, nth: int) -> Reply:
        nonlocal level, filled_s
        level = min(capacity, level + (now_s - filled_s) * per_minute / 60.0)
        filled_s = now_s
        limits = None
        if states:
            left = float(max(0, int(level - 1)))
            limits = Limits(requests_per_minute=per_minute, remaining_requests=left, reset_s=60.0 / per_minute)
        if level < 1.0:
            return Reply(kind=LIMITED, latency_s=0.01, limits=limits, wait_s=wait_s)
        level -= 1.0
        return Reply(latency_s=latency_s, limits=limits)

    return vendor


def by_the_minute(per_minute: int, *, latency_s: float, states: bool, tells: bool) -> VendorModel:
    """Counts by the minute of its own clock."""
    minute, used = 0, 0

    def vendor(now_s: float, row: int, nth: int) -> Reply:
        nonlocal minute, used
        if int(now_s // 60) != minute:
            minute, used = int(now_s // 60), 0
        left_s = 60.0 * (minute + 1) - now_s
        refused = used >= per_minute
        used += not refused
        limits = None
        if states:
            limits = Limits(requests_per_minute=per_minute, remaining_requests=float(per_minute - used), reset_s=left_s)
        if refused:
            return Reply(kind=LIMITED, latency_s=0.01, limits=limits, wait_s=left_s if tells else 0.0)
        return Reply(latency_s=latency_s, limits=limits)

    return vendor


def concurrent(most: int, *, latency_s: float, wait_s: float = 0.0) -> VendorModel:
    """Refuses more than so many rows at a time."""
    chance = random.Random(1)
    busy: list[float] = []

    def vendor(now_s: float, row: int, nth: int) -> Reply:
        while busy and busy[0] <= now_s:
            heapq.heappop(busy)
        if len(busy) >= most:
            return Reply(kind=LIMITED, latency_s=0.01, wait_s=wait_s)
        took_s = latency_s * (0.5 + chance.random())
        heapq.heappush(busy, now_s + took_s)
        return Reply(latency_s=took_s)

    return vendor


def all_answered(world: LaneWorld) -> bool:
    return len(world.ends) == world.rows and not any(world.ends.values())


def test_a_clean_vendor_is_used_up_to_the_ceiling() -> None:
    world = LaneWorld(vendor=scattered(1), rows=10_000).run()
    assert all_answered(world)
    assert world.lane.limit == 256
    assert world.spent_s < 1.15 * 10_000 * 0.05 / 256


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("wait_s", [0.0, 1.0])
def test_scattered_refusals_keep_the_limit_near_the_ceiling(seed: int, wait_s: float) -> None:
    world = LaneWorld(vendor=scattered(seed, limited=0.02, wait_s=wait_s), rows=10_000, seed=seed).run()
    assert all_answered(world)
    busiest = sorted(world.limits_seen)[len(world.limits_seen) // 4 :]
    assert min(busiest) >= 0.9 * 256


@pytest.mark.parametrize("seed", SEEDS)
def test_scattered_faults_of_all_kinds_cost_little_time(seed: int) -> None:
    vendor = scattered(seed, limited=0.02, overloaded=0.02, dropped=0.02)
    world = LaneWorld(vendor=vendor, rows=10_000, seed=seed).run()
    # Four or five failures of one row end it now and then: 6% to the fifth of ten thousand rows.
    assert len(world.ends) == 10_000
    assert sum(end is not None for end in world.ends.values()) <= 2
    assert max(world.limits_seen) == 256
    # 2 s at full speed, and up to 5 s for the back-off of the unluckiest rows.
    assert world.spent_s < 7.0


@pytest.mark.parametrize("seed", SEEDS)
def test_every_first_answer_a_429_with_a_wait(seed: int) -> None:
    """40 rows, 20 at a time, each refused once with Retry-After: 3 (A13)."""

    def vendor(now_s: float, row: int, nth: int) -> Reply:
        return Reply(latency_s=0.01) if nth else Reply(kind=LIMITED, latency_s=0.01, wait_s=3.0)

    world = LaneWorld(vendor=vendor, rows=40, settings=LaneSettings(ceiling=20), seed=seed).run()
    assert all_answered(world)
    assert len(world.sends) == 80
    refused_s = {send.row: send.at_s + 0.01 for send in world.sends if not send.nth}
    second = [send for send in world.sends if send.nth]
    assert all(send.at_s >= refused_s[send.row] + 3.0 for send in second)
    assert min(send.at_s for send in second) >= min(refused_s.values()) + 3.0
    first_wave = sorted(send.at_s for send in second)[:16]
    assert first_wave[-1] - first_wave[0] >= 0.5
    assert world.spent_s < 25.0


@pytest.mark.parametrize("capacity", [1.0, 10.0, 600.0])
@pytest.mark.parametrize("latency_s", [0.05, 1.0, 5.0])
@pytest.mark.parametrize("wait_s", [0.0, 1.0])
def test_a_stated_limit_is_used_up_without_tripping_it(capacity: float, latency_s: float, wait_s: float) -> None:
    vendor = bucket(600.0, capacity=capacity, latency_s=latency_s, states=True, wait_s=wait_s)
    world = LaneWorld(vendor=vendor, rows=3_000).run()
    assert all_answered(world)
    assert 3_000 / (world.spent_s - latency_s) * 60.0 >= 0.9 * 600.0
    assert world.share(LIMITED) < 0.02


@pytest.mark.parametrize("tells", [False, True])
def test_a_limit_by_the_clocks_minute_is_used_up_without_tripping_it(tells: bool) -> None:
    vendor = by_the_minute(600, latency_s=0.5, states=True, tells=tells)
    world = LaneWorld(vendor=vendor, rows=3_000).run()
    assert all_answered(world)
    assert 3_000 / world.spent_s * 60.0 >= 0.9 * 600.0
    assert world.share(LIMITED) < 0.02


def test_a_configured_rate_is_never_exceeded_in_any_minute() -> None:
    world = LaneWorld(
        vendor=scattered(1, limited=0.05, dropped=0.02),
        rows=1_500,
        settings=LaneSettings(requests_per_minute=300.0, tokens_per_minute=40_000.0),
        tokens=100,
    ).run()
    moments = [send.at_s for send in world.sends]
    for first, begin_s in enumerate(moments):
        within = sum(1 for moment_s in moments[first : first + 400] if moment_s < begin_s + 60.0 - 1e-3)
        assert within <= 300
    assert len(moments) / world.spent_s * 60.0 >= 0.95 * 300


@pytest.mark.parametrize(
    ("vendor", "rows", "ideal_s"),
    [
        (lambda: by_the_minute(600, latency_s=0.5, states=False, tells=True), 3_000, 4 * 60.0),
        (lambda: by_the_minute(600, latency_s=0.5, states=False, tells=False), 3_000, 4 * 60.0),
        (lambda: bucket(600.0, capacity=600.0, latency_s=1.0, states=False), 3_000, 240.0),
        (lambda: bucket(600.0, capacity=10.0, latency_s=1.0, states=False), 3_000, 300.0),
        (lambda: bucket(600.0, capacity=600.0, latency_s=1.0, states=False, wait_s=1.0), 3_000, 240.0),
        (lambda: concurrent(1, latency_s=2.0), 300, 600.0),
        (lambda: concurrent(10, latency_s=2.0), 3_000, 600.0),
        (lambda: concurrent(10, latency_s=2.0, wait_s=1.0), 3_000, 600.0),
        (lambda: concurrent(100, latency_s=2.0), 20_000, 400.0),
    ],
    ids=["minute-told", "minute", "bucket", "small-bucket", "bucket-told", "one", "ten", "ten-told", "hundred"],
)
def test_a_limit_nobody_states_is_found_and_nearly_used_up(
    vendor: Callable[[], VendorModel], rows: int, ideal_s: float
) -> None:
    world = LaneWorld(vendor=vendor(), rows=rows).run()
    assert all_answered(world)
    assert world.spent_s < 1.3 * ideal_s


@pytest.mark.parametrize("kind", [FailureKind.OVERLOADED, FailureKind.NETWORK, FailureKind.UNREACHABLE])
def test_a_minute_of_outage_costs_a_minute_and_few_sends(kind: FailureKind) -> None:
    def vendor(now_s: float, row: int, nth: int) -> Reply:
        return Reply(kind=kind, latency_s=0.02) if 6.0 <= now_s < 66.0 else Reply(latency_s=0.05)

    world = LaneWorld(vendor=vendor, rows=50_000, max_attempts=20).run()
    assert len(world.ends) == 50_000
    assert not any(world.ends.values())
    assert world.spent_s < 105.0
    quiet = [send for send in world.sends if 10.0 <= send.at_s < 66.0]
    assert len(quiet) <= 8
    assert all(send.in_flight == 1 for send in quiet[2:])


def test_a_vendor_that_refuses_everything_is_asked_seldom_and_given_up() -> None:
    def vendor(now_s: float, row: int, nth: int) -> Reply:
        return Reply(kind=LIMITED, latency_s=0.05)

    world = LaneWorld(vendor=vendor, rows=10_000).run()
    assert world.lane.paused_reason.startswith("no row was answered for 30 min")
    assert 1_800.0 <= world.spent_s < 1_840.0
    assert len(world.sends) < 250


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    limited=st.floats(0.0, 0.6),
    overloaded=st.floats(0.0, 0.2),
    dropped=st.floats(0.0, 0.1),
    wait_s=st.sampled_from([0.0, 0.5, 3.0]),
    start=st.integers(1, 40),
    ceiling=st.integers(1, 64),
    requests_per_minute=st.sampled_from([0.0, 600.0, 60_000.0]),
)
def test_no_more_rows_are_out_than_the_limit_allows_and_all_end(
    seed: int,
    limited: float,
    overloaded: float,
    dropped: float,
    wait_s: float,
    start: int,
    ceiling: int,
    requests_per_minute: float,
) -> None:
    world = LaneWorld(
        vendor=scattered(seed, limited=limited, overloaded=overloaded, dropped=dropped, wait_s=wait_s),
        rows=150,
        seed=seed,
        settings=LaneSettings(start=start, ceiling=ceiling, requests_per_minute=requests_per_minute),
    ).run()
    assert all(send.in_flight <= send.limit <= ceiling for send in world.sends)
    assert len(world.ends) == 150
    assert world.lane.in_flight == len(world.sends) - len(world.kinds)
