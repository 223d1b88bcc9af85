"""What a service's replies say, typed. A field that a service does not send has the value that says so: None, 0, ""."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

TERMINAL_STATES = frozenset({"completed", "partial", "failed", "expired", "cancelled"})
"""Infrai's five. Any other state, also one that nobody has told us of, is a batch that still runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """None: not said, which is not 0."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    total_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedBatch:
    """What a submit answers. It may have ended already: some services run the rows before they answer."""

    batch_id: str
    state: str
    terminal: bool
    total_count: int
    estimated_cost_usd: Decimal | None
    replayed: bool
    """It is what an earlier submit with the same idempotency key made."""
    idempotency_key: str
    """Under which it was submitted: with it the same submit may be said again and makes no second batch."""
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingLane:
    """A vendor's model that the service cannot send rows to now, or only a probe."""

    vendor: str
    model: str
    cause: str
    """paused, quarantined, outage, rate_limit, unreached or failing."""
    reason: str
    """A sentence for a person."""
    since: datetime | None
    until: datetime | None
    """When something goes out again, if only a probe; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseFact:
    """One reason why a batch is paused."""

    cause: str
    """user, gate, budget (its cap), key_budget, lane or bodies (something stored of it is lost)."""
    reason: str
    """For a person: what happened and what to do."""
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountShare:
    """What an account gets of a service's workers while others wait too; where it says nothing, what everybody gets."""

    weight: float
    """Of two accounts one of twice the weight is served twice the tokens; 1 is everybody's."""
    in_flight: int | None
    """Segments (of up to 500 rows) that workers may hold of it at once; None: no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How a batch stands."""

    batch_id: str
    state: str
    """As the service says it; one that is not known counts as running."""
    terminal: bool
    """It has ended and moves no more until a retry."""
    progress: float
    """completed / total; below 1 for good where rows failed."""
    total_count: int
    completed_count: int
    failed_count: int
    """Rows that ended without success, those below included."""
    cancelled_count: int
    expired_count: int
    pending_count: int
    error_kinds: Mapping[str, int]
    """Rows without success, by failure kind."""
    flags: Mapping[str, int]
    """Successes with a flag, by flag: truncated, refused, filtered, empty, schema_mismatch."""
    cost_usd: Decimal | None
    """The exact sum of what is known of the rows' costs; None: the service does not say."""
    unpriced_count: int
    """Answers whose cost is not known and not in `cost_usd`."""
    possible_double_payments: int
    usage: TokenUsage
    attempts: int
    retries: int
    round: int
    """0, and one more with each retry."""
    closed_as: str
    """What the present round was closed as: cancelled, expired or stopped (by the gate); empty: it was not."""
    left_count: int
    """Rows that a retry's round, closed so, has left as they were before it."""
    rows_per_s: float | None
    eta_s: float | None
    paused_reason: str
    """Empty: it is not paused."""
    pauses: tuple[PauseFact, ...]
    """The same by cause; empty: it is not paused, or the service does not say."""
    worked_on: bool | None
    """Whether a worker takes it in or works on it now; None: the service does not say."""
    waiting: tuple[WaitingLane, ...]
    """What holds its rows back, the longest first; empty: nothing does, or the service does not say."""
    priority: int
    """Among the batches of its account, 0 where nobody set it; the higher goes first."""
    share: AccountShare
    """What its account gets of the workers."""
    max_cost_usd: Decimal | None
    cap_taken_usd: Decimal | None
    """Of `max_cost_usd`: its cost, and what rows that are out or in doubt may cost; None: the service does not say."""
    metadata: Mapping[str, str]
    created_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPage:
    """Batches, newest first."""

    batches: tuple[Batch, ...]
    next_cursor: str | None
    """None: these are the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLine:
    """What an account used of one model, at one vendor, under one key, on one day (UTC)."""

    day: str
    model: str
    vendor: str
    key_id: str
    answers: int
    tokens: TokenUsage
    cost_usd: Decimal | None
    unpriced_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFailure:
    """Why a row has no success."""

    code: str
    http_status: int
    message: str
    kind: str
    """This project's failure kind; empty from a service that has none."""
    retryable: bool | None
    """Whether the same row may succeed in another round; None: the service does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """One row of a batch; `request_index` is its place in what was submitted, from 0."""

    request_index: int
    ok: bool | None
    """None: it has not ended."""
    custom_id: str | None
    content: object
    """A success's text (or parts); None without success or without text."""
    finish_reason: str
    model: str
    usage: TokenUsage
    flags: tuple[str, ...]
    """What is remarkable about a success: truncated, refused, filtered, empty, schema_mismatch."""
    error: RowFailure | None
    cost_usd: Decimal | None
    """None: not known, which is not 0."""
    vendor: str
    region: str
    attempts: int
    response: bytes
    """The vendor's whole answer, JSON as it came; empty unless it was asked for."""
    raw: bytes
    """The item as the service sent it, JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsPage:
    """Rows in order. A page may be short, or empty, and others follow."""

    items: tuple[RowResult, ...]
    total_count: int
    next_cursor: str | None
    """None: these are the last."""
    terminal: bool | None
    """Whether the batch had ended; None: the service does not say."""
