"""A batch's state: a pure fold of its tallies and stored facts. One table, tested from the top.

#  if                                              derived     terminal
1  refused as a whole                              refused     yes
2  intake not closed, or rows being reopened       accepting   no
3  open rows, cancel flag                          cancelling  no
4  open rows, a pause fact                         paused      no
5  open rows, no attempt has ended yet             queued      no
6  open rows                                       running     no
7  all succeeded                                   completed   yes
8  any row cancelled                               cancelled   yes
9  any row expired                                 expired     yes
10 any succeeded                                   partial     yes
11 else                                            failed      yes
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from batchwright.core import row_map
from batchwright.core.failures import FailureKind
from batchwright.core.records import Tally


class BatchState(StrEnum):
    REFUSED = "refused"
    ACCEPTING = "accepting"
    CANCELLING = "cancelling"
    PAUSED = "paused"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    PARTIAL = "partial"
    FAILED = "failed"

    @property
    def terminal(self) -> bool:
        """A terminal batch never moves again until a retry."""
        return self in TERMINAL


TERMINAL = frozenset(
    {
        BatchState.REFUSED,
        BatchState.COMPLETED,
        BatchState.CANCELLED,
        BatchState.EXPIRED,
        BatchState.PARTIAL,
        BatchState.FAILED,
    }
)


class PauseCause(StrEnum):
    """Why a batch is paused; at most one fact of each cause at a time."""

    USER = "user"
    GATE = "gate"
    BUDGET = "budget"
    """The batch's own cap leaves too little for its next row."""
    KEY_BUDGET = "key_budget"
    """The budget of the key it was submitted with does."""
    LANE = "lane"
    BODIES = "bodies"
    """Bytes that its rows need are gone or damaged where they lie."""
    UNKNOWN = "unknown"
    """Never stored: a service does not say it, or in a word that is not known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    cause: PauseCause
    reason: str
    """For a person: what happened and what to do. As it is kept of BUDGET and KEY_BUDGET: `core.spent_out`."""
    since_ms: int
    lane: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """What is stored of a batch beside its tallies."""

    total: int
    refused: bool = False
    accepting: bool = False
    reopening: bool = False
    cancel_requested: bool = False
    expired: bool = False
    paused: bool = False
    settled: bool = False
    """`settled_at` is written: all segments are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """A batch's rows by how they stand; succeeded + failed + cancelled + expired + open = total."""

    succeeded: int
    failed: int
    """Without success, cancelled, expired and stopped rows not included."""
    cancelled: int
    expired: int
    stopped: int
    open: int

    @property
    def without_success(self) -> int:
        return self.failed + self.cancelled + self.expired + self.stopped


def count(total: int, tally: Tally) -> Counts:
    """Sums a tally's ends; what has not ended is open."""
    ends = tally.counts
    succeeded = sum(n for byte, n in ends.items() if row_map.is_success(byte))
    by_kind = {
        kind: ends.get(row_map.KIND_BYTES[kind], 0)
        for kind in (FailureKind.CANCELLED, FailureKind.EXPIRED, FailureKind.STOPPED)
    }
    ended = sum(ends.values())
    return Counts(
        succeeded=succeeded,
        failed=ended - succeeded - sum(by_kind.values()),
        cancelled=by_kind[FailureKind.CANCELLED],
        expired=by_kind[FailureKind.EXPIRED],
        stopped=by_kind[FailureKind.STOPPED],
        open=total - ended,
    )


def derive(facts: BatchFacts, tally: Tally) -> BatchState:
    """The table above."""
    if facts.refused:
        return BatchState.REFUSED
    if facts.accepting or facts.reopening:
        return BatchState.ACCEPTING
    rows = count(facts.total, tally)
    if not facts.settled:
        if facts.cancel_requested:
            return BatchState.CANCELLING
        if facts.paused:
            return BatchState.PAUSED
        return BatchState.RUNNING if tally.attempts else BatchState.QUEUED
    if rows.succeeded == facts.total:
        return BatchState.COMPLETED
    if rows.cancelled:
        return BatchState.CANCELLED
    if rows.expired:
        return BatchState.EXPIRED
    return BatchState.PARTIAL if rows.succeeded else BatchState.FAILED
