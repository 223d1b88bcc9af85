"""What is known of a row's attempts: the record that parts, results and readers share, and the sums over records.

A record is cumulative: its attempts and cost are those of the row over all attempts and rounds, so of two records of
a row the later alone is needed and nothing is ever added up twice.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from batchwright.core.endpoints import CHAT
from batchwright.core.tenants import LOCAL_ACCOUNT

UNKNOWN = -1
"""A token count that the vendor did not send. Never 0: no usage is not the same as no tokens."""


REPAIR_NEXT, REPAIR_TRIED = 1, 2


class Record(msgspec.Struct, array_like=True, gc=False):
    """One row as a checkpoint left it: its outcome, or (`byte` PENDING or RESERVED) a note of attempts so far.

    Stored as a MessagePack array: append fields at the end, with a default, and never reorder them.
    """

    row: int
    """Position within the segment, 0-based."""
    byte: int
    """The row map's byte after this record (`core.row_map`)."""
    attempts: int
    """Sends so far, over all rounds, rate-limited and refused ones included."""
    used: int
    """Of these, the attempts that used one up in the present round (`core.failures`, `SentAgain`)."""
    cost_picousd: int = 0
    """Known cost over all attempts, in 1e-12 USD."""
    unpriced: int = 0
    """Attempts that were answered and have no price."""
    no_usage: int = 0
    """Attempts that were answered without usage, so that their cost is unknown."""
    doubts: int = 0
    """Attempts that may have been paid for without an answer having been read."""
    http_status: int = 0
    """The vendor's last status; 0 where no answer came."""
    code: str = ""
    """The vendor's own error code, bounded; empty where it sent none."""
    param: str = ""
    message: str = ""
    """The vendor's own error text, or ours, bounded."""
    body: bytes = b""
    """The vendor's whole last answer, as it came; empty where none came."""
    request_id: str = ""
    vendor: str = ""
    price_id: str = ""
    """Which price was used (`core.pricing.Price.price_id`); empty where none was known."""
    prompt_tokens: int = UNKNOWN
    completion_tokens: int = UNKNOWN
    cached_tokens: int = UNKNOWN
    latency_ms: int = 0
    """From the send to the end of the last attempt."""
    ended_at_ms: int = 0
    not_before_ms: int = 0
    """For a note: the row must not be sent again before this moment (milliseconds since the epoch)."""
    rate_limits: int = 0
    """Attempts in the present round that ended as rate_limited while the lane had successes in between."""
    alone: int = 0
    """Deaths of a worker in the present round at which this row was the only one it had reserved."""
    deaths: int = 0
    """Deaths of a worker in the present round at which this row was reserved, alone or not."""
    met: str = ""
    """What each failed attempt met, over all rounds (`core.met`); empty where none failed."""
    lane: int = -1
    """Index into the segment's lanes of where a row of a route was sent last, once it had left its first choice or
    failed there; -1: to its first choice."""
    reused: str = ""
    """The batch whose attempts got this answer, where it was taken over from there at no cost; empty: it is of this
    batch's own."""
    reused_row: int = -1
    """Of such an answer: the request_index of the row there that got it."""
    repairs: int = 0
    """Answers that did not match the batch's schema and were asked for again, over all rounds."""
    repair: int = 0
    """Of a note: it keeps an answer that did not match (`body`, and in `message` what was wrong), and what is sent next
    is its repair (REPAIR_NEXT) or a retry of that (REPAIR_TRIED). 0: it keeps none."""


def known_picousd(record: Record | None) -> int | None:
    """The known part of a row's cost; None where nothing of it is known. A row without a record has cost nothing."""
    if record is None:
        return 0
    return None if not record.cost_picousd and (record.unpriced or record.no_usage) else record.cost_picousd


