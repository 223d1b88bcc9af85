"""Rows on their way into the store: cut into segments, written in bounded transactions, claimable only at the end.

A small input is one transaction. A larger one begins as a batch in `accepting`, to which segments are added; the
closing transaction makes all of it claimable at once. Nothing is sent of an input that is refused half-way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from batchwright.core import row_map
from batchwright.core.errors import BatchwrightError, Finding
from batchwright.core.failures import FailureKind
from batchwright.core.identity import hash_custom_ids
from batchwright.core.records import Record, SegmentInput
from batchwright.core.routes import RouteLanes
from batchwright.core.rows import SourceRow
from batchwright.engine.tail import held_until, last_sizes
from batchwright.engine.writer import Writer
from batchwright.ports.clock import Clock
from batchwright.ports.store import Idempotency, NewBatch, NewSegment, Store
from batchwright.wire.frames import pack_input, pack_records

SEGMENT_ROWS = 500
SEGMENT_BYTES = 4 * 1024 * 1024
"""A single larger row is a segment of its own."""
WRITE_BYTES = 4 * 1024 * 1024
"""Packed segments are written when they pass this: well under the 8 MiB of a transaction."""


_INVALID = row_map.KIND_BYTES[FailureKind.INVALID_ROW]
_UNROUTABLE = row_map.KIND_BYTES[FailureKind.UNROUTABLE]


class Intake:
    """Segments of one batch on their way into the store: what `hold` is given, `write` and `finish` make durable.

    `drop` removes what was written of an input that is refused after all.
    """

    def __init__(
        self, store: Store, batch: NewBatch, *, clock: Clock, digest_at_end: Callable[[], str] | None = None
    ) -> None:
        """`digest_at_end`: as in `ports.batches.Submit`."""
        self._store, self._batch, self._clock = store, batch, clock
        self._digest_at_end = digest_at_end
        self._created = False
        self._waiting: list[NewSegment] = []
        self._waiting_bytes = 0

    @property
    def route_lanes(self) -> RouteLanes:
        return _lanes(self._batch)

    def hold(self, segments: Iterable[NewSegment]) -> bool:
        """Takes segments; true when it is time to write."""
        for segment in segments:
            self._waiting.append(segment)
            self._waiting_bytes += len(segment.input) + len(segment.records)
        return self._waiting_bytes >= WRITE_BYTES

    def write(self) -> None:
        """What is held becomes durable, and not claimable."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not self._created:
            self._store.create_batch(self._batch, waiting)
            self._created = True
        elif waiting:
            self._store.add_segments(self._batch.batch_id, waiting)

    def finish(self) -> None:
        """The rest becomes durable, and all of it claimable."""
        wish = self._batch.idempotency
        if wish is not None and self._digest_at_end is not None:
            wish = Idempotency(wish.key, self._digest_at_end())
        if not self._created:
            self._store.create_batch(replace(self._batch, idempotency=wish), self._waiting, close=True)
            return
        self.write()
        self._store.close_intake(
            self._batch.batch_id, self._clock.now_ms(), digest=wish.digest if wish is not None else ""
        )

    def drop(self) -> None:
        if self._created:
            # What cannot be dropped now is swept later; the error that led here is the one to tell.
            with suppress(BatchwrightError):
                self._store.drop_batch(self._batch.batch_id)


def take_in(store: Store, batch: NewBatch, chunks: Iterable[Sequence[SourceRow]], *, clock: Clock) -> None:
    """Writes the rows and makes the batch claimable, in the calling thread.

    If `chunks` raises, what was written is removed and the error goes on.
    """
    intake, cutter = Intake(store, batch, clock=clock), Cutter(clock.now_ms, _lanes(batch))
    try:
        for chunk in chunks:
            for segment in cutter.add(chunk):
                if intake.hold((segment,)):
                    intake.write()
        intake.hold(cutter.rest())
        intake.finish()
    except BaseException:
        intake.drop()
        raise


async def take_in_stream(
    intake: Intake, chunks: AsyncIterable[Sequence[SourceRow]], *, writer: Writer, clock: Clock
) -> None:
    """As `take_in`, for rows that arrive: the writer is asked for one bounded transaction at a time, and is free for
    others while nothing arrives. Cutting and packing run in a thread of their own."""
    cutter = Cutter(clock.now_ms, intake.route_lanes)
    try:
        async for chunk in chunks:
            if intake.hold(await asyncio.to_thread(_listed, cutter, chunk)):
                await writer.do(intake.write)
        intake.hold(await asyncio.to_thread(cutter.rest))
        await writer.do(intake.finish)
    except BaseException:
        await asyncio.shield(writer.do(intake.drop))
        raise


