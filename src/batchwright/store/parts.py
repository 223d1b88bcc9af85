"""Frames of a segment: written as parts, read back in order, merged into one result when a segment of many settles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, Integer, bindparam, cast, delete, func, insert, select

from batchwright.ports.store import SegmentKey
from batchwright.store import blobs, dialect
from batchwright.store.blobs import Span, result_key
from batchwright.store.bodies import Bodies, Reader
from batchwright.store.folding import fold
from batchwright.store.prepared import Prepared, StoredRow
from batchwright.store.schema import blob, part
from batchwright.wire import frames

MERGE_ABOVE = 8
"""Frames that a settled segment may keep as they are. They come from a fast vendor: a few large frames, which read as
quickly as one; to write all answers a second time would cost a tenth of a row. A slow vendor leaves hundreds of small
ones, which pack badly, and time enough to merge them."""
MERGE_BYTES = 32 * 1024 * 1024
"""Records that are folded in memory at once: what packs well can be much larger than its blobs."""

_ADD = Prepared(insert(part), ("batch_id", "number", "round", "epoch", "seq", "blob_key", "offset", "length"))
_DELETE = Prepared(
    delete(part).where(part.c.batch_id == bindparam("of_batch"), part.c.number == bindparam("of_number"))
)
_OF_SEGMENT = (part.c.batch_id == bindparam("batch_id"), part.c.number == bindparam("number"))
_NAMED = Prepared(
    select(part.c.blob_key, part.c.length).where(*_OF_SEGMENT).order_by(part.c.round, part.c.epoch, part.c.seq)
)
_FRAMES = Prepared(
    select(
        part.c.round,
        part.c.blob_key,
        part.c.offset,
        part.c.length,
        blob.c.object,
        blob.c.object_size,
        blob.c.object_offset,
        # Cut in the database: a blob holds frames of many segments. Empty where an object has its bytes.
        func.substr(blob.c.data, cast(part.c.offset + 1, Integer), cast(part.c.length, Integer)).label("frame"),
    )
    .join(blob, blob.c.key == part.c.blob_key)
    # Named as well, so that a server whose days are apart looks in the tables of these alone.
    .where(*_OF_SEGMENT, dialect.OneOf(blob.c.key, "blob_keys"))
    .order_by(part.c.round, part.c.epoch, part.c.seq)
)


@dataclass(frozen=True, slots=True)
class Frame:
    round: int
    blob_key: str
    packed: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the order of a segment's frames a new one stands."""

    key: SegmentKey
    round: int
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class Merged:
    """A segment's result, ready to be published in place of the parts it was made from."""

    packed: bytes
    replaces: frozenset[str]
    outside: Span | None = None
    """Where it lies already; None: it goes into the table."""


@dataclass(frozen=True, slots=True)
class Outer:
    """Frames that an object holds already."""

    span: Span
    offsets: dict[SegmentKey, int]


def find(connection: Connection, key: SegmentKey) -> list[tuple[StoredRow, bytes | Span]]:
    """A segment's frames in (round, epoch, seq) order: (its row, its bytes or where they lie). Raises KeyError if one
    is not there, which is a fault of the store."""
    return _find(connection, key, _named(connection, key))


def _named(connection: Connection, key: SegmentKey) -> list[StoredRow]:
    return _NAMED.all(connection, {"batch_id": key.batch_id, "number": key.number})


def _find(connection: Connection, key: SegmentKey, named: Sequence[StoredRow]) -> list[tuple[StoredRow, bytes | Span]]:
    if not named:
        return []
    blob_keys = list(dict.fromkeys(row.blob_key for row in named))
    values = {"batch_id": key.batch_id, "number": key.number, "blob_keys": dialect.many(connection, blob_keys)}
    rows = _FRAMES.all(connection, values)
    if len(rows) != len(named):
        raise KeyError(next(iter(set(blob_keys) - {row.blob_key for row in rows}), f"a part of {key}"))
    return [(row, _span(row) if row.object else row.frame) for row in rows]


def _span(row: StoredRow) -> Span:
    return Span(row.object, row.object_offset + row.offset, row.length, row.object_size)


def open_found(found: Sequence[tuple[StoredRow, bytes | Span]], reader: Reader) -> list[Frame]:
    """Raises Outside."""
    reader.need(packed for _, packed in found)
    return [Frame(row.round, row.blob_key, reader.bytes_of(packed)) for row, packed in found]


