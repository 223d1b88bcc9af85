"""A sum over all rows of a file from a sample of them: how it is made, and between what bounds it lies.

likely      of each stratum its rows times the sample's mean, put right by the regression of the value on the size
            (one slope a lane, fitted within the strata): sizes are known of every row
spread      the variance of what the regression leaves, by stratum, with the correction for a finite file
            (a row that was asked is known, and of a file that was asked whole the sum is)
range       2.05 standard errors either way on the scale of logarithms, because such sums are skewed: what holds in
            95 of 100 samples
tail        rows longer than any that was asked may be there, up to two in a sample's number of rows that nobody saw:
            each as long as 20 times the median, 1.5 times the longest seen, or its own bound. What they would add is
            added above, as far as the upper end stays within 1.5 times the lower
width       never narrower than about 1 percent on either side: the same row asked again may be answered otherwise. One
            whose upper end would be more than 1.5 times the lower is narrowed to that, down to what holds in 75 of 100
            samples; how often it holds is told, and how many rows would make it 95 of 100
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

ERRORS = 2.05
"""Standard errors, either way."""
LEVEL_DEVIATES = 2.0
"""What they are worth: the error itself is an estimate."""
NARROWEST = 1.15 / LEVEL_DEVIATES
LEAST_ERROR = 0.005
"""Relative."""
WIDEST_RATIO = 1.49
"""From end to end: "1.5 times", with room for rounding."""
UNSEEN_ROWS = 2.0
"""In as many rows as the sample has: a sample misses rows of that share in one of seven."""
UNSEEN_MEDIANS, UNSEEN_LONGEST = 20.0, 1.5
SLOPE_MIN_ROWS = 10


@dataclass(frozen=True, slots=True)
class Asked:
    """One row of the sample."""

    size: float
    value: float
    """What the sum is of."""
    more: float = 0.0
    """By how much the value would be greater, were the row one of the longest (`unseen_length`)."""


@dataclass(slots=True)
class AskedStratum:
    lane: str
    rows: int
    """In the file."""
    size_sum: float
    """Over these."""
    asked: list[Asked] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SumEstimate:
    likely: float
    variance: float
    asked: int
    more: float
    """What all rows would add, were each one of the longest."""
    unasked: float
    """Share of the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    low: float
    likely: float
    high: float
    confidence: float
    """In how many of 100 such samples, as a share."""
    rows_to_narrow: int = 0
    """So many asked rows would bring the range of 95 in 100 within 1.5 from end to end; 0: it is."""


def unseen_length(lengths: Sequence[int]) -> float:
    """How long a row may be that the sample did not show."""
    if not lengths:
        return 0.0
    ordered = sorted(lengths)
    return max(UNSEEN_MEDIANS * max(1, ordered[len(ordered) // 2]), UNSEEN_LONGEST * ordered[-1])


def estimate_sum(strata: Iterable[AskedStratum]) -> SumEstimate:
    """Over the rows of these strata, whatever their lanes. A stratum without an asked row counts by the mean of its
    lane's others."""
    by_lane: dict[str, list[AskedStratum]] = {}
    for stratum in strata:
        by_lane.setdefault(stratum.lane, []).append(stratum)
    parts = [_estimate_lane(lane) for lane in by_lane.values()]
    rows = sum(stratum.rows for lane in by_lane.values() for stratum in lane)
    asked = sum(part.asked for part in parts)
    return SumEstimate(
        likely=sum(part.likely for part in parts),
        variance=sum(part.variance for part in parts),
        asked=asked,
        more=sum(part.more for part in parts),
        unasked=max(0.0, 1 - asked / rows) if rows else 0.0,
    )


def range_of(found: SumEstimate, *, most: float = math.inf) -> Range:
    """`most`: what the sum cannot pass."""
    likely = max(found.likely, 0.0)
    if likely <= 0.0 or found.asked == 0:
        return Range(low=0.0, likely=likely, high=min(most, _unseen(found)), confidence=0.95)
    error = max(LEAST_ERROR, math.sqrt(max(found.variance, 0.0)) / likely * _small_sample(found.asked))
    scale, needed = 1.0, 0
    if (width := 2 * ERRORS * error) > math.log(WIDEST_RATIO):
        scale = max(NARROWEST, math.log(WIDEST_RATIO) / width)
        needed = math.ceil(found.asked * (width / math.log(WIDEST_RATIO)) ** 2)
    factor = math.exp(ERRORS * scale * error)
    low, high = likely / factor, likely * factor
    high = min(high + _unseen(found), max(high, WIDEST_RATIO * low))
    return Range(
        low=min(low, most),
        likely=min(likely, most),
        high=min(high, most),
        confidence=round(math.erf(LEVEL_DEVIATES * scale / math.sqrt(2)), 3),
        rows_to_narrow=needed,
    )


def _unseen(found: SumEstimate) -> float:
    return UNSEEN_ROWS / found.asked * found.unasked * found.more if found.asked else 0.0


def _small_sample(asked: int) -> float:
    """How much further out Student's distribution has its bounds than the normal one."""
    degrees = max(1, asked - 2)
    return 1 + (LEVEL_DEVIATES**2 + 1) / (4 * degrees)


def _estimate_lane(strata: Sequence[AskedStratum]) -> SumEstimate:
    seen = [stratum for stratum in strata if stratum.asked]
    asked = sum(len(stratum.asked) for stratum in seen)
    if not asked:
        return SumEstimate(likely=0.0, variance=0.0, asked=0, more=0.0, unasked=1.0)
    slope = _slope(seen) if asked >= SLOPE_MIN_ROWS else 0.0
    likely = variance = more = 0.0
    for stratum in seen:
        count = len(stratum.asked)
        mean = sum(row.value for row in stratum.asked) / count
        size = sum(row.size for row in stratum.asked) / count
        likely += stratum.rows * mean + slope * (stratum.size_sum - stratum.rows * size)
        more += stratum.rows * sum(row.more for row in stratum.asked) / count
        variance += stratum.rows * max(0, stratum.rows - count) * _left(stratum, slope, mean, size) / count
    # Rows of strata of which none was answered: as the others of the lane.
    rows = sum(stratum.rows for stratum in seen)
    scale = sum(stratum.rows for stratum in strata) / rows
    return SumEstimate(
        likely=likely * scale,
        variance=variance * scale * scale,
        asked=asked,
        more=more * scale,
        unasked=max(0.0, 1 - asked / (rows * scale)),
    )


def _slope(strata: Sequence[AskedStratum]) -> float:
    """Of the value over the size within the strata, each weighed as it counts for the sum's variance."""
    together = alone = 0.0
    for stratum in strata:
        count = len(stratum.asked)
        if count < 2:
            continue
        weight = stratum.rows * stratum.rows / (count * (count - 1))
        size = sum(row.size for row in stratum.asked) / count
        mean = sum(row.value for row in stratum.asked) / count
        together += weight * sum((row.size - size) * (row.value - mean) for row in stratum.asked)
        alone += weight * sum((row.size - size) ** 2 for row in stratum.asked)
    return together / alone if alone > 0 else 0.0


def _left(stratum: AskedStratum, slope: float, mean: float, size: float) -> float:
    """Variance of what the regression leaves. Of one row alone: as far as its value itself."""
    count = len(stratum.asked)
    if count < 2:
        return (mean * mean) if stratum.rows > count else 0.0
    return sum((row.value - mean - slope * (row.size - size)) ** 2 for row in stratum.asked) / (count - 1)
