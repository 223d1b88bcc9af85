"""What is raised, as a tree. A failed row is a value (`core.records`), never an exception.

    BatchwrightError
    ├── CallerError          the caller's fault: says what was found, what was expected, what to do
    │   ├── InputRefused     rows that cannot be sent; carries the findings
    │   ├── UsageError       options or settings that do not fit together
    │   ├── NoSuchBatch      an id that names none, or more than one
    │   ├── NoSuchFile       the same of a file that was uploaded or that a batch wrote
    │   ├── WrongState       the batch's state does not allow the call; names the state
    │   ├── KeyReused        an idempotency key that was used for another request
    │   └── CreditSpent      the budget of the service's key is spent
    ├── NotNow               it may work later; says when or after what
    │   ├── BatchPaused
    │   ├── InUse            another process holds it
    │   └── VendorUnavailable   the local model cannot start, a key's variable is missing
    └── StoreError           the state folder: too new, damaged, full, gone, on a network file system; or the
        │                    temporary one
        ├── WorkerGone       a worker has lost its hold on its rows; another may begin in its place
        ├── BodyLost         bytes that rows or answers of a batch lie in are gone or damaged
        └── StoreAway        a database's server cannot be reached or takes nothing just now: what was asked may be
            │                asked again
            ├── ObjectsAway  the same of the object store of its bodies; nothing was written that names anything
            │   └── ObjectsRefuse   it answers, and refuses: credentials, bucket, region
            └── DiskFull     the same of the disk that the state file is on

Anything else that escapes is a bug of ours.
"""

from __future__ import annotations

from dataclasses import dataclass


class BatchwrightError(Exception):
    """Base of everything this package raises on purpose. Its text is a message for a person."""


class CallerError(BatchwrightError):
    pass


UNBOUNDED_COST = "unbounded_cost"
"""The code of a row of which nothing says what it can cost at most: refused under a cap alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with one line of the input."""

    line: int
    """1-based physical line (CSV: the line its record begins on; a list: the position plus one); 0: it is of the input
    as a whole, or of a row that stands in no line."""
    code: str
    """`invalid_json_line`, `duplicate_custom_id`, `url_mismatch`, ... (`wire.problems.CODES`)."""
    message: str
    """What was found and what was expected; without the line number."""
    param: str = ""
    request_index: int = -1
    """0-based position of its row, where that is known."""

    @property
    def place(self) -> str:
        """`line 3`, or `requests[2]` of a row that stands in no line."""
        return f"line {self.line}" if self.line else f"requests[{self.request_index}]"


class InputRefused(CallerError):
    """The input has rows that cannot be sent. `findings` is bounded; `total` counts all of them."""

    def __init__(self, message: str, findings: tuple[Finding, ...] = (), total: int = 0) -> None:
        super().__init__(message)
        self.findings = findings
        self.total = total or len(findings)


class UsageError(CallerError):
    pass


class NoSuchBatch(CallerError):
    pass


class NoSuchFile(CallerError):
    pass


class WrongState(CallerError):
    pass


class KeyReused(CallerError):
    pass


class CreditSpent(CallerError):
    pass


class NotNow(BatchwrightError):
    pass


class BatchPaused(NotNow):
    pass


class InUse(NotNow):
    pass


class VendorUnavailable(NotNow):
    pass


class StoreError(BatchwrightError):
    pass


class WorkerGone(StoreError):
    pass


class BodyLost(StoreError):
    def __init__(self, message: str, batch_id: str = "") -> None:
        """`batch_id`: whose they are, where that is known."""
        super().__init__(message)
        self.batch_id = batch_id


class StoreAway(StoreError):
    awaited = "the database"
    """What is waited for, for a log."""


class DiskFull(StoreAway):
    awaited = "room on the disk"


class ObjectsAway(StoreAway):
    """What was to be done can be done again, as it is, once the store answers."""

    awaited = "the object store"


class ObjectsRefuse(ObjectsAway):
    """Said at once before anything is sent. In the midst of it, it is waited for like a store that is away: a person
    can put credentials, a policy or a bucket right, and what is held meanwhile was paid for."""


AWAY_MAX_S = 600.0
"""So long a process that is at work waits for a database that is away, or for room on its disk, before it ends: a
restart, a failover and an upgrade are over by then. What it holds are answers that were paid for."""


def told_of_fault(error: BaseException) -> str:
    """What may stand in a log of any exception: of ours its text; of others type and place, since their texts may hold
    a row's or a vendor's words. Of a group its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, BatchwrightError):
        return str(error)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {trace.tb_frame.f_code.co_filename.rpartition('batchwright/')[2]}:{trace.tb_lineno}" if trace else ""
    return f"{type(error).__name__}{where}"