def _listed(cutter: Cutter, chunk: Sequence[SourceRow]) -> list[NewSegment]:
    return list(cutter.add(chunk))


class Cutter:
    """Rows in order -> segments in order: at most SEGMENT_ROWS rows and SEGMENT_BYTES, unless it is a single row, and
    smaller ones at the end (`engine.tail`). What is held is at most SEGMENT_BYTES and the row that came last."""

    def __init__(self, now_ms: Callable[[], int], route_lanes: RouteLanes) -> None:
        self._now_ms = now_ms
        self._route_lanes = route_lanes
        self._number = self._first_index = self._bytes = 0
        self._rows: list[SourceRow] = []
        self._full = held_until(0, SEGMENT_ROWS)

    def add(self, chunk: Sequence[SourceRow]) -> Iterator[NewSegment]:
        """The segments that these rows fill."""
        for source in chunk:
            row_bytes = _bytes_of(source)
            while self._rows and (len(self._rows) >= self._full or self._bytes + row_bytes > SEGMENT_BYTES):
                yield self._cut(SEGMENT_ROWS)
            self._rows.append(source)
            self._bytes += row_bytes

    def rest(self) -> list[NewSegment]:
        """What is left at the end of the input."""
        held = len(self._rows)
        return [self._cut(size) for size in last_sizes(self._first_index + held, held, SEGMENT_ROWS)]

    def _cut(self, size: int) -> NewSegment:
        place = Place(number=self._number, first_index=self._first_index, now_ms=self._now_ms())
        rows, self._rows = self._rows[:size], self._rows[size:]
        segment = make_segment(rows, self._route_lanes, place)
        self._number, self._first_index = self._number + 1, self._first_index + len(rows)
        self._bytes -= sum(map(_bytes_of, rows))
        self._full = held_until(self._first_index, SEGMENT_ROWS)
        return segment


def _bytes_of(source: SourceRow) -> int:
    return len(source.row.body) + len(source.row.columns) + (len(source.kept.body) if source.kept is not None else 0)


def _lanes(batch: NewBatch) -> RouteLanes:
    return RouteLanes(batch.spec.routes, batch.spec.destinations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a segment stands in its batch."""

    number: int
    first_index: int
    """Of its first row: the `request_index`."""
    now_ms: int
    """When its rows came in."""


def make_segment(
    sources: Sequence[SourceRow],
    route_lanes: RouteLanes,
    place: Place,
    *,
    pack: Callable[[SegmentInput], bytes] = pack_input,
) -> NewSegment:
    """Its lanes are those of its rows, and then those that rows of a route may go on to."""
    lanes: dict[str, int] = {}
    byte_map = bytearray(len(sources))
    records: list[Record] = []
    unbounded = 0
    for position, source in enumerate(sources):
        if source.finding is None:
            source.row.lane = lanes.setdefault(source.lane, len(lanes))
            if source.kept is not None:
                byte_map[position] = source.kept.byte
                records.append(msgspec.structs.replace(source.kept, row=position, ended_at_ms=place.now_ms))
                continue
            unbounded += source.unbounded
        else:
            byte_map[position] = byte = _byte_of(source.finding)
            finding = replace(source.finding, request_index=place.first_index + position)
            records.append(_refusal(finding, row=position, byte=byte, now_ms=place.now_ms))
    for route in sorted({source.row.route for source in sources if source.finding is None}) if route_lanes else ():
        for lane in route_lanes.get(route) or ():
            lanes.setdefault(lane, len(lanes))
    custom_ids = [source.row.custom_id for source in sources]
    return NewSegment(
        number=place.number,
        first_index=place.first_index,
        row_map=bytes(byte_map),
        input=pack(SegmentInput(lanes=list(lanes), rows=[source.row for source in sources])),
        lane_set="\n".join(sorted(lanes)),
        # Copied: what zstd gives keeps the memory of all that was packed, and many segments wait for one transaction.
        records=memoryview(pack_records(records)).tobytes() if records else b"",
        id_hashes=b"" if custom_ids.count(None) == len(custom_ids) else hash_custom_ids(custom_ids),
        worst_picousd=sum(
            source.row.worst_picousd for source in sources if source.kept is None and source.row.shares < 0
        ),
        unbounded=unbounded,
    )


def _byte_of(finding: Finding) -> int:
    return _UNROUTABLE if finding.code == FailureKind.UNROUTABLE.value else _INVALID


def _refusal(finding: Finding, *, row: int, byte: int, now_ms: int) -> Record:
    """The record of a row that ended when it came in; `row` is its position in the segment."""
    return Record(
        row=row,
        byte=byte,
        attempts=0,
        used=0,
        code=finding.code,
        param=finding.param,
        message=f"{finding.place}: {finding.message}",
        ended_at_ms=now_ms,
    )
