"""How much there is to do for workers of any kind, in segments."""

from __future__ import annotations

from sqlalchemy import Connection, func, select, text

from batchwright.store.schema import CLAIMABLE, HAS_HOLDER, batch, pick, segment

_WAITING = (
    select(func.coalesce(func.sum(pick.c.waiting), 0))
    .join_from(batch, pick, pick.c.batch_id == batch.c.batch_id)
    .where(text(CLAIMABLE))
)
_HELD = select(func.count()).select_from(segment).where(text(HAS_HOLDER), text("state = 'held'"))


def segments_to_do(connection: Connection) -> int:
    """That wait to be claimed, of batches that may be worked on, and that workers hold."""
    return int(connection.execute(_WAITING).scalar_one()) + int(connection.execute(_HELD).scalar_one())
