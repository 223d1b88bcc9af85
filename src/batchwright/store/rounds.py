"""Rounds: a settled batch's rows opened again, from row maps alone, a bounded number of segments a transaction.

The first transaction writes the new round and its base tally (the rows left alone, all that was spent so far), so that
the sums hold from then on; each step opens up to 1,000 segments; the last one makes the round claimable. Between them
the batch is `reopening`: a crash leaves it so, and the next call goes on with what the first one was asked for.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select, update

from batchwright.core import row_map
from batchwright.core.errors import WrongState
from batchwright.ports.store import Reopened
from batchwright.store import backlog, batches, dialect, ledger
from batchwright.store.connections import Connections
from batchwright.store.reading import counted_map, has_any
from batchwright.store.schema import NOBODY, batch, segment

STEP = 1_000
"""Segments looked at in one transaction."""

_BEGIN = (
    update(batch)
    .where(batch.c.batch_id == bindparam("of_batch"))
    .values(
        phase="reopening",
        round=batch.c.round + 1,
        closing="",
        paused=0,
        gate_passed=bindparam("past_gate"),
        settled_at_ms=0,
        deadline_ms=bindparam("new_deadline"),
        reopen_next=0,
        reopen_bytes=bindparam("chosen"),
    )
)
_NEXT = (
    select(segment)
    .where(segment.c.batch_id == bindparam("batch_id"), segment.c.number >= bindparam("first"))
    .order_by(segment.c.number)
    .limit(bindparam("at_most"))
)
_OPEN_SEGMENT = (
    update(segment)
    .where(segment.c.batch_id == bindparam("of_batch"), segment.c.number == bindparam("of_number"))
    .values(
        row_map=bindparam("new_map"),
        previous_map=bindparam("new_previous"),
        open=bindparam("new_open"),
        round=bindparam("new_round"),
        state="waiting",
        epoch=segment.c.epoch + 1,
        holder=0,
        rank=segment.c.number,
        deaths=0,
        window=0,
        not_before_ms=0,
        closed_as="",
        lane_set=segment.c.all_lanes,
        charged=0,
        weight=0,
    )
)
_ADVANCE = (
    update(batch)
    .where(batch.c.batch_id == bindparam("of_batch"))
    .values(
        phase=bindparam("new_phase"),
        segments_open=batch.c.segments_open + bindparam("more_open"),
        reopen_next=bindparam("next"),
    )
)
_OPENED = select(func.count()).where(segment.c.batch_id == bindparam("batch_id"), segment.c.round == bindparam("round"))


def reopen(
    connections: Connections, batch_id: str, chosen: frozenset[int], *, deadline_ms: int, gate: bool
) -> Reopened:
    chosen -= row_map.NEVER_SENDABLE
    first = partial(_first, batch_id=batch_id, chosen=chosen, deadline_ms=deadline_ms, gate=gate)
    nothing = connections.transact(first)
    if nothing is not None:
        return nothing
    while not connections.transact(partial(_next, batch_id=batch_id)):
        pass
    with connections.read() as connection:
        row = batches.get(connection, batch_id)
        return Reopened(
            rows=_count(connection, batch_id, frozenset(row.reopen_bytes), round_=row.round - 1),
            segments=connection.execute(_OPENED, {"batch_id": batch_id, "round": row.round}).scalar_one(),
            round=row.round,
        )


def _first(
    connection: Connection, *, batch_id: str, chosen: frozenset[int], deadline_ms: int, gate: bool
) -> Reopened | None:
    """The round is begun, or there already, and its first segments are open; else what says that none was chosen."""
    row = batches.get_locked(connection, batch_id)
    if row.phase == "settled":
        if not _count(connection, batch_id, chosen, round_=row.round):
            return Reopened(rows=0, segments=0, round=row.round)
        _begin(connection, row, chosen, deadline_ms=deadline_ms, gate=gate)
        row = batches.get(connection, batch_id)
    elif row.phase == "refused":
        raise WrongState(f"Batch {batch_id} was refused as a whole: it has no rows. Put its input right first.")
    elif row.phase != "reopening":
        raise WrongState(
            f"Batch {batch_id} has not ended: a new round can begin once all its rows have. `batchwright resume "
            f"{batch_id}` goes on with it, `batchwright cancel {batch_id}` ends it."
        )
    _step(connection, row)
    return None


def _next(connection: Connection, *, batch_id: str) -> bool:
    """True: the round is claimable."""
    row = batches.get_locked(connection, batch_id)
    return row.phase != "reopening" or _step(connection, row)


def _count(connection: Connection, batch_id: str, chosen: frozenset[int], *, round_: int) -> int:
    """Rows that the round ended with one of these bytes."""
    if not chosen <= row_map.END_BYTES:
        raise ValueError(f"only rows that have ended can be opened again, not bytes {sorted(chosen)}")
    counts = ledger.sum_tally(connection, batch_id, round_).counts
    return sum(counts.get(byte, 0) for byte in chosen)


def _begin(connection: Connection, row: Row[Any], chosen: frozenset[int], *, deadline_ms: int, gate: bool) -> None:
    base = ledger.sum_tally(connection, row.batch_id, row.round)
    base.counts = {byte: rows for byte, rows in base.counts.items() if byte not in chosen}
    ledger.add_tally(connection, row.batch_id, (row.round + 1, NOBODY), base)
    batches.delete_pauses(connection, row.batch_id)
    values = {
        "of_batch": row.batch_id,
        "new_deadline": deadline_ms,
        "chosen": bytes(sorted(chosen)),
        "past_gate": int(not gate),
    }
    connection.execute(_BEGIN, values)
    backlog.set_ready(connection, row.batch_id, False)


def _step(connection: Connection, row: Row[Any]) -> bool:
    """Opens the rows of the next segments; true if that were the last, and the round is claimable."""
    found = connection.execute(_NEXT, {"batch_id": row.batch_id, "first": row.reopen_next, "at_most": STEP}).all()
    chosen = frozenset(row.reopen_bytes)
    opened = []
    waiting: backlog.Waiting = Counter()
    for item in found:
        counted = counted_map(item)
        if not has_any(counted, chosen):
            continue
        new_map, previous_map, rows = row_map.reopen(counted, chosen)
        waiting[row.batch_id, item.all_lanes] += 1
        values = {
            "of_batch": row.batch_id,
            "of_number": item.number,
            "new_map": new_map,
            "new_previous": previous_map,
            "new_open": rows,
            "new_round": row.round,
        }
        opened.append(values)
    if opened:
        connection.execute(_OPEN_SEGMENT, opened)
    backlog.change_waiting(connection, waiting)
    last = len(found) < STEP
    advance = {
        "of_batch": row.batch_id,
        "new_phase": "open" if last else "reopening",
        "more_open": len(opened),
        "next": found[-1].number + 1 if found else row.reopen_next,
    }
    connection.execute(_ADVANCE, advance)
    if last:
        batches.recount_pauses(connection, row.batch_id)
        dialect.wake_others(connection)
    return last
