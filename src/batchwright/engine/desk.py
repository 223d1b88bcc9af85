"""A desk is one lane in this worker: the lane's state machine, the vendor behind it, and the rows that are to go there.

Rows of one batch at a desk form a line. Lines take turns, so that one large batch does not starve another; within a
line the oldest segment goes first.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

from batchwright.core.batch_spec import Destination, LaneKey, VendorProtocol
from batchwright.core.dearest import Dearest
from batchwright.core.lanes import Lane
from batchwright.core.pricing import Price
from batchwright.core.quarantine import Quarantine
from batchwright.core.records import SIMULATED, UsageKey
from batchwright.core.shares import Demand
from batchwright.engine.open_segment import LaneQueue, OpenSegment
from batchwright.engine.sent_rows import SentRows
from batchwright.engine.worker_settings import RESERVE_MIN, LaneLimits
from batchwright.ports.vendor import Vendor

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from batchwright.engine.batch_context import BatchContext


GROUPED_MAX = 100_000
"""Rows at a batch API at once, by one worker; the bytes of their bodies mostly bind before (`engine.room`)."""


class BatchLine:
    """One batch's rows at one desk."""

    __slots__ = ("context", "desk", "queues", "ready", "usage_day", "usage_key", "waits_for_cost")

    def __init__(self, context: BatchContext, desk: LaneDesk) -> None:
        self.context = context
        self.desk = desk
        self.ready: deque[tuple[LaneQueue, int]] = deque()
        """Durably reserved, not at a vendor: may be sent now."""
        self.queues: dict[int, LaneQueue] = {}
        """By segment number; queues of open segments, oldest claimed first."""
        self.usage_key: UsageKey | None = None
        """What its answers are summed under, of the day `usage_day`."""
        self.usage_day = 0
        self.waits_for_cost = False
        """Until one of those that are out at the desk has ended: nobody knows yet what its next row may cost."""

    def in_turn(self) -> Iterable[LaneQueue]:
        """The oldest segment first, but before it those whose last worker died (they have a window): one outcome shows
        that a segment kills nobody, and its doubtful rows have waited longest."""
        queues = self.queues.values()
        if any(queue.segment.window for queue in queues):
            return sorted(queues, key=lambda queue: not queue.segment.window)
        return queues

    @property
    def starves(self) -> bool:
        """None of its rows is ready, and some could be reserved."""
        if self.ready or not self.context.may_send or self.waits_for_cost or self.context.waits_at_gate:
            return False
        return self.context.reserve_bound(1) > 0 and any(queue.may_reserve for queue in self.queues.values())

    def unsent(self) -> int:
        return len(self.ready) + sum(len(queue.pending) for queue in self.queues.values())


class Caller(Protocol):
    """A single call that waits for room at a desk."""

    @property
    def tokens(self) -> int:
        """What it may use, as for a row."""

    def go(self, vendor: Vendor, now_s: float) -> None:
        """It was admitted at this moment: sends it."""

    def refuse(self, retry_after_s: float) -> None:
        """It cannot go: the lane is paused for good, or out."""


