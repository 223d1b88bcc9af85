"""The batch's own row: reading it, and the moves that more than one theme makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from sqlalchemy import Connection, bindparam, case, delete, func, select, text, update

from batchwright.core.batch_spec import BatchSpec, Destination, with_keys_of
from batchwright.core.errors import NoSuchBatch, WrongState
from batchwright.store import backlog, dialect
from batchwright.store.prepared import Later, Prepared, StoredRow
from batchwright.store.schema import CLAIMABLE, batch, pause

_ONE_THERE = select(batch).where(batch.c.batch_id == bindparam("batch_id"), batch.c.phase != "dropping")
_ONE = Prepared(_ONE_THERE)
_ONE_LOCKED = Prepared(_ONE_THERE.with_for_update())
_SOME_LOCKED = Prepared(
    select(batch)
    .where(dialect.OneOf(batch.c.batch_id, "batch_ids"), batch.c.phase != "dropping")
    .order_by(batch.c.batch_id)
    .with_for_update()
)
_RECOUNT_PAUSES = (
    update(batch)
    .where(batch.c.batch_id == bindparam("of_batch"))
    .values(
        paused=select(func.count())
        .select_from(pause)
        .where(pause.c.batch_id == bindparam("of_batch"))
        .scalar_subquery()
    )
    .returning(batch.c.paused, case((text(CLAIMABLE), 1), else_=0).label("ready"))
)
_SET_PRIORITY = (
    update(batch).where(batch.c.batch_id == bindparam("of_batch")).values(priority=bindparam("new_priority"))
)
_PASS_GATE = Prepared(
    update(batch).where(batch.c.batch_id == bindparam("of_batch"), text("phase = 'open'")).values(gate_passed=1)
)
_SET_SPEC = update(batch).where(batch.c.batch_id == bindparam("of_batch")).values(spec=bindparam("new_spec"))
_DELETE_PAUSES = delete(pause).where(pause.c.batch_id == bindparam("of_batch"))


WORST_MAX = 2**62
"""A sum of worst cases that reaches it (4.6 million USD) says nothing and counts as unknown."""


def worst_of(row: StoredRow) -> int | None:
    """The most that one attempt of each row can cost; None: not known."""
    return None if row.unbounded or row.worst_picousd >= WORST_MAX else int(row.worst_picousd)


def find(connection: Connection, batch_id: str) -> StoredRow | None:
    return _ONE.first(connection, {"batch_id": batch_id})


def find_later(connection: Connection, batch_id: str) -> Later:
    return _ONE.later(connection, {"batch_id": batch_id})


def get(connection: Connection, batch_id: str) -> StoredRow:
    """Raises NoSuchBatch."""
    row = find(connection, batch_id)
    if row is None:
        raise _none_such(batch_id)
    return row


def get_locked(connection: Connection, batch_id: str) -> StoredRow:
    """As it stands until this transaction ends: nobody else writes its row meanwhile. Raises NoSuchBatch."""
    row = _ONE_LOCKED.first(connection, {"batch_id": batch_id})
    if row is None:
        raise _none_such(batch_id)
    return row


def lock(connection: Connection, batch_ids: Iterable[str]) -> dict[str, StoredRow]:
    """Those of these batches that are there, as they stand until this transaction ends. In key order in every
    transaction, so that no two wait for each other crosswise."""
    found = lock_later(connection, batch_ids)
    return {row.batch_id: row for row in found.all()} if found is not None else {}


def lock_later(connection: Connection, batch_ids: Iterable[str]) -> Later | None:
    """The same; None: of no batch."""
    wanted = sorted(batch_ids)
    if not wanted:
        return None
    if len(wanted) == 1:
        return _ONE_LOCKED.later(connection, {"batch_id": wanted[0]})
    return _SOME_LOCKED.later(connection, {"batch_ids": dialect.many(connection, wanted)})


def get_unsettled(connection: Connection, batch_id: str, wish: str) -> StoredRow:
    """Locked. Raises WrongState for a batch that has ended; `wish` completes 'it cannot be ...'."""
    row = get_locked(connection, batch_id)
    if row.phase == "refused":
        raise WrongState(f"Batch {batch_id} was refused as a whole, it cannot be {wish}. Put its input right first.")
    if row.phase == "settled":
        raise WrongState(f"Batch {batch_id} has ended, it cannot be {wish}. Begin a new round of it with retry.")
    return row


def pass_gate(connection: Connection, batch_id: str) -> None:
    """Of its present round."""
    _PASS_GATE.run(connection, {"of_batch": batch_id})


def set_keys(connection: Connection, batch_id: str, keys_of: Sequence[Destination]) -> None:
    row = get_locked(connection, batch_id)
    spec = msgspec.json.decode(row.spec, type=BatchSpec)  # as it is stored: the cap has a column of its own
    renewed = msgspec.structs.replace(spec, destinations=with_keys_of(spec.destinations, keys_of))
    connection.execute(_SET_SPEC, {"of_batch": batch_id, "new_spec": msgspec.json.encode(renewed)})
    dialect.wake_others(connection)


def _none_such(batch_id: str) -> NoSuchBatch:
    return NoSuchBatch(f"There is no batch {batch_id} here.")


def spec_of(row: StoredRow) -> BatchSpec:
    """What the batch was submitted with, under the cap it has now."""
    spec = msgspec.json.decode(row.spec, type=BatchSpec)
    if (spec.max_cost_picousd, spec.soft_cap) != (row.cap_picousd, bool(row.cap_soft)):
        spec = msgspec.structs.replace(spec, max_cost_picousd=row.cap_picousd, soft_cap=bool(row.cap_soft))
    return spec


def recount_pauses(connection: Connection, batch_id: str) -> int:
    """How many pause facts the batch has; it can be claimed from, or not, accordingly."""
    row = connection.execute(_RECOUNT_PAUSES, {"of_batch": batch_id}).one_or_none()
    if row is None:
        return 0
    backlog.set_ready(connection, batch_id, bool(row.ready))
    return int(row.paused)


def set_priority(connection: Connection, batch_id: str, priority: int) -> None:
    """Raises NoSuchBatch, WrongState."""
    get_unsettled(connection, batch_id, "moved before others")
    connection.execute(_SET_PRIORITY, {"of_batch": batch_id, "new_priority": priority})
    backlog.set_priority(connection, batch_id, priority)


def delete_pauses(connection: Connection, batch_id: str) -> None:
    connection.execute(_DELETE_PAUSES, {"of_batch": batch_id})
