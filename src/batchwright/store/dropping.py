"""A batch on its way out: hidden at once, then removed with all that is its own, a bounded step a transaction."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, select, text, update

from batchwright.core.errors import WrongState
from batchwright.store import batches, blobs, files, idempotency, webhooks
from batchwright.store.blobs import input_key
from batchwright.store.schema import (
    ENDED,
    allowance,
    batch,
    custom_ids,
    file,
    file_batch,
    part,
    pause,
    pick,
    row_group,
    segment,
    tally,
    tally_count,
)

SEGMENTS_A_STEP = 200
"""Segments that one transaction removes: some 1,000 rows, for each has an input, a few parts and what holds them."""

_HIDE = update(batch).where(batch.c.batch_id == bindparam("of_batch")).values(phase="dropping")
_BEGUN = select(batch.c.batch_id).where(batch.c.phase == "dropping")
_ENDED_BEFORE = (
    select(batch.c.batch_id)
    .where(text(ENDED), batch.c.settled_at_ms < bindparam("before_ms"), text("phase IN ('settled', 'refused')"))
    .order_by(batch.c.settled_at_ms)
    .limit(bindparam("at_most"))
)
_CREATED = select(batch.c.created_at_ms).where(batch.c.batch_id == bindparam("batch_id"))
_LAST_NUMBERS = (
    select(segment.c.number)
    .where(segment.c.batch_id == bindparam("batch_id"))
    .order_by(segment.c.number.desc())
    .limit(SEGMENTS_A_STEP)
)
_PART_BLOBS = (
    select(part.c.blob_key)
    .where(part.c.batch_id == bindparam("batch_id"), part.c.number >= bindparam("first"))
    .distinct()
)
_DELETE_FROM = [
    delete(table).where(table.c.batch_id == bindparam("of_batch"), table.c.number >= bindparam("first"))
    for table in (part, custom_ids, segment)
]
_DELETE_SUMS, _DELETE_REST = (
    [delete(table).where(table.c.batch_id == bindparam("of_batch")) for table in tables]
    for tables in ((pick, tally, tally_count), (allowance, pause, file_batch, file, row_group, batch))
)
_BEGIN_ANEW = update(batch).where(batch.c.batch_id == bindparam("of_batch")).values(rows=0, segments=0, segments_open=0)


def ended_before(connection: Connection, before_ms: int, limit: int) -> list[str]:
    return list(connection.execute(_ENDED_BEFORE, {"before_ms": before_ms, "at_most": limit}).scalars())


def hide(connection: Connection, batch_id: str) -> None:
    """The first step of a drop: from here on nobody finds the batch, and a crash cannot leave half of one to read."""
    row = batches.get_locked(connection, batch_id)
    if row.phase not in ("accepting", "settled", "refused"):
        raise WrongState(f"Batch {batch_id} has not ended. Cancel it first, then remove it.")
    connection.execute(_HIDE, {"of_batch": batch_id})
    idempotency.forget_batch(connection, batch_id)


def begun(connection: Connection) -> list[str]:
    """Batches that are hidden and not wholly removed."""
    return list(connection.execute(_BEGUN).scalars())


def step(connection: Connection, batch_id: str, *, with_day: bool = False) -> bool:
    """Removes the last segments of a hidden batch, then the batch itself; true while there is more to do. `with_day`:
    its bodies stay, and go with all of their day."""
    created_at_ms = connection.execute(_CREATED, {"batch_id": batch_id}).scalar_one_or_none()
    if created_at_ms is not None and _drop_segments(connection, (batch_id, created_at_ms), with_day=with_day):
        return True
    webhooks.forget_of_batch(connection, batch_id)
    files.let_go(connection, batch_id)
    for statement in (*_DELETE_SUMS, *_DELETE_REST):
        connection.execute(statement, {"of_batch": batch_id})
    return False


def empty_step(connection: Connection, batch_id: str) -> bool:
    """Removes the last segments that an accepting batch took in, then their sums; true while there is more to do.

    Until then the batch's counters are too high: nobody relies on those of a batch that is accepting.
    """
    row = batches.get_locked(connection, batch_id)
    if row.phase != "accepting":
        raise WrongState(f"The intake of batch {batch_id} is closed: it cannot begin again.")
    if _drop_segments(connection, (batch_id, row.created_at_ms)):
        return True
    for statement in (*_DELETE_SUMS, _BEGIN_ANEW):
        connection.execute(statement, {"of_batch": batch_id})
    return False


def _drop_segments(connection: Connection, what: tuple[str, int], *, with_day: bool = False) -> bool:
    """`what` is (the batch, when it was created). False: there are none any more."""
    batch_id, created_at_ms = what
    numbers = list(connection.execute(_LAST_NUMBERS, {"batch_id": batch_id}).scalars())
    if not numbers:
        return False
    first = min(numbers)
    named = list(connection.execute(_PART_BLOBS, {"batch_id": batch_id, "first": first}).scalars())
    for statement in _DELETE_FROM:
        connection.execute(statement, {"of_batch": batch_id, "first": first})
    blobs.discard(connection, [input_key(batch_id, number, created_at_ms) for number in numbers], with_day=with_day)
    # A worker's part may hold frames of other batches too.
    blobs.discard(connection, named, unnamed=True, with_day=with_day)
    return True
