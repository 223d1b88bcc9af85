"""What a worker hears of batches that it has a part in: with its checkpoints, and in between where one is to stop."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, or_, select

from batchwright.core.failures import FailureKind
from batchwright.ports.store import BatchSignals
from batchwright.store import credit
from batchwright.store.prepared import StoredRow
from batchwright.store.schema import batch

_STOPPED = select(
    batch.c.batch_id, batch.c.key_id, batch.c.round, batch.c.closing, batch.c.paused, batch.c.deadline_ms, batch.c.phase
).where(
    batch.c.batch_id.in_(bindparam("batch_ids", expanding=True)),
    or_(batch.c.closing != "", batch.c.paused != 0),
)


def of_rows(connection: Connection, rows: Sequence[StoredRow]) -> dict[str, BatchSignals]:
    """`rows`: of batches."""
    budgeted = credit.with_budget(connection, {row.key_id for row in rows})
    return {row.batch_id: _signals_of(row, budgeted) for row in rows}


def of_stopped(connection: Connection, batch_ids: Sequence[str]) -> dict[str, BatchSignals]:
    """Of those of the batches that are to stop, or stand still."""
    return of_rows(connection, connection.execute(_STOPPED, {"batch_ids": list(batch_ids)}).all())


def _signals_of(row: StoredRow, budgeted: frozenset[str]) -> BatchSignals:
    return BatchSignals(
        batch_id=row.batch_id,
        round=row.round,
        closing=FailureKind(row.closing) if row.closing else None,
        paused=row.paused > 0,
        deadline_ms=row.deadline_ms,
        settled=row.phase == "settled",
        budgeted=row.key_id in budgeted,
    )
