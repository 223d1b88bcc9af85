"""Named leases: who may do, for a while, what one process at a time is to do (the sweeper's pass)."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select

from batchwright.core.worker_id import WorkerId
from batchwright.store import dialect
from batchwright.store.schema import lease

_ONE = select(lease).where(lease.c.name == bindparam("name"))
_SET = dialect.insert_or_replace(lease, ("owner", "until_ms"))


def take(connection: Connection, name: str, owner: WorkerId, *, now_ms: int, until_ms: int) -> bool:
    """A lease that has run out, or is the owner's own, is taken; true if it is the owner's now."""
    row = connection.execute(_ONE, {"name": name}).one_or_none()
    if row is not None and row.owner != str(owner) and row.until_ms > now_ms:
        return False
    connection.execute(_SET, {"name": name, "owner": str(owner), "until_ms": until_ms})
    return True
