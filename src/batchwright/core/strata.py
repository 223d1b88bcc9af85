"""Which rows of a file are asked for a sample: drawn by chance, more of those that may cost more, in one pass over it.

Rows are told apart by lane, by their bound on output and by size (cells, a factor of 1.4 wide). Neighbouring cells are
joined into strata, each of which gets rows of the sample by its weight, half by the number of its rows and half by
their size. Chance is a hash of seed and position, so that the same seed draws the same rows, and the rows of a cell
with the least hashes are a random choice of it, whatever cells it is joined with. Memory: at most the sample's number
of rows for each cell.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from batchwright.core.picking import chance_of

ROWS_A_STRATUM = 15
"""Of the sample, about: fewer tell too little of how the rows of a stratum differ."""
STRATA_MAX = 12
"""A lane."""
STEPS_A_DOUBLING = 2
"""Of sizes, from cell to cell."""


class DrawnRow(NamedTuple):
    position: int
    """In the file, 0-based."""
    size: float


@dataclass(slots=True)
class Stratum:
    """Rows of one lane that are alike, and those of them that were drawn."""

    lane: str
    rows: int
    size_sum: float
    drawn: list[DrawnRow]


@dataclass(slots=True)
class _Cell:
    rows: int = 0
    size_sum: float = 0.0
    least: list[tuple[int, int, float]] = field(default_factory=list)
    """A heap of (-hash, index, size): the greatest hash of those kept is on top."""


class Strata:
    """All rows of a file on their way past; `draw` once at the end."""

    def __init__(self, *, count: int, seed: int) -> None:
        self._count = count
        self._seed = seed
        self._cells: dict[tuple[str, int, int], _Cell] = {}

    def add(self, index: int, lane: str, *, size: float, bound: int) -> None:
        """`size`: what its cost may go with, above 0. `bound`: of its output; 0: none."""
        key = lane, bound.bit_length(), round(STEPS_A_DOUBLING * math.log2(max(size, 1.0)))
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell()
        cell.rows += 1
        cell.size_sum += size
        chance = -chance_of(self._seed, index)
        if len(cell.least) < self._count:
            heapq.heappush(cell.least, (chance, index, size))
        elif chance > cell.least[0][0]:
            heapq.heapreplace(cell.least, (chance, index, size))

    def draw(self) -> list[Stratum]:
        """The strata with their rows of the sample, which are as many as were asked for, or all there are; more only
        where there are more lanes than half of them."""
        rows = sum(cell.rows for cell in self._cells.values())
        mean = sum(cell.size_sum for cell in self._cells.values()) / rows if rows else 1.0
        by_lane: dict[str, list[_Cell]] = {}
        for key in sorted(self._cells):
            by_lane.setdefault(key[0], []).append(self._cells[key])
        lanes = list(by_lane)
        counts = _share(
            min(self._count, rows),
            [sum(_weight(cell, mean) for cell in cells) for cells in by_lane.values()],
            [sum(cell.rows for cell in cells) for cells in by_lane.values()],
        )
        strata: list[Stratum] = []
        for lane, count in zip(lanes, counts, strict=True):
            groups = _join(by_lane[lane], max(1, min(STRATA_MAX, count // ROWS_A_STRATUM)), mean)
            sizes = [sum(cell.rows for cell in group) for group in groups]
            each = _share(count, [sum(_weight(cell, mean) for cell in group) for group in groups], sizes)
            strata += [_stratum(lane, group, wanted) for group, wanted in zip(groups, each, strict=True)]
        return strata


def _weight(cell: _Cell, mean: float) -> float:
    return (cell.rows + cell.size_sum / mean) / 2


def _join(cells: Sequence[_Cell], wanted: int, mean: float) -> list[list[_Cell]]:
    """Neighbours, at most `wanted` groups of about equal weight."""
    whole = sum(_weight(cell, mean) for cell in cells)
    groups: list[list[_Cell]] = []
    seen, last = 0.0, -1
    for cell in cells:
        place = min(wanted - 1, int(wanted * (seen + _weight(cell, mean) / 2) / whole))
        if place != last:
            groups.append([])
            last = place
        groups[-1].append(cell)
        seen += _weight(cell, mean)
    return groups


def _share(count: int, weights: Sequence[float], rows: Sequence[int]) -> list[int]:
    """`count` by weight, at least two (or all) of each, none above its rows."""
    least = [min(2, each) for each in rows]
    shares = [min(each, max(low, 0)) for each, low in zip(rows, least, strict=True)]
    left = count - sum(shares)
    while left > 0:
        open_places = [place for place, each in enumerate(rows) if shares[place] < each]
        if not open_places:
            break
        # To whoever lacks most of its part.
        whole = sum(weights[place] for place in open_places) or 1.0
        place = max(open_places, key=lambda one: weights[one] / whole * count - shares[one])
        shares[place] += 1
        left -= 1
    return shares


def _stratum(lane: str, cells: Sequence[_Cell], wanted: int) -> Stratum:
    kept = heapq.nlargest(wanted, (one for cell in cells for one in cell.least))
    drawn = sorted(DrawnRow(position, size) for _, position, size in kept)
    return Stratum(lane, sum(cell.rows for cell in cells), sum(cell.size_sum for cell in cells), drawn)
