"""A vendor's own batch API, behind one contract: rows go there as one batch and come back hours later, cheaper.

One `VendorBatches` is one vendor, address and key. It has no clock of its own that it waits by, takes no chance and
sends nothing twice: whoever calls it tries again. What goes wrong with a call is a `BatchFault`; what is wrong with a
row or with the batch is a value.

**Nothing is paid twice.** `create` gives the batch a tag that its caller has kept before. Where the reply is lost, the
caller asks `find(tag)` before it creates another one. How sure that is differs (`TagKept`).

**The text of a file.** One line a row, which holds the row's id as our caller gave it. All lines of a batch have one
endpoint, and where `limits.one_model` says so one model.

**Results** are read as live answers are (`vendors.classify`): each line is an `Answer`. Order, repetitions and gaps are
the vendor's: the caller matches by row id alone, and what it never hears of is missing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from enum import StrEnum
from typing import Protocol

import msgspec

from batchwright.core.batch_spec import Destination
from batchwright.core.errors import BatchwrightError
from batchwright.core.failures import FailureKind
from batchwright.core.records import UNKNOWN
from batchwright.ports.vendor import Answer

LINE_BYTES = 256
"""What a row counts for beside its body where bytes of a file are bounded: its id, the endpoint, the frame."""
MAX_FILE_BYTES = 32 * 1024 * 1024
"""Of a batch, whatever the vendor takes: an upload is in memory once, and a file that is refused costs its time."""
MAX_ROW_ID_CHARS = 40
"""Of `[A-Za-z0-9_-]`: what every vendor takes, with room for a mark before it."""
MAX_TAG_CHARS = 64
"""Of `[A-Za-z0-9._-]`: fits into metadata and into a file's name."""


class TagKept(StrEnum):
    """Where a vendor keeps our tag, which is how `find` knows a batch again."""

    METADATA = "metadata"
    """In the batch: as soon as it is there it is found, and what is found is ours."""
    FILE_NAME = "file_name"
    """In the name of its input file, to which the batch leads: as good, by two lists."""
    ROW_IDS = "row_ids"
    """In the ids of its rows, which nobody can read before the batch has ended: until then it may be ours."""


class BatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch may hold. Prices stand elsewhere."""

    rows: int
    bytes: int
    """Of the bodies, and `LINE_BYTES` each; never above `MAX_FILE_BYTES`."""
    windows_s: tuple[int, ...]
    """Times within which the vendor promises to end a batch, ascending; `create` takes one of these."""
    one_model: bool = False
    enqueued_tokens: int = 0
    """Input tokens that may wait there at once, of one model and account; 0: not known. (It is another one for each
    account: a vendor that refuses for it says so with kind RATE_LIMITED.)"""
    endpoints: tuple[str, ...] = ()
    """In their normal form (`/chat/completions`); empty: any."""
    keeps_ids: bool = True
    """Result lines have our row ids. (No vendor is known that numbers lines instead.)"""
    tag_kept: TagKept = TagKept.METADATA

    def takes(self, endpoint: str) -> bool:
        return not self.endpoints or endpoint in self.endpoints


class BatchLine(msgspec.Struct, frozen=True, gc=False):
    """One row of a new batch."""

    row_id: str
    """Unique in its batch; see `MAX_ROW_ID_CHARS`."""
    body: bytes
    """A JSON object in one line, as it would be sent live."""


class BatchOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch is created with beside its rows."""

    tag: str
    """Ours alone and never given twice; see `MAX_TAG_CHARS`."""
    endpoint: str
    """Of all its rows, in the normal form."""
    model: str
    """Of its rows; where they may differ, that of the first."""
    window_s: int
    """One of `limits.windows_s`."""


class CreatedBatch(msgspec.Struct, frozen=True, kw_only=True):
    batch_id: str
    file_id: str
    """Of the input; empty where the rows went in with the call."""


