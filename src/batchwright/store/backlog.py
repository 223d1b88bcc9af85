"""Which segments wait: the counts that a claim reads instead of the backlog, kept with every change of state.

A pick carries what its batch says of it (`ready`: it can be claimed from), and every row of `queue` whose account has
a ready pick with waiting segments is in the state `queued`. The other way round it is put right by the claim that looks
and finds nothing (`store.queueing.rest`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sqlalchemy import BigInteger, Connection, bindparam, case, select, text, update

from batchwright.store import dialect, queueing
from batchwright.store.prepared import Prepared
from batchwright.store.schema import CLAIMABLE, batch, pick

LOST_FIRST = 1 << 40
"""Taken from a lost segment's rank, so that it comes before all others of its batch."""

Waiting = Counter[tuple[str, str]]
"""Changes of the counts, by (batch_id, lane_set)."""

_OF_BATCH = ("account", "seq", "deadline_ms", "created_at_ms")
_ADD = Prepared(
    dialect.insert_or_add(
        pick,
        ("waiting",),
        rows=(
            ("batch_id", "lane_set", "waiting", "ready", "behind", *_OF_BATCH),
            select(
                batch.c.batch_id,
                bindparam("lanes", type_=pick.c.lane_set.type),
                bindparam("more", type_=BigInteger),
                case((text(CLAIMABLE), 1), else_=0),
                -batch.c.priority,
                *(batch.c[name] for name in _OF_BATCH),
            )
            .where(batch.c.batch_id == bindparam("of_batch"))
            # A batch that is paused at this moment would leave a new pick ready.
            .with_for_update(),
        ),
    ).returning(pick.c.account, pick.c.ready)
)
# An upsert with a negative number would be checked (waiting >= 0) before it meets the row it is to lower.
_LOWER = Prepared(
    update(pick)
    .where(pick.c.batch_id == bindparam("of_batch"), pick.c.lane_set == bindparam("of_lanes"))
    .values(waiting=pick.c.waiting - bindparam("fewer"))
)
_LOWER_IN_TURN = Prepared(
    update(pick)
    .where(pick.c.batch_id == bindparam("of_batch"))
    .values(
        waiting=pick.c.waiting
        - case((pick.c.lane_set == bindparam("of_lanes"), bindparam("fewer", type_=BigInteger)), else_=0),
        turn=bindparam("new_turn"),
    )
)
_SET_READY = (
    update(pick)
    .where(pick.c.batch_id == bindparam("of_batch"))
    .values(
        ready=bindparam("is_ready"),
        deadline_ms=select(batch.c.deadline_ms).where(batch.c.batch_id == bindparam("of_batch")).scalar_subquery(),
    )
    .returning(pick.c.account, pick.c.lane_set, pick.c.waiting)
)
_SET_BEHIND = update(pick).where(pick.c.batch_id == bindparam("of_batch")).values(behind=bindparam("new_behind"))


def change_waiting(
    connection: Connection, changes: Mapping[tuple[str, str], int], turns: Mapping[str, int] | None = None
) -> None:
    """Adds to the counts of waiting segments (or lowers them, where negative). The rows of batches of which more wait
    are locked with it. `turns`: new ones of the batches of which fewer wait."""
    in_order = sorted(changes.items())  # of keys: every transaction locks these rows in it
    queued = set()
    for (batch_id, lanes), number in in_order:
        if number > 0:
            row = _ADD.first(connection, {"of_batch": batch_id, "lanes": lanes, "more": number})
            if row is not None and row.ready:
                queued.add((row.account, lanes))
    fewer = [
        {"of_batch": batch_id, "of_lanes": lanes, "fewer": -number}
        for (batch_id, lanes), number in in_order
        if number < 0
    ]
    if fewer and turns:
        _LOWER_IN_TURN.run_many(connection, [one | {"new_turn": turns[str(one["of_batch"])]} for one in fewer])
    elif fewer:
        _LOWER.run_many(connection, fewer)
    queueing.enter(connection, queued)


def set_ready(connection: Connection, batch_id: str, ready: bool) -> None:
    """Whether the batch, whose row is locked, can be claimed from now; also takes over its deadline."""
    rows = connection.execute(_SET_READY, {"of_batch": batch_id, "is_ready": int(ready)}).all()
    if ready:
        queueing.enter(connection, {(row.account, row.lane_set) for row in rows if row.waiting})


def set_priority(connection: Connection, batch_id: str, priority: int) -> None:
    connection.execute(_SET_BEHIND, {"of_batch": batch_id, "new_behind": -priority})
