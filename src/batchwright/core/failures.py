"""The closed table of ways a row can end without success, and what each means for the row, its lane and the bill.

A vendor's status and prose are turned into one of these kinds once (`vendors/classify.py`); from there on
only the kind decides. Everything that asks "is it sent again?", "does it use up an attempt?", "what is it called on
the wire?" asks this table, so a new kind is one line here and the exhaustive matches that mypy then demands.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum


class FailureKind(StrEnum):
    """Why an attempt, or a row, did not succeed."""

    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    NETWORK = "network"
    UNREACHABLE = "unreachable"
    ANSWER_TOO_LARGE = "answer_too_large"
    BAD_RESPONSE = "bad_response"
    QUOTA_EXHAUSTED = "quota_exhausted"
    AUTH = "auth"
    INVALID_REQUEST = "invalid_request"
    MODEL_NOT_FOUND = "model_not_found"
    CONTEXT_TOO_LONG = "context_too_long"
    TOO_LARGE = "too_large"
    CONTENT_FILTERED = "content_filtered"
    INVALID_ROW = "invalid_row"
    UNROUTABLE = "unroutable"
    IN_DOUBT = "in_doubt"
    WORKER_LOST = "worker_lost"
    MISSING_FROM_UPSTREAM = "missing_from_upstream"
    INTERNAL = "internal"
    SCHEMA_FAILED = "schema_failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    STOPPED = "stopped"


class Flag(StrEnum):
    """What is remarkable about a success: paid, kept whole, counted apart. PLAIN is an ordinary answer."""

    PLAIN = "plain"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    FILTERED = "filtered"
    EMPTY = "empty"
    SCHEMA_MISMATCH = "schema_mismatch"


class SentAgain(Enum):
    """What `core.retry` may do with a row after an attempt of this kind."""

    NEVER = "never"
    """The row ends so."""
    ATTEMPTS = "attempts"
    """Sent again while attempts are left; each one uses up an attempt."""
    FREE = "free"
    """Sent again without using up an attempt (the vendor did no work for it)."""
    LANE_PAUSES = "lane_pauses"
    """The row stays pending and its lane pauses: no row can succeed there now."""


class LaneSignal(Enum):
    """What an attempt's end tells the lane's state machine (`core.lanes`)."""

    NONE = "none"
    CONGESTED = "congested"
    """The vendor asks for less (429)."""
    CONGESTED_OUTAGE = "congested_outage"
    """Congested, and counts towards an outage (5xx, 408)."""
    OUTAGE = "outage"
    """No answer at all; counts towards an outage only."""
    PAUSE = "pause"
    """Money or key: nothing will succeed until a person acts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """One line of the table."""

    sent_again: SentAgain
    lane: LaneSignal
    code: str
    """The error code on the Infrai wire."""
    http_status: int
    """The status on the Infrai wire."""
    retryable: bool
    """What `error.retryable` says to a person: may the same row succeed in another round, unchanged?"""
    may_be_paid: bool = False
    """The vendor may bill an attempt that ended so although no answer was read."""


def _row(
    sent_again: SentAgain, lane: LaneSignal, code: str, http_status: int, retryable: bool, may_be_paid: bool = False
) -> KindRow:
    return KindRow(
        sent_again=sent_again,
        lane=lane,
        code=code,
        http_status=http_status,
        retryable=retryable,
        may_be_paid=may_be_paid,
    )


KINDS: dict[FailureKind, KindRow] = {
    FailureKind.RATE_LIMITED: _row(SentAgain.FREE, LaneSignal.CONGESTED, "RATE_LIMITED", 429, True),
    FailureKind.OVERLOADED: _row(SentAgain.ATTEMPTS, LaneSignal.CONGESTED_OUTAGE, "VENDOR_OVERLOADED", 503, True),
    FailureKind.TIMEOUT: _row(SentAgain.ATTEMPTS, LaneSignal.OUTAGE, "VENDOR_TIMEOUT", 504, True, True),
    FailureKind.NETWORK: _row(SentAgain.ATTEMPTS, LaneSignal.OUTAGE, "VENDOR_DOWN", 503, True, True),
    FailureKind.UNREACHABLE: _row(SentAgain.FREE, LaneSignal.OUTAGE, "VENDOR_DOWN", 503, True),
    FailureKind.ANSWER_TOO_LARGE: _row(SentAgain.NEVER, LaneSignal.NONE, "ANSWER_TOO_LARGE", 502, False, True),
    FailureKind.BAD_RESPONSE: _row(SentAgain.ATTEMPTS, LaneSignal.NONE, "BAD_RESPONSE", 502, True),
    FailureKind.QUOTA_EXHAUSTED: _row(SentAgain.LANE_PAUSES, LaneSignal.PAUSE, "INSUFFICIENT_CREDIT", 402, True),
    FailureKind.AUTH: _row(SentAgain.LANE_PAUSES, LaneSignal.PAUSE, "VENDOR_AUTH", 401, True),
    FailureKind.INVALID_REQUEST: _row(SentAgain.NEVER, LaneSignal.NONE, "INVALID_REQUEST", 400, False),
    FailureKind.MODEL_NOT_FOUND: _row(SentAgain.NEVER, LaneSignal.NONE, "MODEL_NOT_FOUND", 404, False),
    FailureKind.CONTEXT_TOO_LONG: _row(SentAgain.NEVER, LaneSignal.NONE, "CONTEXT_TOO_LONG", 400, False),
    FailureKind.TOO_LARGE: _row(SentAgain.NEVER, LaneSignal.NONE, "ROW_TOO_LARGE", 413, False),
    FailureKind.CONTENT_FILTERED: _row(SentAgain.NEVER, LaneSignal.NONE, "CONTENT_FILTERED", 400, False),
    FailureKind.INVALID_ROW: _row(SentAgain.NEVER, LaneSignal.NONE, "INVALID_ROW", 400, False),
    FailureKind.UNROUTABLE: _row(SentAgain.NEVER, LaneSignal.NONE, "MODEL_NOT_FOUND", 404, False),
    FailureKind.IN_DOUBT: _row(SentAgain.NEVER, LaneSignal.NONE, "IN_DOUBT", 409, True, True),
    FailureKind.WORKER_LOST: _row(SentAgain.NEVER, LaneSignal.NONE, "WORKER_LOST", 500, False, True),
    FailureKind.MISSING_FROM_UPSTREAM: _row(SentAgain.NEVER, LaneSignal.NONE, "MISSING_FROM_UPSTREAM", 502, True, True),
    FailureKind.INTERNAL: _row(SentAgain.NEVER, LaneSignal.NONE, "INTERNAL", 500, True),
    FailureKind.SCHEMA_FAILED: _row(SentAgain.NEVER, LaneSignal.NONE, "SCHEMA_MISMATCH", 502, True),
    FailureKind.CANCELLED: _row(SentAgain.NEVER, LaneSignal.NONE, "BATCH_CANCELLED", 409, True),
    FailureKind.EXPIRED: _row(SentAgain.NEVER, LaneSignal.NONE, "BATCH_EXPIRED", 409, True),
    FailureKind.STOPPED: _row(SentAgain.NEVER, LaneSignal.NONE, "BATCH_STOPPED", 409, True),
}
