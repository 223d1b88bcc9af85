"""What a worker tells whoever watches this process: live figures that are no truth and are never stored.

The durable truth of progress is the store's; this is what a screen shows beside it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """One lane as its worker sees it."""

    lane: str
    in_flight: int
    limit: int
    """Rows that may be in flight now."""
    waiting: str
    """Why nothing more is sent ("rate limit", "outage: 503 for 12 s, next probe in 4 s"); empty: nothing waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    in_flight: int
    answered: int
    """Answers since the worker's start, durable or not."""
    retries_waiting: int
    lanes: tuple[LaneView, ...]
    note: str
    """What the worker lacks, or waits for as a whole; empty: nothing."""
