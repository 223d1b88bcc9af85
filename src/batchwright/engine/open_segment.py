"""A segment this worker holds, in memory: its rows, its map as the next checkpoint will write it, what changed since.

The map here runs ahead of the durable one by at most one checkpoint. A row may be sent only once the checkpoint that
wrote its RESERVED byte has landed: such rows are in `ready` queues (`engine.desk`), and nowhere else.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from batchwright.core import row_map
from batchwright.core.failures import FailureKind
from batchwright.core.records import InputRow, Record, Tally, UsageKey, UsageSum
from batchwright.engine.worker_settings import RESERVE_MAX_PER_SEGMENT
from batchwright.ports.store import ClaimedSegment, Release, SegmentKey

if TYPE_CHECKING:
    from batchwright.engine.attempt import Attempt
    from batchwright.engine.batch_context import BatchContext
    from batchwright.engine.desk import BatchLine


UNTRIED = Record(row=-1, byte=row_map.RESERVED, attempts=0, used=0)


class LaneQueue:
    """The rows of one open segment that go to one lane and are to be reserved, in sending order."""

    __slots__ = ("line", "pending", "segment")

    def __init__(self, segment: OpenSegment, line: BatchLine) -> None:
        self.segment = segment
        self.line = line
        self.pending: deque[int] = deque()

    @property
    def may_reserve(self) -> bool:
        window = self.segment.window
        return bool(self.pending) and (not window or self.segment.reserved < window)


class Bodies(NamedTuple):
    """Of a segment when it was opened."""

    size: int
    """Bytes, as they are held."""
    rows: int

    def of(self, rows: int) -> int:
        """About what so many of them take."""
        return self.size * rows // self.rows if self.rows else 0


class OpenSegment:
    __slots__ = (
        "away",
        "becoming_ready",
        "bodies",
        "context",
        "epoch",
        "failure_marks",
        "first_index",
        "flights",
        "followers",
        "key",
        "lane_set",
        "lanes",
        "lost",
        "new_records",
        "notes",
        "open",
        "outcomes",
        "packed_bytes",
        "previous_map",
        "previous_records",
        "queues",
        "rate_marks",
        "reserved",
        "retired",
        "round",
        "row_map",
        "rows",
        "suspects",
        "tally",
        "unrepaired",
        "usage",
        "waiting",
        "window",
    )

    def __init__(self, claimed: ClaimedSegment, context: BatchContext) -> None:
        self.key: SegmentKey = claimed.key
        self.epoch = claimed.epoch
        self.round = claimed.round
        self.first_index = claimed.first_index
        self.context = context
        self.rows: list[InputRow | None] = list(claimed.input.rows)
        self.row_map = bytearray(claimed.row_map)
        self.previous_map = claimed.previous_map
        self.previous_records = claimed.previous_records
        self.notes: dict[int, Record] = claimed.records
        """Latest record of rows that were attempted and are still open."""
        self.queues: dict[int, LaneQueue] = {}
        """By the rows' lane index."""
        self.followers: dict[int, list[int]] = {}
        """Rows that end as another row of the batch does, by the request_index of that one (`engine.followers`)."""
        self.flights: dict[int, Attempt] = {}
        """Rows at a vendor now."""
        self.waiting: dict[int, float] = {}
        """Rows that wait for a next attempt, and until when (loop seconds)."""
        self.rate_marks: dict[int, int] = {}
        """The lane's count of successes when a row was last rate limited."""
        self.failure_marks: dict[int, float] = {}
        """Of rows that failed as an outage does: which rows' answers tell, by the moment they were sent, that the lane
        was well then (`engine.attempt`; loop seconds)."""
        self.window = claimed.window
        self.suspects = dict.fromkeys(claimed.suspects)
        """Rows of which each is to be the only one out, until it has come back (`Floor.isolate`), in this order."""
        self.open = row_map.count_open(self.row_map)
        self.reserved = 0
        """Rows whose byte is RESERVED in this map."""
        self.packed_bytes = claimed.input_bytes
        self.lane_set = claimed.lane_set
        self.lanes = claimed.input.lanes
        """Texts of lane keys; rows name them by their index here."""
        self.away: dict[int, dict[int, float]] = {}
        """Rows that left a lane of their route for another (`engine.failover`): until when (loop seconds) they are not
        to come back, by lane."""
        self.lost = False
        self.retired = False
        """Its rows have left the desks; it is given back or closed when nothing of it is out."""
        self.becoming_ready: list[tuple[LaneQueue, int]] = []
        self.new_records: list[Record] = []
        self.tally = Tally()
        self.usage: dict[UsageKey, UsageSum] = {}
        self.outcomes = 0
        self.unrepaired: dict[int, InputRow] = {}
        """Rows that are sent with an answer to be repaired (`engine.checked`), as they came in."""
        for row, byte in enumerate(self.row_map):
            if byte > row_map.RESERVED:
                self.rows[row] = None
        self.bodies = Bodies(sum(len(row.body) + len(row.columns) for row in self.rows if row is not None), self.open)

    @property
    def input_bytes(self) -> int:
        """What the bodies of its open rows take in memory."""
        return self.bodies.of(self.open)

    def reserve(self, queue: LaneQueue, limit: int) -> int:
        """Reserves up to `limit` of the queue's rows in the map; they become ready when the checkpoint lands."""
        room = min(limit, self.window - self.reserved if self.window else RESERVE_MAX_PER_SEGMENT)
        taken = 0
        pending = queue.pending
        while pending and taken < room:
            row = pending.popleft()
            row_map.reserve(self.row_map, row)
            self.becoming_ready.append((queue, row))
            taken += 1
        self.reserved += taken
        return taken

    def clear(self, row: int) -> None:
        """The row is not at a vendor (any more) and has not ended."""
        row_map.clear(self.row_map, row)
        self.reserved -= 1

    def base_record(self, row: int) -> Record:
        """The row's cumulative record before the attempt that now ended; a new round begins with no attempt used.

        Nearly every row has none, and gets UNTRIED: read it, and take the row's number from elsewhere.
        """
        note = self.notes.get(row)
        if note is not None:
            return note
        earlier = self.previous_records.get(row)
        if earlier is None:
            return UNTRIED
        return Record(
            row=row,
            byte=row_map.RESERVED,
            attempts=earlier.attempts,
            used=0,
            cost_picousd=earlier.cost_picousd,
            unpriced=earlier.unpriced,
            no_usage=earlier.no_usage,
            doubts=earlier.doubts,
            met=earlier.met,
            repairs=earlier.repairs,
        )

    def take_changes(self) -> SegmentDraft:
        """Hands over what the next checkpoint is to write, and begins anew."""
        draft = SegmentDraft(self)
        self.becoming_ready = []
        self.new_records = []
        self.tally = Tally()
        self.usage = {}
        self.outcomes = 0
        return draft


class SegmentDraft:
    """What of one segment a checkpoint in the making carries; nobody changes it any more."""

    __slots__ = (
        "becoming_ready",
        "closed_as",
        "lane_set",
        "not_before_ms",
        "open",
        "outcomes",
        "records",
        "release",
        "row_map",
        "segment",
        "tally",
        "usage",
    )

    def __init__(self, segment: OpenSegment) -> None:
        self.segment = segment
        self.row_map = bytes(segment.row_map)
        self.open = segment.open
        self.records = segment.new_records
        self.tally = segment.tally
        self.usage = segment.usage
        self.outcomes = segment.outcomes
        self.becoming_ready = segment.becoming_ready
        self.release: Release | None = None
        self.not_before_ms = 0
        self.closed_as: FailureKind | None = None
        self.lane_set = ""
