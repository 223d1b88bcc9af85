"""Durations, counted into buckets: what a page of figures shows of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

BOUNDS_S: tuple[float, ...] = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds; what is longer falls into a last bucket without one."""


class Histogram:
    """Grows by `add` alone: sums and counts never fall."""

    __slots__ = ("_counts", "sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    @property
    def cumulative(self) -> Sequence[int]:
        """How many took at most each of BOUNDS_S, and last how many there were in all."""
        sums, total = [], 0
        for count in self._counts:
            total += count
            sums.append(total)
        return sums
