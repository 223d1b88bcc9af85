"""Named leases: who may do, for a while, what one process at a time is to do (the sweeper's pass)."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete

from batchwright.core.worker_id import WorkerId
from batchwright.store import dialect
from batchwright.store.schema import lease

# One statement: of two that ask at once for a lease that has run out one alone changes its row.
_TAKE = dialect.insert_or_replace(
    lease,
    ("owner", "until_ms"),
    only_if=(lease.c.owner == bindparam("taker")) | (lease.c.until_ms <= bindparam("now_ms")),
)


_FORGET_OLD = delete(lease).where(lease.c.until_ms <= bindparam("now_ms"))


def take(connection: Connection, name: str, owner: WorkerId, *, now_ms: int, until_ms: int) -> bool:
    """A lease that has run out, or is the owner's own, is taken; true if it is the owner's now."""
    values = {"name": name, "owner": str(owner), "until_ms": until_ms, "taker": str(owner), "now_ms": now_ms}
    return connection.execute(_TAKE, values).rowcount > 0


def forget_old(connection: Connection, now_ms: int) -> None:
    """Those that have run out."""
    connection.execute(_FORGET_OLD, {"now_ms": now_ms})
