"""Sums: tallies of batches, allowances drawn from their budgets, usage by day.

A worker's rows are written by that worker alone, so that two workers' checkpoints never wait for the same row.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, delete, func, select, text, update

from batchwright.core.records import Tally, UsageKey, UsageSum
from batchwright.store import dialect
from batchwright.store.prepared import Prepared
from batchwright.store.schema import (
    HAS_HOLDER,
    NOBODY,
    TALLY_COLUMNS,
    USAGE_COLUMNS,
    allowance,
    batch,
    segment,
    tally,
    tally_count,
    usage,
    worker,
)

_TALLY_KEY = ("batch_id", "round", "worker_id")
_USAGE_KEY = ("day", "account", "model", "vendor", "tenant", "key_id", "endpoint", "worker_id")
_ADD_TALLY = Prepared(dialect.insert_or_add(tally, TALLY_COLUMNS), (*_TALLY_KEY, *TALLY_COLUMNS))
_ADD_COUNT = Prepared(dialect.insert_or_add(tally_count, ("rows",)), (*_TALLY_KEY, "byte", "rows"))
_ADD_USAGE = Prepared(dialect.insert_or_add(usage, USAGE_COLUMNS), (*_USAGE_KEY, *USAGE_COLUMNS))
_ADD_ALLOWANCE = dialect.insert_or_add(allowance, ("picousd",))

_OF_ROUND = (tally.c.batch_id == bindparam("batch_id"), tally.c.round == bindparam("round"))
_SUM_TALLY = select(*[func.coalesce(func.sum(tally.c[name]), 0).label(name) for name in TALLY_COLUMNS]).where(
    *_OF_ROUND
)
_SUM_COUNTS = (
    select(tally_count.c.byte, func.sum(tally_count.c.rows))
    .where(tally_count.c.batch_id == bindparam("batch_id"), tally_count.c.round == bindparam("round"))
    .group_by(tally_count.c.byte)
)
_SUM_WORKED = (
    select(tally_count.c.byte, func.sum(tally_count.c.rows).label("ended"))
    .where(
        tally_count.c.batch_id == bindparam("batch_id"),
        tally_count.c.round == select(batch.c.round).where(batch.c.batch_id == bindparam("batch_id")).scalar_subquery(),
        tally_count.c.worker_id != NOBODY,
    )
    .group_by(tally_count.c.byte)
)
_SUM_ALLOWANCES = select(func.coalesce(func.sum(allowance.c.picousd), 0)).where(
    allowance.c.batch_id == bindparam("batch_id")
)
# In one statement, so that a cost which leaves an allowance at that moment is counted there or here.
_SUM_TAKEN = select(
    select(func.coalesce(func.sum(tally.c.cost_picousd + tally.c.possible_picousd + tally.c.orphan_picousd), 0))
    .where(*_OF_ROUND)
    .scalar_subquery()
    + _SUM_ALLOWANCES.scalar_subquery()
)
# Locked: what is left is set by what was read, and of a gone worker's whoever takes its segments takes from it.
_GET_ALLOWANCE = Prepared(
    select(allowance.c.picousd)
    .where(allowance.c.batch_id == bindparam("batch_id"), allowance.c.worker_id == bindparam("worker_id"))
    .with_for_update()
)
_SET_ALLOWANCE = Prepared(
    update(allowance)
    .where(allowance.c.batch_id == bindparam("of_batch"), allowance.c.worker_id == bindparam("of_worker"))
    .values(picousd=bindparam("left"))
)
_CLEAR_ALLOWANCES = delete(allowance).where(
    allowance.c.worker_id == bindparam("of_worker"),
    allowance.c.batch_id.not_in(
        select(segment.c.batch_id).where(segment.c.holder == bindparam("of_worker"), text(HAS_HOLDER))
    ),
)
_IS_GONE = select(worker.c.id).where(
    worker.c.id == bindparam("of_worker"), (worker.c.dead != 0) | (worker.c.ended != 0)
)
_STILL_HOLDS = (
    select(segment.c.number)
    .where(segment.c.holder == bindparam("of_worker"), text(HAS_HOLDER), segment.c.batch_id == bindparam("of_batch"))
    .limit(1)
)


def add_tally(connection: Connection, batch_id: str, round_worker: tuple[int, int], delta: Tally) -> None:
    """Adds to one worker's tally of one round; allowances are not part of it."""
    round_, worker_id = round_worker
    key = {"batch_id": batch_id, "round": round_, "worker_id": worker_id}
    sums = {name: getattr(delta, name) for name in TALLY_COLUMNS}
    if any(sums.values()):
        _ADD_TALLY.run(connection, key | sums)
    counts = [key | {"byte": byte, "rows": rows} for byte, rows in delta.counts.items() if rows]
    if counts:
        _ADD_COUNT.run_many(connection, counts)


