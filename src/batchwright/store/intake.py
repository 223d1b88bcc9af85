"""Batches on their way in: created, filled segment by segment, closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from sqlalchemy import Connection, bindparam, insert, select, update

from batchwright.core import row_map
from batchwright.core.errors import WrongState
from batchwright.core.records import Tally
from batchwright.ports.store import NewBatch, NewSegment
from batchwright.store import backlog, batches, blobs, dialect, idempotency, ledger, turning, webhooks
from batchwright.store.blobs import MAX_BYTES, Span, input_key, intake_key
from batchwright.store.bodies import Bodies
from batchwright.store.prepared import StoredRow
from batchwright.store.schema import NOBODY, batch, custom_ids, part, segment

_CREATE = insert(batch)
_ADD_SEGMENTS = insert(segment)
_ADD_PARTS = insert(part)
_ADD_CUSTOM_IDS = insert(custom_ids)
_GROW = (
    update(batch)
    .where(batch.c.batch_id == bindparam("of_batch"))
    .values(
        rows=batch.c.rows + bindparam("more_rows"),
        segments=batch.c.segments + bindparam("more_segments"),
        segments_open=batch.c.segments_open + bindparam("more_open"),
        unbounded=batch.c.unbounded + bindparam("more_unbounded"),
        worst_picousd=bindparam("worst"),
    )
)
_OPEN = update(batch).where(batch.c.batch_id == bindparam("of_batch")).values(phase="open")
_THE_SAME = select(segment.c.first_index, segment.c.input_bytes).where(
    segment.c.batch_id == bindparam("batch_id"), segment.c.number == bindparam("number")
)


def create(connection: Connection, new: NewBatch) -> None:
    """The batch's row, in `accepting`; nothing if it is there already, of the same owner and still accepting."""
    there = batches.find(connection, new.batch_id)
    if there is not None:
        if there.phase == "accepting" and there.owner == str(new.owner):
            return
        raise WrongState(f"Batch {new.batch_id} exists already; a new batch needs a new id.")
    spec = new.spec
    values = {
        "batch_id": new.batch_id,
        "account": new.tenant.account,
        "key_id": new.tenant.key_id,
        "source": spec.source,
        "identity": spec.identity,
        "spec": msgspec.json.encode(spec),
        "owner": str(new.owner),
        "created_at_ms": new.created_at_ms,
        "deadline_ms": new.deadline_ms,
        "phase": "accepting",
        "reopen_bytes": b"",
        "cap_picousd": spec.max_cost_picousd,
        "cap_soft": int(spec.soft_cap),
    }
    connection.execute(_CREATE, values)
    if new.idempotency is not None:
        place = (new.tenant.account, new.batch_id)
        idempotency.keep(connection, new.idempotency, place, new.created_at_ms)
    if new.webhook is not None:
        webhooks.add(connection, new.webhook)


def put_outside(bodies: Bodies, batch_id: str, segments: Sequence[NewSegment]) -> dict[str, Span]:
    """The segments' blobs as one object, put before the transaction that adds the segments; where each lies, by what
    it is. Empty: they belong into the table."""
    items = [(f"input/{batch_id}/{new.number}", new.input) for new in segments]
    items += [(f"intake/{batch_id}/{new.number}", new.records) for new in segments if new.records]
    return bodies.put_together(items)


def create_with(
    connection: Connection,
    *,
    batch: NewBatch,
    segments: Sequence[NewSegment],
    outside: Mapping[str, Span],
    closes: bool,
) -> None:
    """One transaction of a submit: the batch if it is not there yet, segments, and the end of the intake."""
    create(connection, batch)
    add(connection, batch.batch_id, segments, outside)
    if closes:
        close(connection, batch.batch_id, batch.created_at_ms)


def chunks(segments: Sequence[NewSegment]) -> Iterator[Sequence[NewSegment]]:
    """Segments by transaction: at most 8 MiB of blobs each; a single larger segment goes alone."""
    start = size = 0
    for position, new in enumerate(segments):
        own = len(new.input) + len(new.records)
        if position > start and size + own > MAX_BYTES:
            yield segments[start:position]
            start, size = position, 0
        size += own
    if start < len(segments):
        yield segments[start:]


