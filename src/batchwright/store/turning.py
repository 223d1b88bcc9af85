"""The turns of a batch that others may wait to be told of: it settles, or it pauses.

Whoever listens is told by a delivery written in the very transaction of the turn, last of all in it, so that what it
says is what was committed. Where nobody listens that is one look by index.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, update

from batchwright.core.batch_state import Pause, derive
from batchwright.core.webhooks import EventType, event_of
from batchwright.store import batches, dialect, output_files, pausing, reading, webhooks
from batchwright.store.prepared import Later, Prepared
from batchwright.store.schema import batch

_FEWER_OPEN = Prepared(
    update(batch)
    .where(batch.c.batch_id == bindparam("of_batch"))
    .values(segments_open=batch.c.segments_open - bindparam("fewer"))
    .returning(batch.c.batch_id, batch.c.segments_open)
)
_SETTLE = (
    update(batch)
    .where(batch.c.batch_id == bindparam("of_batch"), batch.c.segments_open == 0, batch.c.phase == "open")
    .values(phase="settled", settled_at_ms=bindparam("now_ms"), paused=0)
)
_REFUSE = (
    update(batch)
    .where(batch.c.batch_id == bindparam("of_batch"), batch.c.phase == "accepting")
    .values(phase="refused", settled_at_ms=bindparam("now_ms"))
)


def lower_open(connection: Connection, batch_id: str, segments: int, now_ms: int) -> bool:
    """Counts `segments` as settled, last of all in its transaction; true if that settled the batch."""
    return settle_lowered(connection, lower_later(connection, batch_id, segments), now_ms) is not None


def lower_later(connection: Connection, batch_id: str, segments: int) -> Later:
    """Counts `segments` as settled; `settle_lowered` is to follow."""
    return _FEWER_OPEN.later(connection, {"of_batch": batch_id, "fewer": segments})


def settle_lowered(connection: Connection, lowered: Later, now_ms: int) -> str | None:
    """The batch, if what `lower_later` counted settles it: of all the transactions that do so one alone reads 0."""
    for row in lowered.all():
        if row.segments_open == 0 and settle_if_done(connection, row.batch_id, now_ms):
            return str(row.batch_id)
    return None


def settle_if_done(connection: Connection, batch_id: str, now_ms: int) -> bool:
    settled = connection.execute(_SETTLE, {"of_batch": batch_id, "now_ms": now_ms}).rowcount > 0
    if settled:
        batches.delete_pauses(connection, batch_id)  # an end is an end: nothing of it waits for anybody
        dialect.wake_others(connection)
        output_files.publish(connection, batch_id, now_ms)
        _tell(connection, batch_id, now_ms)
    return settled


def refuse(connection: Connection, batch_id: str, now_ms: int) -> bool:
    """An accepting batch with nothing taken in ends as refused; false: it has ended so before."""
    refused = connection.execute(_REFUSE, {"of_batch": batch_id, "now_ms": now_ms}).rowcount > 0
    if refused:
        _tell(connection, batch_id, now_ms)
    return refused


def add_pause(connection: Connection, batch_id: str, fact: Pause) -> None:
    """The first fact of a cause stands. The first of all pauses the batch, and that is told."""
    if pausing.add_fact(connection, batch_id, fact) == 1:
        dialect.wake_others(connection)
        _tell(connection, batch_id, fact.since_ms)


def pause_batch(connection: Connection, batch_id: str, fact: Pause) -> None:
    batches.get_unsettled(connection, batch_id, "paused")
    add_pause(connection, batch_id, fact)


def _tell(connection: Connection, batch_id: str, moment_ms: int) -> None:
    listeners = webhooks.listening(connection, batch_id)
    if not listeners:
        return
    row = reading.get_batch(connection, batch_id)
    event = event_of(derive(row.facts, row.tally))
    # A batch that is cancelled while it pauses, or is still taken in, has not turned to `paused`.
    ended = row.facts.settled or row.facts.refused
    if event is not None and (event is EventType.PAUSED) != ended:
        webhooks.announce(connection, listeners, event, (row, moment_ms))