class VendorBatchState(StrEnum):
    """What every vendor's states come down to. One that nobody has told us of counts as IN_PROGRESS."""

    VALIDATING = "validating"
    """Its rows are being read; nothing has been done."""
    IN_PROGRESS = "in_progress"
    """It waits, or rows of it are worked on."""
    FINALIZING = "finalizing"
    """No row is worked on any more; its results are being written."""
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    """It ended by itself, with whatever became of its rows."""
    FAILED = "failed"
    """Refused as a whole, or given up: `BatchView.errors` and `kind` say why. There may be results all the same."""
    EXPIRED = "expired"
    """The window passed. What was done by then stands in its results."""
    CANCELLED = "cancelled"
    """Likewise."""

    @property
    def has_ended(self) -> bool:
        return self in _ENDED


_ENDED = frozenset(
    (VendorBatchState.COMPLETED, VendorBatchState.FAILED, VendorBatchState.EXPIRED, VendorBatchState.CANCELLED)
)


class VendorBatchError(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a vendor says is wrong with a batch. Bounded; without the key."""

    code: str = ""
    message: str = ""
    line: int = 0
    """1-based, of the input as `create` was given it; 0: the batch as a whole, or the vendor does not say."""
    param: str = ""


class BatchView(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as its vendor tells of it. May be kept and given to `results` later, by another process."""

    batch_id: str
    state: VendorBatchState
    state_text: str
    """The vendor's own word."""
    endpoint: str = ""
    """In the normal form; empty: the vendor does not say, or it is none."""
    tag: str = ""
    """Empty: it has none that can be read; it may be ours or not."""
    total: int = UNKNOWN
    succeeded: int = UNKNOWN
    failed: int = UNKNOWN
    """Rows, as they are told: some vendors say 0 until they have read the file, or until the end."""
    progress_percent: float = -1.0
    """Of vendors that count no rows; -1: not told."""
    input_ref: str = ""
    output_ref: str = ""
    error_ref: str = ""
    """What `results` and `delete_files` go by; empty: there is no such file (yet)."""
    errors: tuple[VendorBatchError, ...] = ()
    """At most `MAX_ERRORS`."""
    kind: FailureKind | None = None
    """Of a FAILED batch: what its first error means. RATE_LIMITED: there was no room (the limit of enqueued tokens);
    nothing was done, and the same batch can be created later. None: not FAILED."""
    created_ms: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    expires_ms: int = 0
    """Since the epoch, by the vendor's clock; 0: not told."""


MAX_ERRORS = 100


class FoundBatch(msgspec.Struct, frozen=True, kw_only=True):
    view: BatchView
    certain: bool
    """False: nobody can tell before it has ended whether it is ours (`TagKept.ROW_IDS`); it has as many rows."""


class BatchFile(msgspec.Struct, frozen=True, kw_only=True):
    """An input file of ours at the vendor."""

    file_id: str
    tag: str
    bytes: int = UNKNOWN
    created_ms: int = 0


class ResultLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a batch's results."""

    row_id: str
    """As `BatchLine.row_id`, or whatever stands there: it may name no row of ours. Empty: the line has no id that can
    be read, and `problem` says so."""
    answer: Answer | None
    """As of a live attempt, but for pace: a batch's answers say nothing of limits. None: see `problem`."""
    done: bool = True
    """False: the vendor says that it never did this row and bills nothing for it (the window passed, the batch was
    cancelled). Its answer has kind EXPIRED or CANCELLED; the row may be sent again as if it never had been."""
    place: str = ""
    """`line 17 of the output file`, for a person."""
    problem: str = ""
    """Why there is no answer: the line is no JSON, has no id. A sentence without its stop, with an excerpt."""


class CreateStep(StrEnum):
    """Of the two steps of `create`."""

    UPLOAD = "upload"
    CREATE = "create"


class BatchFault(BatchwrightError):
    """A call that did not come to its end. Its text is for a person and holds no key."""

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind,
        may_be_done: bool,
        http_status: int = 0,
        code: str = "",
        retry_after_s: float = 0.0,
        step: CreateStep | None = None,
        file_id: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        """As of a row (`core.failures.KINDS` says whether it helps to try again). RATE_LIMITED also where the vendor
        has no room for more enqueued tokens; MISSING_FROM_UPSTREAM where it does not know the batch or the file (any
        more); BAD_RESPONSE where a 2xx cannot be read."""
        self.may_be_done = may_be_done
        """The vendor may have done what was asked although nobody heard it: no answer came after the request was
        written, or one of 5xx, or one that cannot be read. False: surely not done."""
        self.http_status = http_status
        """0: no answer came."""
        self.code = code
        self.retry_after_s = retry_after_s
        """0: the vendor names no wait."""
        self.step = step
        """Of `create`: where it broke off. UPLOAD: there is no batch; there may be a file (`files` finds it). CREATE:
        the file is there, and where `may_be_done` a batch too (`find` finds it)."""
        self.file_id = file_id
        """Of `create` at step CREATE: the file that is there."""


class VendorBatches(Protocol):
    """All methods are for the loop's thread, and any number may be under way at once. Each raises BatchFault."""

    @property
    def limits(self) -> BatchLimits: ...

    def unfit(self, endpoint: str, body: bytes) -> Answer | None:
        """Why this row can never go into a batch here, as the failed answer it gets instead (it asks for a stream, or
        for what the vendor's protocol has no words for); None: it can. No I/O, always the same. To be asked of every
        row before it is put into a batch."""

    async def create(self, lines: Iterable[BatchLine], order: BatchOrder) -> CreatedBatch:
        """Uploads the rows and creates the batch. `lines` is gone through once, before anything is sent, a piece at a
        time: the loop gets its turns.

        Raises ValueError for an order or lines that break the contract (no rows, above `limits`, a repeated or odd id,
        another window, an unfit row): the caller's fault, nothing was sent. Where it raises BatchFault, `step` and
        `may_be_done` say what may be there; a task that is cancelled in it leaves whatever either step may leave. Not
        idempotent: called again it makes another batch.
        """

    async def find(self, tag: str, *, since_ms: int, rows: int) -> tuple[FoundBatch, ...]:
        """The batches with this tag, newest first, of those that the vendor has created since (ten minutes earlier
        count too: its clock is another one). Pages through its list. Empty: there is none, or the vendor's list does
        not have it yet: some take seconds. `rows`: how many it was created with, by which a vendor that keeps no tag
        knows what may be it."""

    async def look(self, batch_id: str) -> BatchView: ...

    def results(self, view: BatchView) -> AsyncGenerator[ResultLine, None]:
        """The lines of its output, then those of its errors, as they stand there: in any order, perhaps twice, perhaps
        of other rows. Streamed: one line of at most `ports.http.MAX_ANSWER_BYTES` is in memory (a longer one is
        ANSWER_TOO_LARGE), and while the caller takes none nothing more is read. A view without files has none.

        A fault in the middle raises BatchFault; begun anew it gives the same lines again. To be closed (`aclose`) where
        it is not gone through to its end.
        """

    async def cancel(self, batch_id: str) -> None:
        """Asks the vendor to end it. Harmless when asked again, and of a batch that has ended. The batch goes on to be
        CANCELLING, then CANCELLED, or has ended meanwhile: `look` tells."""

    async def files(self, *, since_ms: int) -> tuple[BatchFile, ...]:
        """Our own input files there, newest first, whether or not a batch leads to them: with `find` an upload whose
        batch was never created is known, to be deleted. Empty where rows go in with the call."""

    async def delete_files(self, refs: Iterable[str]) -> None:
        """By `input_ref`, `output_ref`, `error_ref` or `BatchFile.file_id`; one that is not there counts as deleted.
        Only of batches that have ended and whose results are durable here."""


class BatchVendors(Protocol):
    """Opens batch APIs by destination (`vendors.registry.OpenVendors`, which opens live vendors too)."""

    def batch_limits(self, destination: Destination) -> BatchLimits | None:
        """From the vendor's profile; no key is needed and nothing is asked. None: no batch API is known there."""

    def open_batches(self, destination: Destination) -> VendorBatches:
        """One a destination, however often asked. Raises VendorUnavailable with a message for a person: it has no batch
        API that is known, its key is missing (`ports.vendor.Vendors.lacks`) or cannot be sent."""
