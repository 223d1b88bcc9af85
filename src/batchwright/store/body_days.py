"""The blobs of a day as one table of a PostgreSQL server: made ahead of need, and dropped as a whole.

`blob` is partitioned by what its keys begin with. A day's table is made apart and then attached, and detached before it
is dropped, so that nobody who works waits for either. A day goes when nothing leads there any more: no part, no batch
that came in on it (its inputs), no object. That is asked of the rows themselves, and must have been so for longer than
any transaction lasts, because a table that is dropped is gone for those too who still see what led to it.

A day that is kept for a batch which has not ended long after the others is emptied of these by rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Protocol, TypeVar

import msgspec
from sqlalchemy import Connection, bindparam, select
from sqlalchemy.exc import DBAPIError

from batchwright.store import blobs, dialect, facts
from batchwright.store.blobs import DAY_MS, day_of, of_day
from batchwright.store.schema import batch, blob

T = TypeVar("T")

TURN = "batchwright days"
AHEAD = 2
"""Days after today that have their tables."""
OPEN = 2
"""Days up to today that are never dropped: clocks are not all the same, and a checkpoint may lie between two."""
LOOKED_EVERY_MS = 60_000
UNNEEDED_MS = 10 * 60_000
"""So long nothing must have led to a day; a transaction that reads ends within two minutes."""
UNNEEDED = "days that nothing leads to"
"""A fact: JSON, day -> since when."""
OVERDUE = 2
"""Days more than the retention, after which a day is emptied by rows."""
EMPTIED = "overdue days emptied to"
"""A fact: JSON, `_Emptied`."""
STEP, STEPS = 1_000, 20
"""Keys that one transaction looks at, and transactions of one sweep."""
PATIENCE_S = 10.0
"""Of detaching: it waits for transactions that began before it, and holds up none."""
NO_PARTITION = "23514"
"""check_violation, of no constraint: a row that has no table to go to."""


class DayState(StrEnum):
    """Of a day's table, as the catalog has it."""

    ATTACHED = "attached"
    DETACHING = "detaching"
    """Half of it is done; it takes no row any more."""
    APART = "apart"
    """What a crash leaves of one that was being made or dropped."""


_STATES = f"""
    SELECT substr(relname, 6)::bigint, CASE
        WHEN inhrelid IS NULL THEN '{DayState.APART}'
        WHEN inhdetachpending THEN '{DayState.DETACHING}'
        ELSE '{DayState.ATTACHED}' END
    FROM pg_class LEFT JOIN pg_inherits ON inhrelid = pg_class.oid
    WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
        AND relkind = 'r' AND relname ~ '^blob_[0-9]+$'
"""
_IS_NEEDED = """
    SELECT EXISTS (SELECT FROM part WHERE blob_key >= '{low}' AND blob_key < '{high}')
        OR EXISTS (SELECT FROM batch WHERE created_at_ms >= {begin_ms} AND created_at_ms < {end_ms})
        OR EXISTS (SELECT FROM blob WHERE key >= '{low}' AND key < '{high}' AND object <> '')
"""
_KEYS = (
    select(blob.c.key)
    .where(blob.c.key > bindparam("after"), blob.c.key < bindparam("before"), blob.c.object == "")
    .order_by(blob.c.key)
    .limit(STEP)
)
_THERE = select(batch.c.batch_id).where(dialect.OneOf(batch.c.batch_id, "batch_ids"))


class _Emptied(msgspec.Struct, frozen=True, kw_only=True):
    on: int = -1
    """The day on which it was begun: once a day is enough."""
    after: str = ""
    """The key that it has come to."""
    ended: bool = False


class Days(Protocol):
    """What this needs of `store.postgres`."""

    def transact(self, work: Callable[[Connection], T]) -> T: ...

    def look(self, work: Callable[[Connection], T]) -> T: ...

    def run_alone(self, sql: str, patience_s: float) -> bool:
        """One statement outside a transaction; false: others were in its way, and it was given up."""


def name_of(day: int) -> str:
    return f"blob_{day}"


def states(connection: Connection) -> dict[int, DayState]:
    """Of each day that has a table."""
    return {day: DayState(state) for day, state in connection.exec_driver_sql(_STATES)}


def lacking_day(error: DBAPIError) -> int | None:
    """The day whose table a refused row lacks; None: it was refused for another reason."""
    told = getattr(error.orig, "diag", None)
    if told is None or told.sqlstate != NO_PARTITION or told.constraint_name or told.table_name != "blob":
        return None
    # "Partition key of the failing row contains (key) = (20800/input/...)", in the server's language.
    day = str(told.message_detail).rpartition(" = (")[2].partition("/")[0]
    return int(day) if day.isdecimal() else None


