"""Which segments wait: the counts that a claim reads instead of the backlog, kept with every change of state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, update

from batchwright.store import dialect
from batchwright.store.prepared import Prepared
from batchwright.store.schema import pick

LOST_FIRST = 1 << 40
"""Taken from a lost segment's rank, so that it comes before all others of its batch."""

Waiting = Counter[tuple[str, str]]
"""Changes of the counts, by (batch_id, lane_set)."""

_ADD = Prepared(dialect.insert_or_add(pick, ("waiting",)), ("batch_id", "lane_set", "waiting"))
# An upsert with a negative number would be checked (waiting >= 0) before it meets the row it is to lower.
_LOWER = Prepared(
    update(pick)
    .where(pick.c.batch_id == bindparam("of_batch"), pick.c.lane_set == bindparam("of_lanes"))
    .values(waiting=pick.c.waiting - bindparam("fewer"))
)


def change_waiting(connection: Connection, changes: Mapping[tuple[str, str], int]) -> None:
    """Adds to the counts of waiting segments (or lowers them, where negative)."""
    in_order = sorted(changes.items())  # of keys: every transaction locks these rows in it
    more = [{"batch_id": batch_id, "lane_set": lanes, "waiting": n} for (batch_id, lanes), n in in_order if n > 0]
    fewer = [{"of_batch": batch_id, "of_lanes": lanes, "fewer": -n} for (batch_id, lanes), n in in_order if n < 0]
    if more:
        _ADD.run_many(connection, more)
    if fewer:
        _LOWER.run_many(connection, fewer)
