"""Rows that repeat the request of an earlier row of their batch (`InputRow.shares`) and end as that row does.

To everybody else they are rows like all others: pending until they end, closed by a cancel, reopened by a retry. They
are on no desk and never at a vendor; when the row whose outcome they share, their leader, has durably ended, their byte
moves to that end in this worker's next checkpoint, under their own segment's epoch. A kill before that leaves them
pending, and whoever claims the segment next does the same.

A leader's outcome is told when its checkpoint lands here; else it is read from the store, once a second while it is
open elsewhere. One that was closed (cancelled, expired) has none that could be shared: then its followers are sent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from batchwright.core import row_map
from batchwright.core.errors import BodyLost, NoSuchBatch
from batchwright.core.records import Record
from batchwright.engine.room import Room
from batchwright.engine.worker_settings import CHECKPOINT_RECORD_BYTES

if TYPE_CHECKING:
    from batchwright.engine.open_segment import OpenSegment, SegmentDraft
    from batchwright.engine.worker import Worker
    from batchwright.ports.store import SegmentView

LOOK_S = 1.0
"""Between two looks at leaders that are open elsewhere."""
LOOKS_A_TURN = 16
"""Segments that are read for leaders before the next checkpoint: some 50 ms of it."""
KEPT_BYTES = 16 * 1024 * 1024
"""Of outcomes that somebody may share, in memory: ten thousand rows and more. What does not fit is read again."""
RECORD_BYTES = 1024
"""About what one takes beside its answer."""
PARKED_MS = 1_000
"""For how long a segment is given back of which nothing is left but followers, where places are wanted."""

_SEND_IT = Record(row=-1, byte=row_map.PENDING, attempts=0, used=0)
"""The leader has no outcome that could be shared."""


class Leader(NamedTuple):
    batch_id: str
    round: int
    """An outcome of an earlier round may be open again; what still stands of it is read from the store."""
    row: int
    """Its request_index."""


class Followers:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._floor = worker.floor
        self._waiting: dict[Leader, dict[OpenSegment, None]] = {}
        """Segments with followers, by leaders whose outcome is not known here; some of them may be held no more."""
        self._ready: deque[tuple[Leader, Record]] = deque()
        """Outcomes that followers wait for."""
        self._kept: OrderedDict[Leader, Record] = OrderedDict()
        """Durable outcomes, the newest last."""
        self._kept_bytes = 0
        self._to_look: deque[Leader] = deque()
        """Leaders of which the store may know more than this worker does."""
        self._look_s = 0.0
        """When all of them are looked at again (loop seconds)."""

    @property
    def alone(self) -> bool:
        """All that is held here waits for rows that others have, or nobody: no desk speaks up for it."""
        return bool(self._waiting) and all(map(_only_follows, self._floor.segments.values()))

    def opened(self, segment: OpenSegment) -> None:
        """A segment was claimed: its followers wait, or their leaders' outcomes are here."""
        for index in segment.followers:
            leader = Leader(segment.key.batch_id, segment.round, index)
            waiting = self._waiting.get(leader)
            if waiting is not None:
                waiting[segment] = None
                continue
            self._waiting[leader] = {segment: None}
            outcome = self._kept.get(leader)
            if outcome is not None:
                self._ready.append((leader, outcome))
            else:
                self._to_look.append(leader)

    def landed(self, draft: SegmentDraft) -> None:
        """This draft's checkpoint has landed: outcomes in it may be shared."""
        segment = draft.segment
        if not segment.context.spec.dedup:
            return
        for record in draft.records:
            if not row_map.is_end(record.byte):
                continue
            leader = Leader(segment.key.batch_id, segment.round, segment.first_index + record.row)
            self._keep(leader, record)
            if leader in self._waiting:
                self._ready.append((leader, record))
        if self._ready:
            self._worker.wake()

    async def settle(self, now_s: float) -> None:
        """Ends what can be ended; it is durable with the next checkpoint."""
        if not self._waiting:
            return
        await self._look(now_s)
        while self._ready and self._worker.sender.answer_bytes < CHECKPOINT_RECORD_BYTES:
            leader, outcome = self._ready[0]
            if self._share(leader, outcome):
                self._ready.popleft()
        if self._ready or self._to_look:
            self._worker.wake_now()
        self._park()

    # -------------------------------------------------------------------------------------------------------- looking

    async def _look(self, now_s: float) -> None:
        if not self._to_look and now_s >= self._look_s:
            self._look_s = now_s + LOOK_S
            self._drop_gone()
            self._to_look.extend(self._waiting)
        is_open_here = self._open_here()
        looks = LOOKS_A_TURN
        while self._to_look and looks:
            leader = self._to_look.popleft()
            if leader not in self._waiting or is_open_here(leader):
                continue
            looks -= 1
            view = await self._read(leader)
            if view is None:
                self._ready.append((leader, _SEND_IT))
                continue
            there = range(view.first_index, view.first_index + len(view.row_map))
            for index in there:
                found = leader._replace(row=index)
                if found in self._waiting and (outcome := _outcome(view, index)) is not None:
                    self._ready.append((found, outcome))
            while self._to_look and self._to_look[0][:2] == leader[:2] and self._to_look[0].row in there:
                self._to_look.popleft()

    def _open_here(self) -> Callable[[Leader], bool]:
        """Tells of a row whether a segment of this worker has it, and it has not ended."""
        held: dict[str, list[OpenSegment]] = defaultdict(list)
        for segment in self._floor.segments.values():
            held[segment.key.batch_id].append(segment)
        for segments in held.values():
            segments.sort(key=lambda segment: segment.first_index)

        def is_open(leader: Leader) -> bool:
            segments = held.get(leader.batch_id, [])
            at = bisect_right(segments, leader.row, key=lambda segment: segment.first_index) - 1
            row = leader.row - segments[at].first_index if at >= 0 else -1
            return 0 <= row < len(segments[at].row_map) and not row_map.is_end(segments[at].row_map[row])

        return is_open

    async def _read(self, leader: Leader) -> SegmentView | None:
        """What the store has of the rows around it; None: their answers are gone."""
        store = self._worker.parts.store

        def read() -> SegmentView | None:
            views = store.read_segments(leader.batch_id, first_index=leader.row, end_index=leader.row + 1)
            # A segment of large answers comes as several views.
            return next((view for view in views if leader.row < view.first_index + len(view.row_map)), None)

        try:
            return await self._worker.parts.writer.do(read)
        except (BodyLost, NoSuchBatch):
            return None

    # -------------------------------------------------------------------------------------------------------- sharing

    def _share(self, leader: Leader, outcome: Record) -> bool:
        """False: there are more than the next checkpoint takes."""
        now_s = self._worker.parts.clock.now_s()
        for segment in list(self._waiting.get(leader, ())):
            rows = segment.followers.get(leader.row, [])
            while rows and segment.context.may_send and not (segment.retired or segment.lost):
                if self._worker.sender.answer_bytes >= CHECKPOINT_RECORD_BYTES:
                    return False
                row = rows.pop()
                if outcome is _SEND_IT:
                    self._floor.put_up(segment, row, now_s)
                else:
                    self._worker.sender.share(segment, row, outcome)
            if not rows:
                segment.followers.pop(leader.row, None)
                del self._waiting[leader][segment]
        if not self._waiting.get(leader):
            self._waiting.pop(leader, None)
        return True

    def _keep(self, leader: Leader, record: Record) -> None:
        before = self._kept.pop(leader, None)
        self._kept_bytes += _bytes_of(record) - (_bytes_of(before) if before is not None else 0)
        self._kept[leader] = record
        while self._kept_bytes > KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= _bytes_of(oldest)

    def _drop_gone(self) -> None:
        """Segments that were given back, closed or lost since."""
        held = self._floor.segments
        for leader, segments in list(self._waiting.items()):
            for segment in [segment for segment in segments if held.get(segment.key) is not segment]:
                del segments[segment]
            if not segments:
                del self._waiting[leader]

    def _park(self) -> None:
        """Segments that wait for others may not keep these out: beyond a fifth of the places they are given back."""
        waiting = [segment for segment in self._floor.segments.values() if _only_follows(segment)]
        if not waiting or self._ready or self._to_look:
            return
        room = Room(self._floor, self._worker.settings)
        places = room.free_places // 4 if room.free_bytes > 0 else 0
        until_ms = self._worker.parts.clock.now_ms() + PARKED_MS
        for segment in waiting[places:]:
            self._worker.closing.park(segment, until_ms)


def _only_follows(segment: OpenSegment) -> bool:
    return bool(segment.followers) and sum(map(len, segment.followers.values())) == segment.open


def _bytes_of(record: Record) -> int:
    return len(record.body) + RECORD_BYTES


def _outcome(view: SegmentView, index: int) -> Record | None:
    """None: it is open."""
    row = index - view.first_index
    byte = view.row_map[row]
    if not row_map.is_end(byte):
        return None
    record = view.records.get(row)
    return _SEND_IT if byte in row_map.CLOSING_BYTES or record is None or record.byte != byte else record
