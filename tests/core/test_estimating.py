"""A sum from a sample: right on the whole, exact where all is known, and wide where little is."""

from __future__ import annotations

import math
import random

import pytest

from batchwright.core.estimating import (
    Asked,
    AskedStratum,
    SumEstimate,
    estimate_sum,
    range_of,
    unseen_length,
)


def stratum(rows: list[tuple[float, float]], asked: list[int], lane: str = "a") -> AskedStratum:
    """`rows`: (size, value) of all of them."""
    return AskedStratum(lane, len(rows), sum(size for size, _ in rows), [Asked(*rows[place]) for place in asked])


def test_it_is_right_on_the_whole() -> None:
    chance = random.Random(1)
    rows = [(size := chance.uniform(10, 100), 3 * size + chance.expovariate(1 / 50)) for _ in range(400)]
    truth = sum(value for _, value in rows)
    found = [estimate_sum([stratum(rows, chance.sample(range(400), 40))]).likely for _ in range(400)]
    assert sum(found) / len(found) == pytest.approx(truth, rel=0.01)


def test_what_goes_with_the_size_is_known_from_few_rows() -> None:
    rows = [(float(size), 7.0 * size) for size in range(1, 201)]
    found = range_of(estimate_sum([stratum(rows, list(range(0, 200, 10)))]))
    assert found.likely == pytest.approx(7 * sum(range(1, 201)))
    assert found.high / found.low == pytest.approx(1.02, abs=0.005), "never narrower than that"


def test_all_rows_asked_leave_nothing_to_guess() -> None:
    rows = [(1.0, float(value)) for value in (1, 100, 3, 7)]
    found = estimate_sum([stratum(rows, [0, 1, 2, 3])])
    assert (found.likely, found.variance, found.unasked) == (111.0, 0.0, 0.0)


def test_lanes_add_up_and_strata_without_an_answer_count_as_their_lanes_others() -> None:
    one, two = [(1.0, 10.0)] * 20, [(1.0, 1.0)] * 30
    both = estimate_sum([stratum(one, [0, 1]), stratum(two, [0, 1], "b")])
    assert both.likely == pytest.approx(230)
    silent = estimate_sum([stratum(one, [0, 1]), stratum(one, [])])
    assert silent.likely == pytest.approx(400)
    assert estimate_sum([stratum(one, [])]).asked == 0


def test_a_range_beyond_its_width_is_narrowed_and_says_how_often_it_holds() -> None:
    def of(error: float, *, more: float = 0.0) -> SumEstimate:
        return SumEstimate(likely=1_000.0, variance=(1_000.0 * error) ** 2, asked=200, more=more, unasked=1.0)

    narrow, wide, widest = (range_of(of(error)) for error in (0.05, 0.12, 0.4))
    assert narrow.high / narrow.low < 1.5
    assert (narrow.confidence, narrow.rows_to_narrow) == (0.954, 0)
    assert wide.high / wide.low == pytest.approx(1.49)
    assert 0.75 < wide.confidence < 0.954
    assert wide.rows_to_narrow > 200
    assert widest.high / widest.low > 1.5, "narrower it would hold in too few samples"
    assert widest.confidence == pytest.approx(0.75, abs=0.01)
    tail = range_of(of(0.05, more=10_000.0))
    assert tail.low == narrow.low
    assert narrow.high < tail.high <= 1.5 * tail.low
    assert range_of(of(0.12), most=1_010.0).high == 1_010.0


def test_nothing_that_costs_nothing_is_a_range_of_nothing() -> None:
    free = range_of(estimate_sum([stratum([(1.0, 0.0)] * 10, [0, 1])]))
    assert (free.low, free.likely, free.high) == (0.0, 0.0, 0.0)
    assert math.isfinite(range_of(SumEstimate(likely=0.0, variance=0.0, asked=0, more=0.0, unasked=1.0)).high)


def test_how_long_a_row_may_be_that_nobody_saw() -> None:
    assert unseen_length([10] * 50) == 200
    assert unseen_length([10] * 49 + [1_000]) == 1_500
    assert unseen_length([]) == 0.0
