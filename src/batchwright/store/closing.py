"""Closing: cancel, expiry and stop set a flag on the batch; then what no live worker holds is closed, step by step.

Closing opens no blob: a closed segment keeps its map, and its open bytes read as what it was closed as (or as the
row's byte before this round).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, text, update

from batchwright.core import row_map
from batchwright.core.failures import FailureKind
from batchwright.core.records import SegmentKey, Tally
from batchwright.store import backlog, batches, dialect, inputs, ledger, turning
from batchwright.store.bodies import Reader
from batchwright.store.schema import AWAITS_CLOSING, CAN_EXPIRE, NOBODY, UNENDED, batch, file_batch, segment

_SET_CLOSING = (
    update(batch)
    .where(batch.c.batch_id == bindparam("of_batch"), batch.c.closing == "")
    .values(closing=bindparam("kind"))
)
_EXPIRE = (
    update(batch)
    .where(text(CAN_EXPIRE), batch.c.deadline_ms <= bindparam("now_ms"))
    .values(closing=FailureKind.EXPIRED.value)
    .returning(batch.c.batch_id)
)
_AWAITING = select(batch.c.batch_id).where(text(AWAITS_CLOSING)).order_by(batch.c.seq)
_UNHELD = (
    select(segment)
    .where(segment.c.batch_id == bindparam("batch_id"), text(UNENDED), segment.c.state != "held")
    .order_by(segment.c.number)
    .limit(bindparam("at_most"))
    # One that is being claimed at this moment is its worker's to close.
    .with_for_update(skip_locked=True)
)
_CLOSE = (
    update(segment)
    .where(segment.c.batch_id == bindparam("of_batch"), segment.c.number == bindparam("of_number"))
    .values(
        state="settled",
        open=0,
        holder=0,
        not_before_ms=0,
        closed_as=bindparam("kind"),
    )
)


_NOTE_CANCEL = (
    update(file_batch)
    .where(file_batch.c.batch_id == bindparam("of_batch"))
    .values(cancelling_at_ms=bindparam("now_ms"))
)


def request(connection: Connection, batch_id: str, kind: FailureKind, now_ms: int) -> bool:
    """Sets the flag; false if one was set. Raises WrongState for a settled batch, ValueError for another kind."""
    if kind not in row_map.CLOSING_KINDS:
        raise ValueError(f"a batch is not closed as {kind}")
    batches.get_unsettled(connection, batch_id, "closed")
    if not connection.execute(_SET_CLOSING, {"of_batch": batch_id, "kind": kind.value}).rowcount:
        return False
    backlog.set_ready(connection, batch_id, False)
    if kind is FailureKind.CANCELLED:
        connection.execute(_NOTE_CANCEL, {"of_batch": batch_id, "now_ms": now_ms})
    dialect.wake_others(connection)
    return True


def expire_due(connection: Connection, now_ms: int) -> list[str]:
    for batch_id in sorted(connection.execute(_EXPIRE, {"now_ms": now_ms}).scalars()):
        backlog.set_ready(connection, batch_id, False)
    return list(connection.execute(_AWAITING).scalars())


def step(connection: Connection, reader: Reader, batch_id: str, *, now_ms: int, limit: int) -> int:
    """Raises Outside."""
    row = batches.get_locked(connection, batch_id)
    if row.phase != "open" or not row.closing:
        return 0
    kind = FailureKind(row.closing)
    segments = connection.execute(_UNHELD, {"batch_id": batch_id, "at_most": limit}).all()
    if not segments:
        return 0
    if reader.goes_outside:
        charged = [SegmentKey(batch_id, found.number) for found in segments if _is_charged(row, found)]
        reader.need([inputs.find(connection, key, row.created_at_ms) for key in charged])  # all in one go
    tally = Tally()
    fewer: backlog.Waiting = Counter()
    for found in segments:
        _count_closed(tally, found, kind)
        if found.state == "waiting":
            fewer[batch_id, found.lane_set] -= 1
    connection.execute(
        _CLOSE, [{"of_batch": batch_id, "of_number": found.number, "kind": kind.value} for found in segments]
    )
    backlog.change_waiting(connection, fewer)
    for found in segments:
        if found.holder:
            tally.possible_picousd += _charge(connection, row, (found, reader))
    ledger.add_tally(connection, batch_id, (row.round, NOBODY), tally)
    turning.lower_open(connection, batch_id, len(segments), now_ms)
    return len(segments)


def _count_closed(tally: Tally, found: Row[Any], kind: FailureKind) -> None:
    # A row that was out when its worker was lost may have been paid for, and no claim will come to note it.
    doubts = found.row_map.count(row_map.RESERVED)
    tally.attempts += doubts
    tally.doubts += doubts
    counted = row_map.read_closed(found.row_map, kind, found.previous_map)
    for byte, rows in row_map.counts(counted).items():
        closed = rows - found.row_map.count(byte)
        if closed:
            tally.counts[byte] = tally.counts.get(byte, 0) + closed


def _is_charged(row: Row[Any], found: Row[Any]) -> bool:
    """Whether rows of it were out with a worker that is gone, under a cap."""
    return bool(found.holder) and row.cap_picousd >= 0 and row_map.RESERVED in found.row_map


def _charge(connection: Connection, row: Row[Any], what: tuple[Row[Any], Reader]) -> int:
    """Moves what a gone worker had drawn over to the rows it left in doubt; returns what is charged. `what` is (the
    segment, the reader)."""
    found, reader = what
    worst = 0
    if _is_charged(row, found):
        key = SegmentKey(found.batch_id, found.number)
        rows = inputs.read_rows(connection, (key, row.created_at_ms), reader).rows
        worst = sum(
            item.worst_picousd for item, byte in zip(rows, found.row_map, strict=True) if byte == row_map.RESERVED
        )
    return ledger.charge_doubt(connection, found.batch_id, found.holder, worst)
