"""A row of a route goes on to another of its lanes where its own cannot take it now.

    after a failed attempt   to the next lane that can take it, at once; else it waits as any row does
    from a desk in trouble   what is not out, the oldest first: blocked until a person acts, in an outage, refusing many
                             or failing in a row, or asked to wait for longer than `PATIENCE_S`

A lane can take a row while it is open or can be opened, is in no trouble of its own and has room within its own limits.
A row does not come back to a lane before that lane's wait for it is over. A lane that refuses many keeps what it can
send, one in an outage a single row as the probe, so that it is found well again; the rows that come then go there by
themselves: nothing is moved back.

All of it is in memory. A row that moves is PENDING: one that was reserved and not out is cleared first, and is reserved
again by its new desk in the usual way. After a takeover a row begins with its first choice again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from batchwright.core.batch_spec import LaneKey
from batchwright.core.failures import FailureKind
from batchwright.engine.desk import BatchLine, LaneDesk
from batchwright.engine.floor import Floor
from batchwright.engine.open_segment import LaneQueue, OpenSegment
from batchwright.wire.row_shapes import with_model

PATIENCE_S = 1.0
"""A shorter wait that a vendor asks for is waited out where the rows are."""

LOOKED_AT = 2_000
"""Rows of a line that a turn looks at: more than a lane takes in one, few enough to be looked at in every turn."""

MOVES_ON = frozenset(
    {
        FailureKind.RATE_LIMITED,
        FailureKind.OVERLOADED,
        FailureKind.TIMEOUT,
        FailureKind.NETWORK,
        FailureKind.UNREACHABLE,
        FailureKind.QUOTA_EXHAUSTED,
        FailureKind.AUTH,
    }
)
"""What another vendor may answer. Of the kinds that are sent again, the others speak of the row."""


class Failover:
    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._room: dict[LaneDesk, int] = {}
        """What each desk can still take in this turn of the worker."""

    def after_failure(self, segment: OpenSegment, row: int, *, delay_s: float, now_s: float) -> bool:
        """Sends a row on whose attempt failed and that may be tried again; it is PENDING and on no desk. False: no
        other lane can take it now, or it has none."""
        entry = segment.rows[row]
        assert entry is not None
        lanes = segment.context.route_lanes.get(entry.route)
        if lanes is None or segment.retired or segment.lost:
            return False
        segment.away.setdefault(row, {})[entry.lane] = now_s + delay_s
        queue = self._next_queue(segment, row, now_s)
        if queue is None:
            return False
        queue.pending.appendleft(row)
        return True

    def relieve(self, now_s: float) -> list[OpenSegment]:
        """Moves rows from desks in trouble. Once a turn, before rows are reserved. Returns the segments whose maps
        changed."""
        self._room.clear()
        changed: list[OpenSegment] = []
        for desk in list(self._floor.desks.values()):
            lane = desk.lane
            if desk.lines and (desk.blocked or lane.failing or lane.stands_still_s(now_s) > PATIENCE_S):
                for line in list(desk.lines):
                    if line.context.route_lanes and line.context.closing is None:
                        changed += self._relieve(line, now_s)
        return changed

    # ------------------------------------------------------------------------------------------------------ one line

    def _relieve(self, line: BatchLine, now_s: float) -> list[OpenSegment]:
        changed: list[OpenSegment] = []
        own = str(line.desk.key)
        routes = [lanes for lanes in line.context.route_lanes.known() if own in lanes]
        if not self._anywhere_to_go(line, routes, now_s):
            return changed
        stays = self._to_stay(line, now_s)
        stuck: set[str] = set()
        for queue, row, where in list(islice(_rows_at(line), LOOKED_AT)):
            segment = queue.segment
            entry = segment.rows[row]
            if entry is None or not entry.route or entry.route in stuck or segment.retired or segment.lost:
                continue
            if stays:
                stays -= 1
                continue
            new = self._next_queue(segment, row, now_s)
            if new is None:
                if row not in segment.away:
                    stuck.add(entry.route)
                    if len(stuck) == len(routes):
                        break
                continue
            segment.away.setdefault(row, {})
            if where is line.ready:
                line.ready.remove((queue, row))
                segment.clear(row)
                changed.append(segment)
            elif where is queue.pending:
                queue.pending.remove(row)
            else:
                del segment.waiting[row]  # its entry in the desk's heap is skipped when its time comes
            new.pending.append(row)
        return changed

    def _anywhere_to_go(self, line: BatchLine, routes: list[tuple[str, ...]], now_s: float) -> bool:
        """Whether another lane of these routes may take a row now: asked before the line's rows are looked at."""
        texts = dict.fromkeys(text for lanes in routes for text in lanes)
        desks = (self._floor.desk(text, line.context, now_s) for text in texts)
        return any(desk is not line.desk and self._would_take(desk, now_s) for desk in desks)

    def _to_stay(self, line: BatchLine, now_s: float) -> int:
        """How many of the rows stay: what a lane that still sends has room for, and in an outage one for the probe, if
        that is due or others of its batch are not done either."""
        desk = line.desk
        if desk.blocked:
            return 0
        if not (desk.lane.in_outage or desk.probing):
            waits = desk.lane.stands_still_s(now_s) > PATIENCE_S
            return 0 if waits else max(1, desk.lane.limit - desk.lane.in_flight)
        if desk.lane.probe_in_s(now_s) <= PATIENCE_S:
            return 1
        context = line.context
        if context.in_flight > desk.lane.in_flight or line.unsent() > 1:
            return 1
        elsewhere = (other for other in self._floor.desks.values() if other is not desk)
        return int(any(each.context is context and each.unsent() for other in elsewhere for each in other.lines))

    # ------------------------------------------------------------------------------------------------------- one row

    def _next_queue(self, segment: OpenSegment, row: int, now_s: float) -> LaneQueue | None:
        """The queue of the next lane of the row's route that can take it; the row is re-written for it. None: none
        can."""
        entry = segment.rows[row]
        assert entry is not None
        lanes = segment.context.route_lanes.get(entry.route)
        if lanes is None:
            return None
        away = segment.away.get(row, {})
        at = lanes.index(segment.lanes[entry.lane])
        for text in (*lanes[at + 1 :], *lanes[:at]):
            lane = segment.lanes.index(text)
            if away.get(lane, 0.0) > now_s or not self._takes(self._floor.desk(text, segment.context, now_s), now_s):
                continue
            model = LaneKey.parse(text).model
            segment.rows[row] = msgspec.structs.replace(
                entry, lane=lane, model=model, body=with_model(entry.body, model)
            )
            segment.rate_marks.pop(row, None)
            segment.failure_marks.pop(row, None)
            return segment.queues.get(lane) or self._floor.new_queue(segment, lane, now_s)
        return None

    def _takes(self, desk: LaneDesk, now_s: float) -> bool:
        """Whether the desk takes one more row now; it counts as taken."""
        taken = self._would_take(desk, now_s)
        if taken and desk in self._room:
            self._room[desk] -= 1
        return taken

    def _would_take(self, desk: LaneDesk, now_s: float) -> bool:
        if desk.blocked:
            return False
        lane = desk.lane
        if lane.in_outage or lane.failing or desk.probing:
            # Only a row finds out that a vendor works again: where all rows have left for others, one comes back.
            return _is_empty(desk)
        if lane.stands_still(now_s) or lane.paced(now_s):
            return False
        if desk not in self._room:
            self._room[desk] = desk.room
        return self._room[desk] > 0


def _rows_at(line: BatchLine) -> Iterator[tuple[LaneQueue, int, object]]:
    """The rows of a line that are not out, with what holds each: those that could go next first."""
    for queue, row in line.ready:
        yield queue, row, line.ready
    for queue in line.in_turn():
        for row in queue.pending:
            yield queue, row, queue.pending
    for until_s, _, queue, row in line.desk.waiting:
        if queue.line is line and queue.segment.waiting.get(row) == until_s:
            yield queue, row, queue.segment.waiting


def _is_empty(desk: LaneDesk) -> bool:
    return not (
        desk.lane.in_flight
        or desk.unsent()
        or any(queue.segment.waiting.get(row) == until_s for until_s, _, queue, row in desk.waiting)
    )
