"""Rows on their way into the store: cut into segments, written in bounded transactions, claimable only at the end.

A small input is one transaction. A larger one begins as a batch in `accepting`, to which segments are added; the
closing transaction makes all of it claimable at once. Nothing is sent of an input that is refused half-way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from batchwright.core import row_map
from batchwright.core.errors import BatchwrightError, Finding
from batchwright.core.failures import FailureKind
from batchwright.core.identity import hash_custom_ids
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


def cut(chunks: Iterable[Sequence[SourceRow]], *, now_ms: Callable[[], int]) -> Iterator[NewSegment]:
    """Rows in order -> segments in order: at most SEGMENT_ROWS rows and SEGMENT_BYTES, unless it is a single row."""
    number = first_index = size = 0
    rows: list[SourceRow] = []
    for chunk in chunks:
        for source in chunk:
            body_bytes = len(source.row.body)
            if rows and (len(rows) == SEGMENT_ROWS or size + body_bytes > SEGMENT_BYTES):
                yield _segment(rows, (number, first_index), now_ms())
                number, first_index, size = number + 1, first_index + len(rows), 0
                rows = []
            rows.append(source)
            size += body_bytes + len(source.row.columns)
    if rows:
        yield _segment(rows, (number, first_index), now_ms())


def _segment(sources: Sequence[SourceRow], place: tuple[int, int], now_ms: int) -> NewSegment:
    """`place` is (the segment's number, its first row's request_index)."""
    lanes: dict[str, int] = {}
    byte_map = bytearray(len(sources))
    records: list[Record] = []
    for position, source in enumerate(sources):
        if source.finding is None:
            source.row.lane = lanes.setdefault(source.lane, len(lanes))
        else:
            byte_map[position] = byte = _byte_of(source.finding)
            records.append(_refusal(source.finding, (position, byte), now_ms))
    custom_ids = [source.row.custom_id for source in sources]
    return NewSegment(
        number=place[0],
        first_index=place[1],
        row_map=bytes(byte_map),
        input=pack_input(SegmentInput(lanes=list(lanes), rows=[source.row for source in sources])),
        lane_set="\n".join(sorted(lanes)),
        records=pack_records(records) if records else b"",
        id_hashes=b"" if custom_ids.count(None) == len(custom_ids) else hash_custom_ids(custom_ids),
    )


def _byte_of(finding: Finding) -> int:
    return _UNROUTABLE if finding.code == FailureKind.UNROUTABLE.value else _INVALID


def _refusal(finding: Finding, place: tuple[int, int], now_ms: int) -> Record:
    """The record of a row that ended when it came in; `place` is (its position in the segment, its byte)."""
    return Record(
        row=place[0],
        byte=place[1],
        attempts=0,
        used=0,
        code=finding.code,
        param=finding.param,
        message=f"line {finding.line}: {finding.message}",
        ended_at_ms=now_ms,
    )
