"""Which rows a sample asks: all of the file have their chance, large ones are not left to it, and a seed says which."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from batchwright.core.picking import Picking, pick_positions
from batchwright.core.strata import Strata, Stratum


def drawn(rows: list[tuple[str, float, int]], count: int, seed: int = 0) -> list[Stratum]:
    strata = Strata(count=count, seed=seed)
    for index, (lane, size, bound) in enumerate(rows):
        strata.add(index, lane, size=size, bound=bound)
    return strata.draw()


def positions(strata: list[Stratum]) -> list[int]:
    return [row.position for stratum in strata for row in stratum.drawn]


def file_of(rows: int, seed: int = 1) -> list[tuple[str, float, int]]:
    chance = random.Random(seed)
    return [("a", chance.lognormvariate(5, 1), 100) for _ in range(rows)]


def test_as_many_as_asked_for_each_once_and_all_rows_are_in_a_stratum() -> None:
    rows = file_of(3_000)
    strata = drawn(rows, 200)
    assert len(set(positions(strata))) == len(positions(strata)) == 200
    assert sum(stratum.rows for stratum in strata) == 3_000
    assert sum(stratum.size_sum for stratum in strata) == pytest.approx(sum(size for _, size, _ in rows))
    assert all(len(stratum.drawn) >= 2 for stratum in strata)
    assert all(rows[row.position][1] == row.size for stratum in strata for row in stratum.drawn)


def test_a_seed_draws_the_same_and_another_others() -> None:
    rows = file_of(1_000)
    assert positions(drawn(rows, 50, 7)) == positions(drawn(rows, 50, 7))
    assert len(set(positions(drawn(rows, 50, 7))) & set(positions(drawn(rows, 50, 8)))) < 20
    assert positions(drawn(rows, 50, -1)) != positions(drawn(rows, 50, 1))


def test_every_row_of_a_stratum_is_as_likely_as_any_other() -> None:
    rows = [("a", 10.0, 0)] * 40
    seen: Counter[int] = Counter()
    for seed in range(2_000):
        seen.update(positions(drawn(rows, 10, seed)))
    assert min(seen.values()) > 400
    assert max(seen.values()) < 600


def test_large_rows_are_drawn_more_often() -> None:
    rows = [("a", 10.0, 0)] * 990 + [("a", 5_000.0, 0)] * 10
    (large,) = [stratum for stratum in drawn(rows, 60) if stratum.size_sum / stratum.rows > 1_000]
    assert len(large.drawn) == 10


def test_each_lane_has_some_and_a_small_file_is_taken_whole() -> None:
    rows = [(f"lane{number % 50}", 10.0, 0) for number in range(500)]
    by_lane: Counter[str] = Counter()
    for stratum in drawn(rows, 200):
        by_lane[stratum.lane] += len(stratum.drawn)
    assert len(by_lane) == 50
    assert sum(by_lane.values()) == 200
    assert min(by_lane.values()) >= 2
    assert sorted(positions(drawn(rows, 10_000))) == list(range(500))
    assert len(positions(drawn(rows, 5))) == 100, "two of each of 50 lanes"
    assert drawn([], 5) == []


def test_a_pick_is_the_same_in_one_pass_and_by_positions() -> None:
    picking: Picking[int] = Picking(20, 3)
    for position in range(500):
        picking.offer(position, position)
    assert picking.picked() == pick_positions(20, 500, 3)
    assert pick_positions(20, 5, 3) == [0, 1, 2, 3, 4]
