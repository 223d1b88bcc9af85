"""What a worker tells whoever watches this process: live figures that are no truth and are never stored.

The durable truth of progress is the store's; this is what a screen shows beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from batchwright.core.histogram import Histogram
from batchwright.core.lane_wait import LaneWait
from batchwright.core.quarantine import Quarantine


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
    """Requests that were answered since the worker's start, durable or not, successfully or not: a row may take
    several."""
    retries_waiting: int
    lanes: tuple[LaneView, ...]
    note: str
    """What the worker lacks, or waits for as a whole; empty: nothing."""
    idle_looks: int = 0
    """How often in a row it has looked for rows to send and found none; 0 while it holds any."""
    drained: bool = False
    """It stands by until a person ends its drain; of several: all of them do."""


NAMES_MAX = 200
"""Distinct (vendor, model) pairs that figures are kept apart by: models come from rows, of which there is no end."""
OTHERS = ("(others)", "(others)")


class WorkerFigures:
    """What the workers of one process have counted since its start, durable or not. Sums never fall."""

    def __init__(self) -> None:
        self.attempts: dict[tuple[str, str, str], int] = {}
        """Of rows and of single calls, by vendor, model and how they ended: a FailureKind, or empty for an answer. One
        that was ended from this side before an answer had begun is none of them."""
        self.rows: dict[tuple[str, str, int], int] = {}
        """Rows that ended, by vendor, model and row-map byte."""
        self.checkpoints = Histogram()
        """Commits of workers' checkpoints."""
        self._names: set[tuple[str, str]] = set()

    def attempt_ended(self, vendor: str, model: str, kind: str, count: int = 1) -> None:
        key = (*self._bounded(vendor, model), kind)
        self.attempts[key] = self.attempts.get(key, 0) + count

    def row_ended(self, vendor: str, model: str, byte: int, count: int = 1) -> None:
        key = (*self._bounded(vendor, model), byte)
        self.rows[key] = self.rows.get(key, 0) + count

    def _bounded(self, vendor: str, model: str) -> tuple[str, str]:
        names = (vendor, model)
        if names in self._names:
            return names
        if len(self._names) >= NAMES_MAX:
            return OTHERS
        self._names.add(names)
        return names


class SpanSort(StrEnum):
    OWN = "own"
    """Work that this process set itself to."""
    SERVED = "served"
    """A request that it answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that took time in this process and is over: a checkpoint, the work on a batch, a request of the
    service. There is none of a row, and none holds a prompt, an answer or a key."""

    name: str
    ended_ms: int
    """Since the epoch."""
    duration_s: float
    attributes: Mapping[str, str | int | float | bool]
    sort: SpanSort = SpanSort.OWN
    parent: str = ""
    """The `traceparent` of whoever asked for it, as it came; empty, or one that cannot be read: it has none."""
    failed: bool = False


Trace = Callable[[Span], None]
"""Hears of every span on the loop's thread. Quick; it neither waits nor raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What the store knows of a vendor and model, over all workers and time."""

    vendor: str
    model: str
    answers: int
    prompt_tokens: int
    completion_tokens: int
    cost_picousd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fairness:
    """How accounts stand to each other, at one moment."""

    waiting: int
    """Accounts with segments to hand out; now and then one whose last has just gone is among them."""
    at_bound: int
    """Accounts with segments to hand out, of which workers hold as many as they may."""
    spread_tokens: int
    """By how much, at weight 1, the most served account is ahead of the least served that waits for the same lanes:
    some segments' tokens; an account that waits behind a full lane is no reason for it, nor is one that rested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """How much stands in the store, at one moment."""

    batches: dict[str, int]
    """That have not ended, by `accepting`, `open` and `paused`."""
    waiting_since_ms: int
    """When the oldest batch that has rows to hand out was made; 0: none has any."""
    fairness: Fairness
    workers: int
    """Live ones, of all processes."""
    waits: tuple[LaneWait, ...]
    """What holds lanes of theirs back; one lane may be told of by several."""
    spent: tuple[Spent, ...]
    quarantines: tuple[Quarantine, ...] = ()
    """What a person has closed."""
