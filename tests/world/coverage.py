"""What a life of the world can meet, as closed lists: a run over the CI seeds must meet every one of them."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Fault(StrEnum):
    """What goes wrong around the product."""

    RATE_LIMITED = "429 without a wait"
    RATE_LIMITED_WAIT = "429 with a wait"
    OVERLOADED = "5xx"
    TIMEOUT_PAID = "timeout, billed"
    TIMEOUT_UNPAID = "timeout, not billed"
    DROPPED_PAID = "connection dropped, billed"
    DROPPED_UNPAID = "connection dropped, not billed"
    UNREACHABLE = "connection refused"
    ANSWER_TOO_LARGE = "answer too large"
    BAD_RESPONSE = "bad response, billed"
    QUOTA_EXHAUSTED = "quota exhausted"
    AUTH = "key refused"
    INVALID_REQUEST = "invalid request"
    MODEL_NOT_FOUND = "model not found"
    CONTEXT_TOO_LONG = "context too long"
    TOO_LARGE = "request too large"
    CONTENT_FILTERED = "content filtered with an error"
    INTERNAL = "exception in the adapter"
    TRUNCATED = "answer truncated"
    REFUSED = "answer refused"
    FILTERED = "answer filtered"
    EMPTY = "answer empty"
    NO_USAGE = "answer without usage"
    UNPRICED = "answer without a price"
    OUTAGE = "outage of a vendor"
    LATE_ANSWER = "answer after its worker's death"
    VENDOR_UNAVAILABLE = "vendor cannot be opened"
    MISSING_KEY = "worker lacks a key"
    POISON = "row that kills its worker"
    INVALID_ROW = "row refused at intake"
    SAME_FAILURE = "batch whose rows all fail in the same way"
    SLOW_COMMIT = "slow commit"
    STALL = "writer hangs longer than the lease"
    CLOCK_FORWARD = "wall clock jumps forward"
    CLOCK_BACK = "wall clock jumps back"
    SECOND_INCARNATION = "new incarnation while the old one lives"
    CANCEL = "user cancels"
    PAUSE = "user pauses"
    RESUME = "user resumes"
    RETRY = "user retries what failed"
    RETRY_KINDS = "user retries some kinds"
    RETRY_FLAGS = "user retries some flags"
    SET_CAP = "user sets another cap"
    DEADLINE = "deadline passes"
    STOP_GRACE = "orderly stop"
    STOP_NOW = "stop without grace"
    BUDGET_SPENT = "cap reached"
    GATE_SHUT = "gate shut"
    LANE_PAUSED = "batch paused by its lane"
    MOVED_ON = "row goes on to another vendor of its route"


class CrashPoint(StrEnum):
    """Where a process dies, or its commit fails; each is met at every kind of transaction the process makes."""

    BEFORE_COMMIT = "crash before the commit"
    AFTER_COMMIT = "crash after the commit, reply lost"
    ERROR_BEFORE = "error, nothing landed"
    ERROR_AFTER = "error, yet it landed"
    STEP = "crash between two steps"
    ANY_MOMENT = "killed at any moment"


class Transaction(StrEnum):
    """Store calls of which every crash point must have struck (`CRASHES`)."""

    CHECKPOINT = "checkpoint"
    HEARTBEAT = "heartbeat"
    REGISTER = "register_worker"
    END = "end_worker"
    INTAKE = "create_batch"
    ADD = "add_segments"
    CLOSE_INTAKE = "close_intake"
    REQUEST_CLOSE = "request_close"
    CLOSE_STEP = "close_step"
    REOPEN = "reopen"
    EXPIRE = "expire_due"
    MARK_DEAD = "mark_dead"
    PAUSE_LANE = "pause_lane"
    CLEAR_LANE = "clear_lane"


STEPS = ("before checkpoint", "after checkpoint")

CRASHES: tuple[str, ...] = (
    *(
        f"{point.value}: {name.value}"
        for name in Transaction
        for point in (CrashPoint.BEFORE_COMMIT, CrashPoint.AFTER_COMMIT)
    ),
    f"{CrashPoint.ERROR_BEFORE.value}: {Transaction.CHECKPOINT.value}",
    f"{CrashPoint.ERROR_AFTER.value}: {Transaction.CHECKPOINT.value}",
    *(f"{CrashPoint.STEP.value}: {step}" for step in STEPS),
    CrashPoint.ANY_MOMENT.value,
)


class Move(StrEnum):
    """Moves of a row's byte between two commits, as the auditor sees them in the database."""

    RESERVE = "pending to reserved"
    CLEAR = "reserved to pending"
    SUCCEED = "reserved to a success"
    FAIL = "reserved to a failure"
    SHARE = "pending to the end of the row that it repeats"
    RESTORE = "reserved to the success of the round before"
    REOPEN_FAILURE = "failure to pending, in a new round"
    REOPEN_SUCCESS = "success to pending, in a new round"
    REOPEN_CLOSED = "closed to pending, in a new round"
    CLOSE_PENDING = "pending read as closed"
    CLOSE_RESERVED = "reserved read as closed"
    CLOSE_RESTORED = "open read as in the round before"


class Coverage:
    """Counts by the words of the lists above; sums over seeds."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hit(self, what: StrEnum | str) -> None:
        self.counts[str(what)] += 1

    def add(self, other: Coverage) -> None:
        self.counts.update(other.counts)

    def missing(self) -> list[str]:
        return [name for name in EVERYTHING if not self.counts[name]]

    def table(self) -> str:
        return "\n".join(f"{self.counts[name]:>9,}  {name}" for name in EVERYTHING)


EVERYTHING: tuple[str, ...] = (*(fault.value for fault in Fault), *CRASHES, *(move.value for move in Move))
