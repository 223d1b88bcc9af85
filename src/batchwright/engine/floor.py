"""Everything a worker holds now: its batches, open segments and desks, and how they come and go. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import reduce

from batchwright.core import row_map
from batchwright.core.batch_spec import Destination, LaneKey, VendorProtocol, name_of_lane
from batchwright.core.gate import GATE_ROWS, Gate, GateRule
from batchwright.core.lanes import Lane, LaneSettings
from batchwright.core.prefix_order import by_prefix
from batchwright.core.pricing import Price
from batchwright.core.quarantine import Quarantine, covering
from batchwright.core.recall import recall_ms
from batchwright.core.routes import LOCAL
from batchwright.engine.batch_context import BatchContext
from batchwright.engine.desk import GROUPED_MAX, LaneDesk
from batchwright.engine.open_segment import LaneQueue, OpenSegment
from batchwright.engine.worker_settings import NO_LIMITS, LaneLimits, WorkerSettings, limits_of
from batchwright.ports.store import BatchRow, ClaimedSegment, LanePause, SegmentKey

FindPrice = Callable[[Destination, str], Price | None]
"""(destination, model as it gets it) -> its price; None: not known."""


class Floor:
    def __init__(
        self,
        *,
        settings: WorkerSettings,
        find_price: FindPrice,
        now_ms: Callable[[], int],
        keeps_prefixes: Callable[[Destination], bool] = lambda destination: False,
    ) -> None:
        """`keeps_prefixes`: as in `ports.vendor.Vendors`."""
        self._keeps_prefixes = keeps_prefixes
        self._now_ms = now_ms
        self._settings = settings
        self._find_price = find_price
        self.contexts: dict[str, BatchContext] = {}
        self.segments: dict[SegmentKey, OpenSegment] = {}
        self.desks: dict[str, LaneDesk] = {}
        """By the lane's name here (`name_of`)."""
        self.lane_sets: dict[tuple[str, str], tuple[str, ...]] = {}
        """(batch_id, lane_set) pairs met so far: the names of the lanes in them."""
        self.packing = 1.0
        """What a body takes where it is stored of what it takes here, by the segment that was opened last."""
        self.lane_pauses: dict[str, LanePause] = {}
        """Lanes that another worker, or an earlier one, found paused for good."""
        self.honours_pauses = False
        self.quarantines: tuple[Quarantine, ...] = ()
        """Lanes that a person has closed."""

    def enter(self, batch: BatchRow) -> BatchContext:
        """Remembers a batch that was claimed from for the first time (or again after it was left)."""
        spec = batch.spec
        # A batch API has hours for the first rows as for the last, and refuses a file that it cannot read as a whole.
        grouped = any(place.protocol is VendorProtocol.BATCH for place in spec.destinations)
        gated = spec.gate is not GateRule.OFF and not (batch.gate_passed or grouped) and batch.facts.total >= GATE_ROWS
        context = BatchContext(
            batch.batch_id,
            spec=spec,
            total=batch.facts.total,
            round=batch.round,
            gate=Gate(begun=batch.tally.attempts > 0) if gated else None,
            tenant=batch.tenant,
        )
        context.deadline_ms = batch.deadline_ms
        if grouped and context.route_lanes:
            begun_ms = self._now_ms() if batch.round else batch.created_at_ms
            context.recall_ms = recall_ms(begun_ms, batch.deadline_ms)
        self.contexts[batch.batch_id] = context
        return context

    def open(self, claimed: ClaimedSegment, now_s: float) -> OpenSegment:
        """Takes a claimed segment in and puts its pending rows into their desks' queues."""
        context = self.contexts[claimed.key.batch_id]
        segment = OpenSegment(claimed, context)
        self.segments[segment.key] = segment
        if segment.input_bytes:
            share = segment.open / len(segment.row_map)
            self.packing = segment.packed_bytes * share / segment.input_bytes
        if context.check is not None:
            context.check.take_over(segment)
        context.segments += 1
        self.lane_sets[segment.key.batch_id, claimed.lane_set] = tuple(
            self.name_of(lane_text, context) for lane_text in claimed.lane_set.split("\n")
        )
        first = set(claimed.first)
        order = [*claimed.first, *(row for row in range(len(segment.row_map)) if row not in first)] if first else None
        rows = segment.rows
        for row in order if order is not None else range(len(rows)):
            if segment.row_map[row] == row_map.PENDING:
                entry = rows[row]
                assert entry is not None
                if entry.shares >= 0:
                    segment.followers.setdefault(entry.shares, []).append(row)
                    continue
                queue = segment.queues.get(entry.lane)
                if queue is None:
                    queue = self.new_queue(segment, entry.lane, now_s)
                queue.pending.append(row)
        wish = context.spec.group_prefix
        for queue in segment.queues.values():
            if self._keeps_prefixes(queue.line.desk.destination) if wish is None else wish:
                _group(queue, claimed.first)
        return segment

    def put_up(self, segment: OpenSegment, row: int, now_s: float) -> None:
        """Sends a row that was to share another's outcome itself."""
        entry = segment.rows[row]
        assert entry is not None
        queue = segment.queues.get(entry.lane) or self.new_queue(segment, entry.lane, now_s)
        queue.pending.append(row)

    def new_queue(self, segment: OpenSegment, lane: int, now_s: float) -> LaneQueue:
        """A queue for those of the segment's rows that go to the lane of this index."""
        desk = self.desk(segment.lanes[lane], segment.context, now_s)
        line = desk.line_of(segment.context)
        queue = LaneQueue(segment, line)
        segment.queues[lane] = queue
        line.queues[segment.key.number] = queue
        return queue

    def name_of(self, lane_text: str, context: BatchContext) -> str:
        """As `lane_name`, of a lane of this batch."""
        return lane_name(LaneKey.parse(lane_text), context.spec.destinations)

    def desk(self, lane_text: str, context: BatchContext, now_s: float) -> LaneDesk:
        desk = context.desks.get(lane_text)
        if desk is None:
            key = LaneKey.parse(lane_text)
            destination = destination_of(key, context.spec.destinations)
            desk = self._desk_at(key, destination, now_s, limits=self._limits_of(key, context))
            context.desks[lane_text] = desk
            desk.recalled = ""  # a batch API's desk is of one batch, and this is another round of it
            self._limit(desk, now_s)
        return desk

    def desk_at(self, key: LaneKey, destination: Destination, now_s: float) -> LaneDesk:
        """The desk of a lane that leads there, for whoever belongs to no batch; made where there is none yet."""
        return self._desk_at(key, destination, now_s, limits=self._limits_of(key))

    def _desk_at(self, key: LaneKey, destination: Destination, now_s: float, *, limits: LaneLimits) -> LaneDesk:
        """`limits`: if it is new."""
        name = name_of_lane(key, destination)
        desk = self.desks.get(name)
        if desk is None:
            grouped = destination.protocol is VendorProtocol.BATCH
            limits = NO_LIMITS if grouped else limits
            ceiling = GROUPED_MAX if grouped else limits.concurrency or self._settings.concurrency
            settings = LaneSettings(
                start=ceiling if grouped else min(self._settings.concurrency_start, ceiling),
                ceiling=ceiling,
                requests_per_minute=limits.rpm,
                tokens_per_minute=limits.tpm,
            )
            desk = LaneDesk(
                key,
                name=name,
                destination=destination,
                lane=Lane(settings, now_s=now_s),
                limits=limits,
                price=self._find_price(destination, key.model),
            )
            if limits.rpm or limits.tpm:
                desk.lane.set_share(now_s, 0)  # until the others have been told
            desk.quarantine = covering(self.quarantines, key)
            self.desks[name] = desk
            self._honour_pause(desk, now_s)
        return desk

    def close_lanes(self, quarantines: tuple[Quarantine, ...]) -> list[LaneDesk]:
        """These lanes are closed by a person, and no others. Returns the desks for which that is another word."""
        self.quarantines = quarantines
        changed = []
        for desk in self.desks.values():
            found = covering(quarantines, desk.key)
            if found != desk.quarantine:
                desk.quarantine = found
                changed.append(desk)
        return changed

    def drop_idle_desks(self) -> None:
        """Lets go of lanes with nothing to do or to remember; what was learned of their limits is learned anew."""
        held = {desk.name for context in self.contexts.values() for desk in context.desks.values()}
        for name, desk in list(self.desks.items()):
            busy = name in held or desk.lines or desk.callers or desk.waiting or desk.lane.in_flight or desk.opening
            if not busy and not desk.blocked and not desk.known_pause:
                if desk.timer is not None:
                    desk.timer.cancel()
                del self.desks[name]

    def _honour_pause(self, desk: LaneDesk, now_s: float) -> None:
        """What was found paused stays so until its probe is due, so that a restart does not ask an empty account."""
        pause = self.lane_pauses.pop(desk.name, None)
        if pause is None:
            return
        desk.known_pause = True
        # Never longer than from one probe to the next: the calendar may have been set back meanwhile.
        left_s = min(self._settings.lane_probe_s, (pause.probe_at_ms - self._now_ms()) / 1000)
        if self.honours_pauses and left_s > 0:
            desk.lane.pause(now_s - max(0, self._now_ms() - pause.since_ms) / 1000, pause.reason)
            desk.probe_at_s = now_s + left_s

    def _limits_of(self, key: LaneKey, context: BatchContext | None = None) -> LaneLimits:
        """What holds for a batch's rows there: this process's word, then the batch's, then the settings'."""
        batch = NO_LIMITS
        if context is not None:
            spec = context.spec
            batch = LaneLimits(concurrency=spec.concurrency, rpm=spec.rpm, tpm=spec.tpm, timeout_s=spec.timeout_s)
        return self._settings.asked.over(batch).over(limits_of(key.vendor, self._settings.vendor_limits))

    def _limit(self, desk: LaneDesk, now_s: float) -> None:
        """A lane keeps to what each of the batches that go there now asks for, and to what the settings say where none
        does; a batch API to none of it."""
        if desk.groups:
            return
        users = [context for context in self.contexts.values() if desk in context.desks.values()]
        wanted = [self._limits_of(desk.key, context) for context in users] or [self._limits_of(desk.key)]
        limits = reduce(lambda one, other: one.beside(other, concurrency=self._settings.concurrency), wanted)
        if limits == desk.limits:
            return
        desk.limits = limits
        desk.set_ceiling(self._settings.concurrency)
        if not any(desk.lane.limits_per_minute) and (limits.rpm or limits.tpm):
            desk.lane.set_share(now_s, 0)  # until the others have been told
        desk.lane.set_rates(now_s, requests_per_minute=limits.rpm, tokens_per_minute=limits.tpm)

    def reload(self, settings: WorkerSettings, now_s: float) -> None:
        """Other limits of vendors, and other prices. What a batch or this process asked for itself stays."""
        self._settings = settings
        for desk in self.desks.values():
            desk.price = self._find_price(desk.destination, desk.key.model)
            self._limit(desk, now_s)

    def find_suspect(self, now_s: float) -> tuple[LaneQueue, int] | None:
        """The first row that is to be out alone and could go now, and its queue."""
        for segment in self.segments.values():
            if not segment.suspects or segment.lost or segment.retired or not segment.context.may_send:
                continue
            for row in segment.suspects:
                entry = segment.rows[row]
                queue = segment.queues.get(entry.lane) if entry is not None else None
                if queue is None or row in segment.waiting:
                    continue
                desk = queue.line.desk
                if desk.vendor is not None and not desk.blocked and not desk.lane.stands_still(now_s):
                    return queue, row
        return None

    def isolate(self, queue: LaneQueue, row: int) -> list[OpenSegment]:
        """Puts back what is ready beside this row, and reserves it once nothing else is out. Returns the segments whose
        maps changed."""
        segment = queue.segment
        changed = [other for desk in self.desks.values() for other in desk.unreserve(but=(segment, row))]
        if row in queue.pending and not any(other.reserved for other in self.segments.values()):
            queue.pending.remove(row)
            queue.pending.appendleft(row)
            segment.reserve(queue, 1)
        return changed

    def unready(self, segment: OpenSegment) -> None:
        """Takes all rows of a segment off its desks; RESERVED rows that are not at a vendor go back to PENDING."""
        for queue in segment.queues.values():
            queue.line.desk.drop_queue(queue)
        segment.queues = {}
        segment.becoming_ready = []
        segment.followers = {}
        segment.waiting = {}
        byte_map = segment.row_map
        if segment.reserved > len(segment.flights):
            for row, byte in enumerate(byte_map):
                if byte == row_map.RESERVED and row not in segment.flights:
                    segment.clear(row)

    def forget(self, segment: OpenSegment) -> None:
        """The segment is settled, given back, closed or lost: nothing of it is held any more."""
        if self.segments.pop(segment.key, None) is None:
            return
        for queue in segment.queues.values():
            queue.line.desk.drop_queue(queue)
        segment.queues = {}
        context = segment.context
        context.segments -= 1

    def leave(self, context: BatchContext, now_s: float) -> None:
        """Drops a batch of which nothing is held: it is met anew, with fresh signals, at its next claim."""
        self.contexts.pop(context.batch_id, None)
        for desk in context.desks.values():
            self._limit(desk, now_s)
        for pair in [pair for pair in self.lane_sets if pair[0] == context.batch_id]:
            del self.lane_sets[pair]

    @property
    def input_bytes(self) -> int:
        """What the bodies of all open rows take in memory."""
        return sum(segment.input_bytes for segment in self.segments.values())

    def segments_of(self, context: BatchContext) -> list[OpenSegment]:
        return [segment for segment in self.segments.values() if segment.context is context]

    def open_lanes(self, segment: OpenSegment) -> set[str]:
        """The texts of all lanes that a segment's open rows may be sent to."""
        routes = segment.context.route_lanes
        found = {(row.lane, row.route) for row in segment.rows if row is not None}
        lanes = {segment.lanes[lane] for lane, _ in found}
        return lanes.union(*(routes.get(route) or () for _, route in found))


def _group(queue: LaneQueue, first: Sequence[int]) -> None:
    """Rows that begin alike one after another; those that have to go first stay there."""
    rows = queue.segment.rows

    def body_of(row: int) -> bytes:
        entry = rows[row]
        return b"" if entry is None else entry.body

    ahead = [row for row in first if row in queue.pending]
    others = set(queue.pending).difference(ahead)
    queue.pending = deque([*ahead, *by_prefix(others, body_of)])


def lane_name(key: LaneKey, destinations: Sequence[Destination]) -> str:
    """What a lane of a batch with these destinations is called among workers."""
    return name_of_lane(key, destination_of(key, destinations))


def destination_of(key: LaneKey, destinations: Sequence[Destination]) -> Destination:
    """Where a lane of a batch with these destinations leads."""
    for destination in destinations:
        if destination.vendor == key.vendor:
            return destination
    assert key.vendor == LOCAL.vendor, f"no destination {key.vendor!r} among {destinations}"
    return LOCAL
