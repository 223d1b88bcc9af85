"""Rows on their way into the store: cut into segments, written in bounded transactions, claimable only at the end.

A small input is one transaction. A larger one begins as a batch in `accepting`, to which segments are added; the
closing transaction makes all of it claimable at once. Nothing is sent of an input that is refused half-way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from batchwright.core import row_map
from batchwright.core.errors import BatchwrightError
from batchwright.core.failures import FailureKind
from batchwright.core.identity import hash_custom_id
from batchwright.core.records import Record, SegmentInput
from batchwright.core.rows import SourceRow
from batchwright.ports.clock import Clock
from batchwright.ports.store import NewBatch, NewSegment, Store
from batchwright.wire.frames import pack_input, pack_records

SEGMENT_ROWS = 500
SEGMENT_BYTES = 4 * 1024 * 1024
"""A single larger row is a segment of its own."""
WRITE_BYTES = 4 * 1024 * 1024
"""Packed segments are written when they pass this: well under the 8 MiB of a transaction."""

_INVALID = row_map.KIND_BYTES[FailureKind.INVALID_ROW]
_UNROUTABLE = row_map.KIND_BYTES[FailureKind.UNROUTABLE]
_NO_ID = bytes(8)


def take_in(store: Store, batch: NewBatch, chunks: Iterable[Sequence[SourceRow]], *, clock: Clock) -> int:
    """Writes the rows and makes the batch claimable; returns how many rows it has.

    If `chunks` raises, what was written is removed and the error goes on.
    """
    created = False
    waiting: list[NewSegment] = []
    waiting_bytes = 0
    total = 0
    try:
        for segment in cut(chunks, now_ms=clock.now_ms):
            total += len(segment.row_map)
            waiting.append(segment)
            waiting_bytes += len(segment.input) + len(segment.records)
            if waiting_bytes >= WRITE_BYTES:
                if created:
                    store.add_segments(batch.batch_id, waiting)
                else:
                    store.create_batch(batch, waiting)
                    created = True
                waiting, waiting_bytes = [], 0
        if not created:
            store.create_batch(batch, waiting, close=True)
            return total
        if waiting:
            store.add_segments(batch.batch_id, waiting)
        store.close_intake(batch.batch_id, clock.now_ms())
        return total
    except BaseException:
        if created:
            # What cannot be dropped now is swept later; the first error is the one to tell.
            with suppress(BatchwrightError):
                store.drop_batch(batch.batch_id)
        raise


class _Cutter:
    """Collects rows of one segment."""

    def __init__(self, number: int, first_index: int) -> None:
        self.number = number
        self.first_index = first_index
        self.rows: list[SourceRow] = []
        self.size = 0

    def takes(self, row: SourceRow) -> bool:
        if not self.rows:
            return True
        return len(self.rows) < SEGMENT_ROWS and self.size + len(row.row.body) <= SEGMENT_BYTES

    def add(self, row: SourceRow) -> None:
        self.rows.append(row)
        self.size += len(row.row.body) + len(row.row.columns)

    def segment(self, now_ms: int) -> NewSegment:
        lanes: dict[str, int] = {}
        sendable: set[str] = set()
        byte_map = bytearray(len(self.rows))
        records: list[Record] = []
        hashes: list[bytes] = []
        has_ids = False
        for position, source in enumerate(self.rows):
            row = source.row
            if source.finding is not None:
                byte = _UNROUTABLE if source.finding.code == FailureKind.UNROUTABLE.value else _INVALID
                byte_map[position] = byte
                records.append(
                    Record(
                        row=position,
                        byte=byte,
                        attempts=0,
                        used=0,
                        code=source.finding.code,
                        param=source.finding.param,
                        message=f"line {source.finding.line}: {source.finding.message}",
                        ended_at_ms=now_ms,
                    )
                )
            else:
                row.lane = lanes.setdefault(source.lane, len(lanes))
                sendable.add(source.lane)
            if row.custom_id is None:
                hashes.append(_NO_ID)
            else:
                has_ids = True
                hashes.append(hash_custom_id(row.custom_id))
        return NewSegment(
            number=self.number,
            first_index=self.first_index,
            row_map=bytes(byte_map),
            input=pack_input(SegmentInput(lanes=list(lanes), rows=[source.row for source in self.rows])),
            lane_set="\n".join(sorted(sendable)),
            records=pack_records(records) if records else b"",
            id_hashes=b"".join(hashes) if has_ids else b"",
        )


def cut(chunks: Iterable[Sequence[SourceRow]], *, now_ms: Callable[[], int]) -> Iterator[NewSegment]:
    """Rows in order -> segments in order: at most SEGMENT_ROWS rows and SEGMENT_BYTES, unless it is a single row."""
    cutter = _Cutter(0, 0)
    for chunk in chunks:
        for row in chunk:
            if not cutter.takes(row):
                yield cutter.segment(now_ms())
                cutter = _Cutter(cutter.number + 1, cutter.first_index + len(cutter.rows))
            cutter.add(row)
    if cutter.rows:
        yield cutter.segment(now_ms())
