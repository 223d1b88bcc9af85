"""What a worker and the store say to each other at a checkpoint: what became of rows, and what is asked for; what was
lost, what was claimed, what each batch signals. The rules of the exchange stand at `ports.store.Store.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from batchwright.core.batch_state import Pause
from batchwright.core.failures import FailureKind
from batchwright.core.records import Record, SegmentInput, SegmentKey, Tally, UsageKey, UsageSum
from batchwright.core.worker_id import WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Asks for segments. Claims are the last step of a checkpoint's transaction, or of an otherwise empty one.

    Claimable: state waiting (or parked with `not_before_ms` passed, or lost with its worker), batch neither accepting,
    reopening, cancelled, expired nor paused. Order: the account that has been served the least of its share first
    (`core.fair_share`; a batch nearly due brings it forward) unless workers hold as many of its segments as they may;
    of its batches those of the highest priority, then those nearly due, then round robin, the oldest first among
    equals; of a batch the oldest segment, those whose earlier holder was lost before all others.

    A claim that names a batch is nobody's turn: it counts for no share and no bound.
    """

    limit: int
    batch_id: str = ""
    """Only this batch; empty: any."""
    exclude: frozenset[tuple[str, str]] = frozenset()
    """(batch_id, lane_set) pairs that cannot send now: their segments are left alone."""
    full_lanes: frozenset[str] = frozenset()
    """Lanes that have rows enough: segments that go to no other are left alone, whichever batch's they are."""
    no_room_lanes: frozenset[str] = frozenset()
    no_room_vendors: frozenset[str] = frozenset()
    """Lanes, and vendors, that hold all they may: segments that go to one of them are left alone, whatever other lanes
    they go to."""
    but_accounts: frozenset[str] = frozenset()
    """Accounts that have batches enough at work: nothing of theirs, unless the claim names a batch."""
    max_bytes: int = 0
    """Stop claiming when the claimed inputs pass this size; the first is always given. 0: no bound."""

    def is_full(self, lane_set: str) -> bool:
        """Segments of this set of lanes are left alone for the sake of others."""
        if not (self.full_lanes or self.no_room_lanes or self.no_room_vendors):
            return False
        lanes = lane_set.split("\n")
        if any(lane in self.no_room_lanes or lane.partition("|")[0] in self.no_room_vendors for lane in lanes):
            return True
        return self.full_lanes.issuperset(lanes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedSegment:
    """A segment this worker now holds. Rows that a lost lease left in doubt have been dealt with (`core.doubt`)."""

    key: SegmentKey
    epoch: int
    round: int
    first_index: int
    row_map: bytes
    previous_map: bytes | None
    previous_records: dict[int, Record]
    """The record each reopened row had at the end of the round before; empty in round 0."""
    records: dict[int, Record]
    """The latest record of each row that has one in this round (notes of rows to be tried again)."""
    input: SegmentInput
    input_bytes: int
    first: tuple[int, ...]
    """Rows to send before the others."""
    window: int
    """At most so many rows reserved at once while no outcome has been checkpointed; 0: no such bound."""
    suspects: tuple[int, ...]
    """Those of `first` that are to be out alone, the most suspect first (`core.doubt`)."""
    lane_set: str
    resolved: Tally
    """What the claim itself added to this worker's tally for rows in doubt."""


class Release(StrEnum):
    """How a worker lets go of a segment that has open rows."""

    WAITING = "waiting"
    """Given back."""
    PARKED = "parked"
    """Given back, not before a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentChange:
    """What one worker's checkpoint says of one segment it holds."""

    key: SegmentKey
    epoch: int
    row_map: bytes
    """The whole new map: reservations, ends and rows cleared since the last checkpoint."""
    records: bytes = b""
    """`wire.frames.pack_records` of records made since the last checkpoint; empty when there are none."""
    tally: Tally = field(default_factory=Tally)
    """Deltas; left out with the segment if it was lost."""
    usage: dict[UsageKey, UsageSum] = field(default_factory=dict)
    """Deltas; left out with the segment if it was lost."""
    outcomes: int = 0
    """How many of the records are ends; above 0 sets the segment's deaths to 0 and lifts its window."""
    orphan_picousd: int = 0
    """Known cost within `tally`: what is counted as orphan spend if the segment turns out to be lost."""
    release: Release | None = None
    """None: held on."""
    not_before_ms: int = 0
    """Of one that is parked."""
    closed_as: FailureKind | None = None
    """CANCELLED, EXPIRED or STOPPED: the worker closes the segment; its open rows read as that (or as before). The
    store adds their counts to the worker's tally."""
    lane_set: str = ""
    """With a release: the lanes of the rows that are still open, where that is fewer than before; empty: unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowanceRequest:
    """Asks for budget of a capped batch, or (negative) gives some back."""

    batch_id: str
    picousd: int
    minimum_picousd: int = 0
    """Give at least this or nothing; what is given is never more than the cap and the budget of its key leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything a worker makes durable at once. At most 8 MiB of records, unless a single one is larger."""

    worker: WorkerId
    number: int
    """One more than the last that landed; `Store.checkpoint_number` tells later whether this one did."""
    now_ms: int
    segments: Sequence[SegmentChange] = ()
    spent: dict[str, int] = field(default_factory=dict)
    """By batch: picousd that left this worker's allowance since the last checkpoint because the attempts ended, whose
    known cost is in the segments' tallies. Not fenced."""
    claim: ClaimRequest | None = None
    allowances: Sequence[AllowanceRequest] = ()
    pauses: Sequence[tuple[str, Pause]] = ()
    """(batch_id, pause) facts to write, if the batch has open rows; a later one of the same cause replaces nothing."""
    gate_passed: Sequence[str] = ()
    """Batches whose gate was passed in their present round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSignals:
    """What a worker must know of a batch it holds segments of."""

    batch_id: str
    round: int
    closing: FailureKind | None
    """CANCELLED, EXPIRED or STOPPED once asked for: stop sending, let what is out finish, close the segments."""
    paused: bool
    deadline_ms: int
    settled: bool
    budgeted: bool = False
    """The key it was submitted with has a budget: a row is only sent if what it can cost was drawn from that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointResult:
    lost: frozenset[SegmentKey] = frozenset()
    """Segments whose epoch is no longer this worker's: nothing of them was written but the orphan spend."""
    claimed: Sequence[ClaimedSegment] = ()
    given_back: int = 0
    """Segments that were claimed and given back, since the object store that has their inputs did not answer."""
    signals: dict[str, BatchSignals] = field(default_factory=dict)
    """Of every batch named by a held or claimed segment, and of the one that the claim asked for alone: its worker
    may never get a segment of it, and has to learn that it has ended or is paused."""
    allowances: dict[str, int] = field(default_factory=dict)
    """Picousd given, by batch; 0: the cap, or the budget of its key, leaves less than the minimum."""
    key_short: frozenset[str] = frozenset()
    """Batches given nothing for their key's budget."""
    key_held: frozenset[str] = frozenset()
    """Those of `key_short` for which there would be enough but for what others have drawn under the key: it may come
    back."""
    settled: Sequence[str] = ()
    """Batches that this transaction settled."""