class Tally(msgspec.Struct, kw_only=True, gc=False):
    """Counters and costs of one batch, as one worker counted them in one round; sums of tallies are status.

    `counts` has one entry a row-map byte that rows ended with (ends only).
    """

    counts: dict[int, int] = msgspec.field(default_factory=dict)
    attempts: int = 0
    retries: int = 0
    """Attempts beyond each row's first of the round."""
    unreached: int = 0
    """Attempts of which nothing left this machine: refused, no such host, failed handshake."""
    cost_picousd: int = 0
    unpriced: int = 0
    no_usage: int = 0
    doubts: int = 0
    """Possible double payments: attempts that may have been paid for without an answer. An upper bound."""
    possible_picousd: int = 0
    """Worst-case cost of those doubts where a cap is set (else 0); charged to the cap, no part of the rows' sum."""
    orphan_picousd: int = 0
    """Cost of answers that came after the segment was lost: shown beside the batch's cost, charged to its cap."""
    orphans: int = 0
    allowance_picousd: int = 0
    """Drawn from the budget and not yet spent."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    def add(self, other: Tally) -> None:
        """Adds `other` to this one, field by field."""
        for byte, count in other.counts.items():
            self.counts[byte] = self.counts.get(byte, 0) + count
        for name in TALLY_SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


TALLY_SUMS: tuple[str, ...] = tuple(name for name in Tally.__struct_fields__ if name != "counts")


SIMULATED = "simulated"
"""What usage calls the vendor of answers that are made up: they are never summed with real ones."""


class UsageKey(msgspec.Struct, frozen=True, gc=False, order=True):
    """What spending is summed by. `day` is the UTC date of the answer, `YYYY-MM-DD`."""

    day: str
    account: str
    """The vendor's account: the name of the variable that holds its key."""
    model: str
    vendor: str
    tenant: str = LOCAL_ACCOUNT
    """Whose batch it was (`core.tenants`)."""
    key_id: str = ""
    """The service key it was submitted with; empty: none."""
    endpoint: str = ""
    """Of a single call: where it went (`core.endpoints`); empty: rows of batches."""


class UsageSum(msgspec.Struct, gc=False):
    """What was used under one key: answered attempts, tokens, known cost, answers without price, without usage."""

    answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_picousd: int = 0
    unpriced: int = 0
    no_usage: int = 0

    def add(self, other: UsageSum) -> None:
        """Adds `other` to this one, field by field."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class RowFile(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A file of the submitter's machine whose bytes belong into a row's body, and are read when it is sent."""

    path: str
    """Absolute."""
    digest: str
    """Hex SHA-256 of its bytes as they were when the row came in."""
    size: int
    """Bytes."""
    media_type: str

    @property
    def reference(self) -> str:
        """What stands in the stored body in the place of its data URL."""
        return f"batchwright-file:{self.digest}"

    @property
    def sent_bytes(self) -> int:
        """Of the data URL."""
        return len("data:;base64,") + len(self.media_type) + (self.size + 2) // 3 * 4


class InputRow(msgspec.Struct, array_like=True, gc=False):
    """One row as intake stored it. Its `body` is the bytes that are sent, exactly.

    Stored as a MessagePack array: append fields at the end, with a default.
    """

    body: bytes
    """The request body; for a row that was refused (`problem`), its line as it came, bounded."""
    custom_id: str | None = None
    model: str = ""
    """The model name as the vendor gets it; empty for a row that names none."""
    lane: int = 0
    """Index into the segment's lanes (`SegmentInput.lanes`)."""
    endpoint: str = CHAT
    """Path below the vendor's base URL, beginning with a slash, without a version (`core.endpoints`)."""
    output_tokens: int = 0
    """The row's own bound on output tokens, times `n`; 0 where it has none; `core.pricing.NO_OUTPUT`: there is none to
    be bounded."""
    columns: bytes = b""
    """The source's own columns, a JSON object of strings; empty where the source has none."""
    worst_picousd: int = 0
    """The most that one attempt can cost, at the dearest price of its route; 0 where that is not known."""
    line: int = 0
    """1-based physical line (or CSV record) of the source; 0 where there is none."""
    model_prefix: str = ""
    """What was taken off the row's model name because it named a vendor of ours (`local/`); empty where nothing was."""
    source_index: int = -1
    """The row's request_index in the batch that this one retries; -1: it came from a caller."""
    route: str = ""
    """The model name of ours that the row gave, where it is a route's; `model`, `lane` and the body are those of its
    first choice. Empty: it gave none."""
    shares: int = -1
    """The request_index of an earlier row of the batch with the same request, whose outcome is this one's, too: it is
    not sent. -1: it is a row of its own."""
    files: tuple[RowFile, ...] = ()
    """Files that `body` only refers to (`wire.images`). Only a row that was taken in on this machine ever has any."""

    @property
    def sent_bytes(self) -> int:
        """Of the body as it is sent."""
        return len(self.body) + sum([file.sent_bytes for file in self.files]) if self.files else len(self.body)

    @property
    def named_model(self) -> str:
        """The model as the row named it, or as it was filled in."""
        return self.route or self.model_prefix + self.model


class SegmentKey(NamedTuple):
    """Which segment. Ordered; transactions touch segments in this order."""

    batch_id: str
    number: int


class Pieces(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Consecutive pieces of an uploaded file, which together are whole lines (`ports.files`)."""

    file_id: str
    first: int
    count: int


class SegmentInput(msgspec.Struct, array_like=True, gc=False):
    """A segment's input blob, decoded: `lanes` are texts of `core.batch_spec.LaneKey`, `rows` in row order."""

    lanes: list[str]
    rows: list[InputRow]