def add(connection: Connection, batch_id: str, segments: Sequence[NewSegment], outside: Mapping[str, Span]) -> None:
    """Adds segments of one transaction; those that a commit with a lost reply has added are passed over. `outside` is
    what `put_outside` gave."""
    row = _accepting(connection, batch_id)
    fresh = _fresh(connection, row, segments)
    if not fresh:
        return
    waiting: backlog.Waiting = Counter()
    ended = Tally()
    for new in fresh:
        if row_map.count_open(new.row_map):
            waiting[batch_id, new.lane_set] += 1
        for byte, rows in row_map.counts(new.row_map).items():
            if row_map.is_end(byte):
                ended.counts[byte] = ended.counts.get(byte, 0) + rows
    connection.execute(_ADD_SEGMENTS, [_segment_values(row, new) for new in fresh])
    for new in fresh:
        key = (batch_id, new.number, row.created_at_ms)
        blobs.put(connection, input_key(*key), new.input, outside.get(f"input/{batch_id}/{new.number}"))
        if new.records:
            blobs.put(connection, intake_key(*key), new.records, outside.get(f"intake/{batch_id}/{new.number}"))
    parts = [_part_values(row, new) for new in fresh if new.records]
    if parts:
        connection.execute(_ADD_PARTS, parts)
    hashes = [{"batch_id": batch_id, "number": new.number, "hashes": new.id_hashes} for new in fresh if new.id_hashes]
    if hashes:
        connection.execute(_ADD_CUSTOM_IDS, hashes)
    backlog.change_waiting(connection, waiting)
    ledger.add_tally(connection, batch_id, (0, NOBODY), ended)
    grown = {
        "of_batch": batch_id,
        "more_rows": sum(len(new.row_map) for new in fresh),
        "more_segments": len(fresh),
        "more_open": waiting.total(),
        "more_unbounded": sum(new.unbounded for new in fresh),
        "worst": min(row.worst_picousd + sum(new.worst_picousd for new in fresh), batches.WORST_MAX),
    }
    connection.execute(_GROW, grown)


def close(connection: Connection, batch_id: str, now_ms: int) -> None:
    """Makes the batch claimable; settles it if none of its rows is open."""
    _accepting(connection, batch_id)
    connection.execute(_OPEN, {"of_batch": batch_id})
    batches.recount_pauses(connection, batch_id)  # it may have been cancelled meanwhile
    dialect.wake_others(connection)
    turning.settle_if_done(connection, batch_id, now_ms)


def _accepting(connection: Connection, batch_id: str) -> StoredRow:
    row = batches.get_locked(connection, batch_id)
    if row.phase != "accepting":
        raise WrongState(f"The intake of batch {batch_id} is closed: it takes no more rows and cannot be closed again.")
    return row


def _fresh(connection: Connection, row: StoredRow, segments: Sequence[NewSegment]) -> list[NewSegment]:
    fresh: list[NewSegment] = []
    number, index = row.segments, row.rows
    for new in segments:
        if new.number < row.segments:
            same = connection.execute(_THE_SAME, {"batch_id": row.batch_id, "number": new.number}).one()
            if (same.first_index, same.input_bytes) == (new.first_index, new.input_bytes):
                continue
        if new.number != number or new.first_index != index:
            raise WrongState(
                f"Batch {row.batch_id} goes on with segment {number} at row {index}, "
                f"but segment {new.number} at row {new.first_index} was added."
            )
        fresh.append(new)
        number += 1
        index += len(new.row_map)
    return fresh


def _segment_values(row: StoredRow, new: NewSegment) -> dict[str, object]:
    open_rows = row_map.count_open(new.row_map)
    return {
        "batch_id": row.batch_id,
        "account": row.account,
        "number": new.number,
        "first_index": new.first_index,
        "row_map": new.row_map,
        "open": open_rows,
        "state": "waiting" if open_rows else "settled",
        "rank": new.number,
        "lane_set": new.lane_set,
        "all_lanes": new.lane_set,
        "input_bytes": new.input_bytes,
    }


def _part_values(row: StoredRow, new: NewSegment) -> dict[str, object]:
    return {
        "batch_id": row.batch_id,
        "number": new.number,
        "round": 0,
        "epoch": 0,
        "seq": 0,
        "blob_key": intake_key(row.batch_id, new.number, row.created_at_ms),
        "offset": 0,
        "length": len(new.records),
    }