def make(connection: Connection, day: int) -> None:
    """The day's table, unless it is there. Attaching waits for nobody who reads or writes blobs, nor they for it."""
    dialect.wait_for_turn(connection, TURN)
    state = states(connection).get(day)
    if state is DayState.ATTACHED:
        return
    name, (low, high) = name_of(day), of_day(day)
    if state is DayState.DETACHING:
        connection.exec_driver_sql(f"ALTER TABLE blob DETACH PARTITION {name} FINALIZE")
    if state is not None:
        connection.exec_driver_sql(f"DROP TABLE {name}")
    connection.exec_driver_sql(
        f"CREATE TABLE {name} (LIKE blob INCLUDING CONSTRAINTS INCLUDING DEFAULTS INCLUDING STORAGE)"
    )
    connection.exec_driver_sql(f"ALTER TABLE blob ATTACH PARTITION {name} FOR VALUES FROM ('{low}') TO ('{high}')")


def sweep(days: Days, now_ms: int, keep_ended_ms: int) -> int:
    """Makes the tables that will be needed, and drops those that are not; returns how many. What a crash or another
    sweeper has left half done is done with by a later call. `keep_ended_ms`: the retention; 0: there is none."""
    there = days.look(states)
    today = day_of(now_ms)
    for day in range(today, today + AHEAD + 1):
        if there.get(day) is not DayState.ATTACHED:
            days.transact(partial(make, day=day))
    past = {day: state for day, state in sorted(there.items()) if day <= today - OPEN}
    attached = [day for day, state in past.items() if state is DayState.ATTACHED]
    unneeded = _unneeded(days, attached, now_ms)
    needed = {day for day in attached if day not in unneeded or now_ms - unneeded[day] < UNNEEDED_MS}
    gone = sum(_drop(days, day, state) for day, state in past.items() if day not in needed)
    until = day_of(now_ms - keep_ended_ms) - OVERDUE
    overdue = [day for day in attached if day <= until and day not in unneeded]
    if keep_ended_ms and overdue:
        _empty(days, today, overdue)
    return gone


def _drop(days: Days, day: int, state: DayState) -> bool:
    """Does what is left of it. False: others were in the way, and a later sweep goes on."""
    if state is not DayState.APART:
        how = "FINALIZE" if state is DayState.DETACHING else "CONCURRENTLY"
        if not days.run_alone(f"ALTER TABLE blob DETACH PARTITION {name_of(day)} {how}", PATIENCE_S):
            return False
    return days.run_alone(f"DROP TABLE {name_of(day)}", PATIENCE_S)


def _empty(days: Days, today: int, overdue: Sequence[int]) -> None:
    for _ in range(STEPS):
        if not days.transact(partial(_empty_step, today=today, overdue=overdue)):
            break


def _empty_step(connection: Connection, today: int, overdue: Sequence[int]) -> bool:
    """Looks at the next bodies of these days, and deletes those that nothing leads to; false: those were the last for
    today."""
    stands = msgspec.json.decode(facts.get(connection, EMPTIED) or "{}", type=_Emptied)
    if stands.on != today:
        stands = _Emptied(on=today)
    if stands.ended:
        return False
    found = {"after": max(stands.after, of_day(overdue[0])[0]), "before": of_day(overdue[-1])[1]}
    keys = list(connection.execute(_KEYS, found).scalars())
    inputs = {key: key.split("/", 2)[2].rpartition("/")[0] for key in keys if key.split("/", 2)[1] == "input"}
    batch_ids = sorted(set(inputs.values()))
    there = set(connection.execute(_THERE, {"batch_ids": dialect.many(connection, batch_ids)}).scalars())
    blobs.discard(connection, [key for key, batch_id in inputs.items() if batch_id not in there])
    blobs.discard(connection, [key for key in keys if key not in inputs], unnamed=True)
    ended = len(keys) < STEP
    now = _Emptied(on=today, after=keys[-1] if keys else stands.after, ended=ended)
    facts.put(connection, EMPTIED, msgspec.json.encode(now).decode())
    return not ended


def _unneeded(days: Days, past: Sequence[int], now_ms: int) -> dict[int, int]:
    """Those of these days that nothing leads to, and since when."""

    def look(connection: Connection) -> tuple[dict[int, int], dict[int, int]]:
        known = msgspec.json.decode(facts.get(connection, UNNEEDED) or "{}", type=dict[int, int])
        return known, {day: known.get(day, now_ms) for day in past if not _is_needed(connection, day)}

    known, since = days.look(look)
    if since != known:
        days.transact(lambda connection: facts.put(connection, UNNEEDED, msgspec.json.encode(since).decode()))
    return since


def _is_needed(connection: Connection, day: int) -> bool:
    low, high = of_day(day)
    # Written out, so that each is asked of one day's table.
    asked = _IS_NEEDED.format(low=low, high=high, begin_ms=day * DAY_MS, end_ms=(day + 1) * DAY_MS)
    return bool(connection.exec_driver_sql(asked).scalar_one())