def read(connection: Connection, key: SegmentKey, reader: Reader) -> list[Frame]:
    """A segment's frames in (round, epoch, seq) order. Raises Outside."""
    return open_found(find(connection, key), reader)


def merge(connection: Connection, key: SegmentKey, ended: tuple[bytes, bytes], reader: Reader) -> Merged | None:
    """One frame out of a settling segment's: `ended` is (its row map, the last frame, not written yet or empty).

    None if its frames are few, or would pass the 8 MiB of a transaction: then the segment settles as the list of its
    parts. Raises Outside.
    """
    counted, last = ended
    named = _named(connection, key)
    size = sum(row.length for row in named) + len(last)
    if len(named) + bool(last) <= MERGE_ABOVE or size > blobs.MAX_BYTES:
        return None
    before = open_found(_find(connection, key, named), reader)
    packed = [*(frame.packed for frame in before), *([last] if last else [])]
    if sum(frames.unpacked_size(frame) for frame in packed) > MERGE_BYTES:
        return None
    records = fold(packed, counted)
    result = frames.pack_records(list(records.values()))
    if len(result) > blobs.MAX_BYTES:
        return None
    return Merged(result, frozenset(frame.blob_key for frame in before))


def publish(connection: Connection, place: Place, merged: Merged, now_ms: int) -> None:
    """Puts a merged result in place of the segment's parts; their blobs are superseded once nothing names them."""
    key = place.key
    blob_key = result_key(key, (place.round, place.epoch), now_ms)
    _DELETE.run(connection, {"of_batch": key.batch_id, "of_number": key.number})
    blobs.put(connection, blob_key, merged.packed, merged.outside)
    _ADD.run(connection, _row(place, blob_key, (0, len(merged.packed))))
    blobs.supersede(connection, merged.replaces, now_ms)


def put_outside(
    bodies: Bodies, blob_key: str, packed: Sequence[tuple[SegmentKey, bytes]], merged: Mapping[SegmentKey, Merged]
) -> tuple[Outer | None, dict[SegmentKey, Merged]]:
    """Frames and results as one object, before the transaction that leads to them: (where the frames lie, the results
    with where they do). None: the frames belong into the table, as all does without an object store."""
    results = dict(merged)
    whole = [*(frame for _, frame in packed), *(each.packed for each in results.values())]
    if bodies.objects is None or not whole:
        return None, results
    (span,) = bodies.put_all([(blob_key, b"".join(whole))], least_bytes=0)
    assert span is not None, "nothing is too small"
    offsets: dict[SegmentKey, int] = {}
    offset = 0
    for key, frame in packed:
        offsets[key] = offset
        offset += len(frame)
    outer = Outer(span._replace(length=offset), offsets) if packed else None
    for key, each in results.items():
        results[key] = replace(each, outside=span._replace(offset=offset, length=len(each.packed)))
        offset += len(each.packed)
    return outer, results


def write(
    connection: Connection, blob_key: str, packed: Sequence[tuple[Place, bytes]], outer: Outer | None = None
) -> None:
    """One blob that holds a frame for each of these segments, and the rows that lead to them. `outer`: the object that
    holds them already, perhaps beside others."""
    if not packed:
        return
    rows = []
    offset = 0
    for place, frame in packed:
        at = offset if outer is None else outer.offsets[place.key]
        rows.append(_row(place, blob_key, (at, len(frame))))
        offset += len(frame)
    if outer is None:
        blobs.put(connection, blob_key, b"".join(frame for _, frame in packed))
    else:
        blobs.put_object(connection, blob_key, outer.span)
    _ADD.run_many(connection, rows)


def of_round(found: Iterable[Frame], round_: int) -> list[bytes]:
    return [frame.packed for frame in found if frame.round == round_]


def before_round(found: Iterable[Frame], round_: int) -> list[bytes]:
    return [frame.packed for frame in found if frame.round < round_]


def _row(place: Place, blob_key: str, span: tuple[int, int]) -> dict[str, object]:
    return {
        "batch_id": place.key.batch_id,
        "number": place.key.number,
        "round": place.round,
        "epoch": place.epoch,
        "seq": place.seq,
        "blob_key": blob_key,
        "offset": span[0],
        "length": span[1],
    }
