from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.rate import Gcra, burst_of


def send_all(rate: Gcra, amounts: list[float], gaps_s: list[float]) -> list[tuple[float, float]]:
    """Asks for each amount in turn, after a gap, and waits as told; returns (moment, amount) of what was taken."""
    now_s = 10.0
    taken = []
    for amount, gap_s in zip(amounts, gaps_s, strict=True):
        now_s += gap_s
        while (wait_s := rate.wait_s(now_s, amount)) > 0.0:
            now_s += wait_s + 1e-9
        rate.take(now_s, amount)
        taken.append((now_s, amount))
    return taken


@given(
    per_minute=st.floats(1.0, 100_000.0),
    gaps_s=st.lists(st.floats(0.0, 3.0) | st.just(0.0), min_size=1, max_size=300),
)
def test_no_minute_has_more_requests_than_the_limit(per_minute: float, gaps_s: list[float]) -> None:
    taken = send_all(Gcra(per_minute, 10.0), [1.0] * len(gaps_s), gaps_s)
    for first, (begin_s, _) in enumerate(taken):
        within = sum(amount for moment_s, amount in taken[first:] if moment_s < begin_s + 60.0 - 1e-3)
        assert within <= math.ceil(per_minute)


@given(
    per_minute=st.floats(6_000.0, 1_000_000.0),
    parts=st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.0, 20.0)), min_size=1, max_size=200),
)
def test_no_minute_has_more_tokens_than_the_limit(per_minute: float, parts: list[tuple[float, float]]) -> None:
    burst = per_minute / 600.0
    taken = send_all(Gcra(per_minute, 10.0), [share * burst for share, _ in parts], [gap_s for _, gap_s in parts])
    for first, (begin_s, _) in enumerate(taken):
        within = sum(amount for moment_s, amount in taken[first:] if moment_s < begin_s + 60.0 - 1e-3)
        assert within <= per_minute * (1.0 + 1e-6) + 1.0


@pytest.mark.parametrize("per_minute", [1.0, 59.0, 600.0, 30_000.0])
def test_the_limit_is_nearly_used_up(per_minute: float) -> None:
    taken = send_all(Gcra(per_minute, 10.0), [1.0] * (int(per_minute) * 2), [0.0] * (int(per_minute) * 2))
    seconds = taken[-1][0] - taken[0][0]
    assert len(taken) / (seconds + 60.0 / per_minute) * 60.0 >= 0.97 * per_minute


@pytest.mark.parametrize(("per_minute", "at_once"), [(1.0, 1), (600.0, 1), (6_000.0, 10), (30_000.0, 50)])
def test_a_burst_of_a_tenth_of_a_second_may_start_at_once_and_not_more(per_minute: float, at_once: int) -> None:
    rate = Gcra(per_minute, 0.0)
    started = 0
    while rate.wait_s(0.0, 1) == 0.0:
        rate.take(0.0, 1)
        started += 1
    assert started == at_once
    assert rate.wait_s(0.0, 1) == pytest.approx(60.0 / per_minute, rel=0.02)


def test_an_amount_above_the_burst_goes_when_nothing_is_owed() -> None:
    rate = Gcra(6_000.0, 0.0)
    assert rate.wait_s(0.0, 5_000) == 0.0
    rate.take(0.0, 5_000)
    wait_s = rate.wait_s(0.0, 5_000)
    assert wait_s == pytest.approx(50.0, rel=0.02)
    assert rate.wait_s(wait_s, 5_000) == 0.0


def test_what_is_given_back_can_be_taken_again() -> None:
    rate = Gcra(6_000.0, 0.0)
    rate.take(0.0, 5_000)
    rate.give_back(4_995)
    assert rate.wait_s(0.0, 5) == 0.0
    rate.give_back(-600)
    assert rate.wait_s(0.0, 5) > 5.0


def test_another_rate_keeps_what_is_owed_in_units() -> None:
    rate = Gcra(60.0, 0.0)
    for _ in range(10):
        rate.take(0.0, 1)
    before_s = rate.wait_s(0.0, 1)
    rate.change_rate(120.0, 0.0)
    assert rate.per_minute == 120.0
    assert rate.wait_s(0.0, 1) == pytest.approx(before_s / 2, rel=0.12)


def test_waiting_as_told_is_always_enough() -> None:
    rate = Gcra(90.0, 5.0)
    moments = [moment_s for moment_s, _ in send_all(rate, [1.0] * 20, [0.0] * 20)]
    assert all(later >= earlier for earlier, later in pairwise(moments))


@given(per_minute=st.integers(1, 2_000), gaps_s=st.lists(st.floats(0.0, 3.0) | st.just(0.0), min_size=1, max_size=300))
def test_a_burst_takes_nothing_beyond_the_minute(per_minute: int, gaps_s: list[float]) -> None:
    taken = send_all(Gcra(per_minute, 10.0, burst=burst_of(per_minute)), [1.0] * len(gaps_s), gaps_s)
    for first, (begin_s, _) in enumerate(taken):
        assert sum(amount for moment_s, amount in taken[first:] if moment_s < begin_s + 60.0 - 1e-3) <= per_minute


@pytest.mark.parametrize(("per_minute", "burst"), [(1, 1), (6, 3), (20, 5), (600, 60)])
def test_a_burst_goes_at_once_and_the_minute_is_nearly_used_up(per_minute: int, burst: int) -> None:
    assert burst_of(per_minute) == burst
    taken = send_all(Gcra(per_minute, 10.0, burst=burst), [1.0] * (per_minute + 1), [0.0] * (per_minute + 1))
    assert [moment_s for moment_s, _ in taken[:burst]] == [10.0] * burst
    assert sum(1 for moment_s, _ in taken if moment_s < 70.0) >= per_minute * 0.98 - 1
