"""Other costs for answers that are stored: one transaction a segment, and every sum with it.

A repricing is fenced like a claim: it names the epoch it was made from and raises it. Two of them at once therefore
cannot both count the same difference, and one that was made before a new round began is not written.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, Row, bindparam, select, update

from batchwright.core.batch_spec import BatchSpec
from batchwright.core.errors import WrongState
from batchwright.core.records import Tally
from batchwright.ports.store import SegmentRepricing
from batchwright.store import batches, blobs, ledger, parts
from batchwright.store.bodies import Bodies, Reader
from batchwright.store.folding import fold
from batchwright.store.parts import Merged, Place
from batchwright.store.reading import counted_map
from batchwright.store.schema import NOBODY, segment
from batchwright.wire import frames

_SEGMENT = select(segment).where(
    segment.c.batch_id == bindparam("batch_id"),
    segment.c.number == bindparam("number"),
    segment.c.epoch == bindparam("epoch"),
)
_FENCE = (
    update(segment)
    .where(
        segment.c.batch_id == bindparam("of_batch"),
        segment.c.number == bindparam("of_number"),
        segment.c.epoch == bindparam("of_epoch"),
    )
    .values(epoch=segment.c.epoch + 1)
)


def reprice(bodies: Bodies, change: SegmentRepricing, now_ms: int) -> int:
    """The segment's new epoch; 0 if it has another than the change names. Raises WrongState, NoSuchBatch."""
    key = change.key
    which = {"batch_id": key.batch_id, "number": key.number, "epoch": change.epoch}

    def look(connection: Connection, reader: Reader) -> tuple[Row[Any] | None, Merged | None]:
        found = connection.execute(_SEGMENT, which).one_or_none()
        return found, _merge(connection, found, (change, reader)) if found is not None else None

    found, merged = bodies.look(look)
    outer = None
    if found is not None:
        packed = [(key, change.records)] if merged is None else []
        results = {} if merged is None else {key: merged}
        outer, results = parts.put_outside(bodies, f"result/{key.batch_id}/{key.number}", packed, results)
        merged = results.get(key)

    def write(connection: Connection) -> int:
        row = batches.get_locked(connection, key.batch_id)
        if row.phase != "settled":
            raise WrongState(
                f"Batch {key.batch_id} has not ended, or a new round of it has begun: its answers can be priced again "
                "once all its rows have ended."
            )
        fence = {"of_batch": key.batch_id, "of_number": key.number, "of_epoch": change.epoch}
        if found is None or not connection.execute(_FENCE, fence).rowcount:
            return 0
        place = Place(key, found.round, change.epoch + 1, 0)
        if merged is not None:
            parts.publish(connection, place, merged, now_ms)
        else:
            # Too large for one transaction: the new records go beside the segment's list of parts.
            blob_key = blobs.result_key(key, (place.round, place.epoch), now_ms)
            parts.write(connection, blob_key, [(place, change.records)], outer)
        _count(connection, row, change)
        return place.epoch

    return bodies.connections.transact(write)


def _merge(connection: Connection, found: Row[Any], what: tuple[SegmentRepricing, Reader]) -> Merged | None:
    """The segment's whole result with the new records in it; None if it would pass the bounds of `parts`."""
    change, reader = what
    before = parts.read(connection, change.key, reader)
    packed = [*(frame.packed for frame in before), change.records]
    if sum(frames.unpacked_size(frame) for frame in packed) > 2 * parts.MERGE_BYTES:  # the changed ones are in it twice
        return None
    result = frames.pack_records(list(fold(packed, counted_map(found)).values()))
    if len(result) > blobs.MAX_BYTES:
        return None
    return Merged(result, frozenset(frame.blob_key for frame in before))


def _count(connection: Connection, row: Row[Any], change: SegmentRepricing) -> None:
    """The differences, as nobody's: a worker's own rows are written by that worker alone."""
    delta = Tally()
    delta.add(change.tally)
    delta.possible_picousd = -_freed(connection, row, -change.tally.possible_picousd)
    ledger.add_tally(connection, row.batch_id, (row.round, NOBODY), delta)
    ledger.add_usage(connection, NOBODY, change.usage)


def _freed(connection: Connection, row: Row[Any], picousd: int) -> int:
    """What a cap no longer counts as possible since it is known now: no more than was charged, and nothing where the
    batch began without a cap, so that some of its attempts were never charged."""
    if msgspec.json.decode(row.spec, type=BatchSpec).max_cost_picousd < 0:
        return 0
    return max(0, min(picousd, ledger.sum_tally(connection, row.batch_id, row.round).possible_picousd))
