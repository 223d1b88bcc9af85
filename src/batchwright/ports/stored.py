"""What a store tells of what it has, as it was at one moment; and a repricing, which is made from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchwright.core.batch_spec import BatchSpec
from batchwright.core.batch_state import BatchFacts, Pause
from batchwright.core.failures import FailureKind
from batchwright.core.fair_share import WEIGHT_ONE
from batchwright.core.lane_wait import LaneWait
from batchwright.core.records import Record, SegmentInput, SegmentKey, Tally, UsageKey, UsageSum
from batchwright.core.tenants import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What an account was given of the workers, beside what every account has."""

    account: str
    weight: int = WEIGHT_ONE
    """In hundredths: of two accounts with work enough, one of twice the weight is served twice the tokens."""
    in_flight: int = 0
    """Segments (of up to 500 rows) that workers may hold of it at once; 0: no bound."""

    @property
    def is_everybodys(self) -> bool:
        return self.weight == WEIGHT_ONE and not self.in_flight


EVERYBODYS = Share(account="")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """A batch as stored, with the sums that status is made of."""

    batch_id: str
    tenant: Tenant
    spec: BatchSpec
    facts: BatchFacts
    round: int
    created_at_ms: int
    settled_at_ms: int
    """0: not settled."""
    deadline_ms: int
    segments: int
    segments_open: int
    pauses: Sequence[Pause]
    tally: Tally
    """Sum over the present round's tallies (all workers, base row included); cost and attempts over all rounds."""
    budget_taken_picousd: int
    """known + possible + orphan + allowances, as the cap counts them; 0 without a cap."""
    gate_passed: bool
    owner: str
    """While accepting: who takes the rows in."""
    worst_picousd: int | None
    """The most that one attempt of each of its rows can cost, all together; None: not known of every row."""
    closed_as: FailureKind | None = None
    """What the present round was closed as (cancelled, expired, stopped); None: it was not."""
    left: int = 0
    """Of a retry's round that was closed and has settled: rows that were to be sent again and have no new outcome; they
    read as in the round before."""
    waits: tuple[LaneWait, ...] = ()
    """What live workers say holds lanes back that read like those of its open rows, the longest first; where such a
    lane leads is not compared. One lane may be told of by several."""
    priority: int = 0
    share: Share = EVERYBODYS
    """Of its account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentView:
    """A segment as a reader sees it, at one moment."""

    number: int
    first_index: int
    round: int
    row_map: bytes
    """As it counts: read through `row_map.read_closed`."""
    reserved: bytes
    """The stored map: tells which closed rows may have been sent."""
    records: dict[int, Record]
    """The last record of every row that has one, an earlier round's where this round made none."""
    input: SegmentInput | None
    """None unless asked for."""
    epoch: int
    """At that moment: what a repricing of the segment names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRepricing:
    """Other costs for answers of one settled segment; nothing else about its rows changes."""

    key: SegmentKey
    epoch: int
    """Of the view it was made from."""
    records: bytes
    """`wire.frames.pack_records` of the whole records that change, with their new costs; at most 8 MiB of bodies,
    unless a single one is larger."""
    tally: Tally
    """Differences of cost, `unpriced`, `no_usage`, and of `possible_picousd` where a cap had counted the answers."""
    usage: dict[UsageKey, UsageSum]
    """Differences, under the day, lane and vendor of the answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLine:
    """What all workers together used under one key."""

    key: UsageKey
    sum: UsageSum


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """What a new round has, in rows and in segments, and its number."""

    rows: int
    segments: int
    round: int