def sum_tally(connection: Connection, batch_id: str, round_: int) -> Tally:
    """The sum of a round's tallies, with what is drawn from the budget now."""
    key = {"batch_id": batch_id, "round": round_}
    row = connection.execute(_SUM_TALLY, key).one()
    sums = {name: int(value) for name, value in zip(TALLY_COLUMNS, row, strict=True)}
    counts = {int(byte): int(rows) for byte, rows in connection.execute(_SUM_COUNTS, key) if rows}
    return Tally(counts=counts, allowance_picousd=allowances(connection, batch_id), **sums)


def count_worked(connection: Connection, batch_id: str) -> dict[int, int]:
    """Rows by byte, as workers ended them in the present round."""
    found = connection.execute(_SUM_WORKED, {"batch_id": batch_id})
    return {int(row.byte): int(row.ended) for row in found if row.ended}


def allowances(connection: Connection, batch_id: str) -> int:
    return int(connection.execute(_SUM_ALLOWANCES, {"batch_id": batch_id}).scalar_one())


def taken_picousd(connection: Connection, batch_id: str, round_: int) -> int:
    """What a cap counts: known, possible and orphan cost, and allowances."""
    return int(connection.execute(_SUM_TAKEN, {"batch_id": batch_id, "round": round_}).scalar_one())


def add_usage(connection: Connection, worker_id: int, deltas: Mapping[UsageKey, UsageSum]) -> None:
    rows = [
        {
            "day": key.day,
            "account": key.account,
            "model": key.model,
            "vendor": key.vendor,
            "tenant": key.tenant,
            "key_id": key.key_id,
            "endpoint": key.endpoint,
            "worker_id": worker_id,
            **{name: getattr(delta, name) for name in USAGE_COLUMNS},
        }
        for key, delta in deltas.items()
    ]
    if rows:
        _ADD_USAGE.run_many(connection, rows)


def draw_allowance(connection: Connection, batch_id: str, worker_id: int, picousd: int) -> None:
    connection.execute(_ADD_ALLOWANCE, {"batch_id": batch_id, "worker_id": worker_id, "picousd": picousd})


def lower_allowance(connection: Connection, batch_id: str, worker_id: int, picousd: int) -> None:
    """Takes from what the worker has drawn, never below 0."""
    had = _drawn(connection, batch_id, worker_id)
    if had:
        left = max(0, had - picousd)
        _SET_ALLOWANCE.run(connection, {"of_batch": batch_id, "of_worker": worker_id, "left": left})


def _drawn(connection: Connection, batch_id: str, worker_id: int) -> int:
    """Locked."""
    row = _GET_ALLOWANCE.first(connection, {"batch_id": batch_id, "worker_id": worker_id})
    return int(row.picousd) if row is not None else 0


def charge_doubt(connection: Connection, batch_id: str, lost_with: int, worst_picousd: int) -> int:
    """Moves a gone worker's allowance over to the doubt it left: to 0 with the last of its segments in the batch.
    Returns what is charged for the doubt.

    That is never more than was drawn: of the rows that were reserved only those were sent that the allowance covered.
    Called when the segment has a new holder (or none). A worker that lives keeps its allowance: it gives it back.
    """
    who = {"of_worker": lost_with, "of_batch": batch_id}
    if not lost_with or connection.execute(_IS_GONE, who).first() is None:
        return worst_picousd
    had = _drawn(connection, batch_id, lost_with)
    charged = min(worst_picousd, had)
    last = connection.execute(_STILL_HOLDS, who).first() is None
    _SET_ALLOWANCE.run(connection, who | {"left": 0 if last else had - charged})
    return charged


def move_to_orphans(connection: Connection, batch_worker: tuple[str, int], round_: int, picousd: int) -> int:
    """What is known as orphan spend from now on is no longer drawn or possible: takes it from the worker's allowance
    and returns how much of the rest has been charged as possible, so that a cap does not count one answer twice."""
    batch_id, worker_id = batch_worker
    had = _drawn(connection, batch_id, worker_id)
    lower_allowance(connection, batch_id, worker_id, picousd)
    return max(0, min(picousd - had, sum_tally(connection, batch_id, round_).possible_picousd))


def clear_allowances(connection: Connection, worker_id: int) -> None:
    """Returns what a worker that has gone drew from batches in which it left no segment behind."""
    connection.execute(_CLEAR_ALLOWANCES, {"of_worker": worker_id})