class LaneDesk:
    """See the module's docstring."""

    timer: TimerHandle | None

    __slots__ = (
        "aim_ppm",
        "answered",
        "answered_by",
        "called_s",
        "callers",
        "dearest",
        "demand",
        "destination",
        "flight_bytes",
        "groups",
        "key",
        "known_pause",
        "lacks",
        "lane",
        "limits",
        "lines",
        "name",
        "newest_success_s",
        "opening",
        "plain_answers",
        "price",
        "probe_at_s",
        "probe_mark",
        "probing",
        "quarantine",
        "recalled",
        "reserve_target",
        "sent",
        "sequence",
        "successes",
        "timer",
        "timer_at_s",
        "told_demand",
        "vendor",
        "waiting",
    )

    def __init__(  # noqa: PLR0915  # a list of what a lane has
        self, key: LaneKey, *, name: str, destination: Destination, lane: Lane, limits: LaneLimits, price: Price | None
    ) -> None:
        self.key = key
        self.name = name
        """What the lane is called among workers (`Floor.name_of`)."""
        self.limits = limits
        """As they were set, for all workers together; another batch on the same lane finds those of the first."""
        self.destination = destination
        self.answered_by = SIMULATED if destination.protocol is VendorProtocol.SIMULATED else key.vendor
        """The vendor as answers and bills name it: what is made up never stands under a real vendor's name."""
        self.groups = destination.protocol is VendorProtocol.BATCH
        """Its vendor is a `ports.vendor.GroupVendor`."""
        self.recalled = ""
        """Of such a one: why its rows go on to another lane; empty: they do not."""
        self.lane = lane
        self.price = price
        self.dearest = Dearest()
        """Of the answers here, whoever asked."""
        self.vendor: Vendor | None = None
        self.opening = False
        self.lacks = ""
        """What keeps this process from sending there (`ports.vendor.Vendors.lacks`); empty: nothing."""
        self.quarantine: Quarantine | None = None
        """A person has closed the lane for all workers."""
        self.known_pause = False
        """The lane's lasting pause stands in the store already."""
        self.probe_at_s = 0.0
        """When a lane that is paused for good may try one row."""
        self.probe_mark = 0
        self.probing = False
        """One row is allowed out although the lane is paused."""
        self.lines: deque[BatchLine] = deque()
        self.callers: deque[Caller] = deque()
        """Single calls that wait for room here; they go before rows."""
        self.called_s = -math.inf
        """When the last call came."""
        self.waiting: list[tuple[float, int, LaneQueue, int]] = []
        """Heap of rows that wait for their next attempt: (loop seconds, sequence, queue, row)."""
        self.sequence = 0
        self.demand = Demand()
        """For the lane's limit, which workers share (`engine.shares`)."""
        self.told_demand = 0.0
        """As it was told last."""
        self.aim_ppm = 0
        """The share of the limit that this worker should have by what was told then."""
        self.flight_bytes = 0
        """Bodies of its rows at the vendor."""
        self.sent = SentRows()
        self.reserve_target = RESERVE_MIN
        """How many rows were to be ready ahead at the last checkpoint."""
        self.successes = self.answered = 0
        self.newest_success_s = -math.inf
        """When the row was sent that was sent last of those with a success (loop seconds)."""
        self.plain_answers = 0
        """Since they were last counted (`Sender.count_plain`)."""
        self.timer, self.timer_at_s = None, 0.0

    @property
    def blocked(self) -> str:
        """Why nothing can be sent here until a person acts; empty: it can, if only the one row of a probe."""
        if self.quarantine is not None:
            return self.quarantine.sentence
        return self.recalled or self.lacks or ("" if self.probing else self.lane.paused_reason)

    @property
    def concerns(self) -> bool:
        """Whether anything was ever sent here, or waits to be."""
        return bool(
            self.answered
            or self.lane.in_flight
            or self.lane.paused_reason
            or self.quarantine
            or self.callers
            or self.waiting
            or any(line.unsent() for line in self.lines)
        )

    def set_ceiling(self, usual: int) -> None:
        """Rows at once: what its limits say, else `usual`, and no more than its vendor can work on. A batch API takes
        what memory has room for: limits are those of live rows."""
        ceiling = GROUPED_MAX if self.groups else self.limits.concurrency or usual
        bound = self.vendor.max_in_flight if self.vendor is not None else 0
        self.lane.set_ceiling(min(bound, ceiling) if bound else ceiling)

    def line_of(self, context: BatchContext) -> BatchLine:
        for line in self.lines:
            if line.context is context:
                return line
        line = BatchLine(context, self)
        self.lines.append(line)
        return line

    def ask_costs_anew(self) -> None:
        for line in self.lines:
            line.waits_for_cost = False

    def next_ready(self) -> BatchLine | None:
        """The line whose turn it is among those that have a row which may be sent; None if none has."""
        lines = self.lines
        for _ in range(len(lines)):
            line = lines[0]
            if line.ready and line.context.may_send and not (line.waits_for_cost or line.context.waits_at_gate):
                return line
            lines.rotate(-1)
        return None

    def wait(self, queue: LaneQueue, row: int, until_s: float) -> None:
        self.sequence += 1
        queue.segment.waiting[row] = until_s
        heappush(self.waiting, (until_s, self.sequence, queue, row))

    def release_due(self, now_s: float) -> bool:
        """Puts rows whose wait is over at the head of their queues, in an outage at the end: a probe is better a row
        that has not failed before. True if there were any."""
        waiting = self.waiting
        released = False
        while waiting and waiting[0][0] <= now_s:
            until_s, _, queue, row = heappop(waiting)
            # A row that has left for another lane may wait there.
            if queue.segment.waiting.get(row) == until_s:
                del queue.segment.waiting[row]
                if self.lane.in_outage:
                    queue.pending.append(row)
                else:
                    queue.pending.appendleft(row)
                released = True
        return released

    def is_hungry(self, now_s: float) -> bool:
        """Whether segments should be claimed for it. A claimed row is sent two checkpoints later at the earliest: one
        claims it, the next reserves it. While it stands still, one row is enough to find out whether that is over: one
        that does not wait for an attempt of its own."""
        if self.lane.stands_still(now_s) and self.unsent():
            return False
        return self.room > 0

    @property
    def room(self) -> int:
        """How many rows more it could use than it has to send, for three intervals; below 0: it has more."""
        return max(self.lane.limit, self.reserve_target * 3 // 2) - self.unsent()

    @property
    def starves(self) -> bool:
        """Rows could go now, and wait for nothing but a checkpoint that reserves them."""
        lane = self.lane
        if self.vendor is None or self.blocked or lane.in_outage or lane.in_flight >= lane.limit:
            return False
        return any(line.starves for line in self.lines)

    def reserve(self, now_s: float, interval_s: float) -> None:
        """Reserves rows, line by line, until as many are ready or becoming so as the lane has room for now and about
        twice what it sends in an interval. (Without the first a desk that ran out of rows would reserve few for having
        sent few.)"""
        free = max(0, self.lane.limit - self.lane.in_flight)
        least = min(RESERVE_MIN, 2 * self.lane.limit)
        target = self.reserve_target = max(least, 2 * self.sent.rows(now_s, interval_s) + free)
        share = max(1, target // max(1, len(self.lines)))
        for line in self.lines:
            if not line.context.may_send:
                continue
            wanted = min(free, share) if line.context.doubt_ends_rows else share
            lacking = line.context.reserve_bound(wanted) - len(line.ready)
            for queue in line.in_turn():
                if lacking <= 0:
                    break
                if queue.pending:
                    lacking -= queue.segment.reserve(queue, lacking)

    def unreserve(self, *, but: tuple[OpenSegment, int] | None = None) -> list[OpenSegment]:
        """Puts the rows that are ready back, one row excepted: they keep a place that a row of another lane could use
        (a segment may have few), and after a death they would be in doubt for nothing. Returns their segments."""
        segments = []
        for line in self.lines:
            kept = [(queue, row) for queue, row in line.ready if (queue.segment, row) == but]
            for queue, row in reversed(line.ready):
                if (queue.segment, row) != but:
                    queue.segment.clear(row)
                    queue.pending.appendleft(row)
                    segments.append(queue.segment)
            line.ready.clear()
            line.ready.extend(kept)
        return segments

    def unsent(self) -> int:
        return sum(line.unsent() for line in self.lines)

    def drop_queue(self, queue: LaneQueue) -> None:
        """Takes a segment's rows off the desk; its waiting rows are skipped when their time comes."""
        line = queue.line
        line.queues.pop(queue.segment.key.number, None)
        if any(entry[0] is queue for entry in line.ready):
            line.ready = deque(entry for entry in line.ready if entry[0] is not queue)
        queue.pending.clear()
        if not line.queues and not line.ready:
            self.lines.remove(line)
