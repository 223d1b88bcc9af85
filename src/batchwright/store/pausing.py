"""What stands still, and what lets it go on: pause facts of batches, lanes paused for good or by a person, caps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, select, text, update

from batchwright.core.batch_spec import LaneKey, split_lane
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.quarantine import Quarantine
from batchwright.ports.fleet import LanePause
from batchwright.store import batches, dialect, ledger
from batchwright.store.prepared import Prepared
from batchwright.store.schema import OF_LANES, batch, lane_pause, pause, pick, quarantine

_ADD = dialect.insert_or_keep(pause)
_OF_BATCH = select(pause).where(pause.c.batch_id == bindparam("batch_id")).order_by(pause.c.since_ms, pause.c.cause)
_OF_ALL = select(pause).order_by(pause.c.since_ms, pause.c.batch_id, pause.c.cause).limit(bindparam("at_most"))
_DELETE_CAUSE = delete(pause).where(pause.c.batch_id == bindparam("of_batch"), pause.c.cause == bindparam("of_cause"))
# By the claims' own table, which has a row for each set of lanes of a batch and not for each of its segments.
_BY_LANES = (
    select(pause.c.batch_id, pause.c.lane, pick.c.lane_set)
    .outerjoin_from(pause, pick, pick.c.batch_id == pause.c.batch_id)
    .where(text(OF_LANES))
    .order_by(pause.c.batch_id)
)
_SET_QUARANTINE = dialect.insert_or_replace(quarantine, ("reason", "since_ms"))
_LIFT_QUARANTINE = delete(quarantine).where(
    quarantine.c.vendor == bindparam("of_vendor"), quarantine.c.model == bindparam("of_model")
)
_QUARANTINES = Prepared(select(quarantine).order_by(quarantine.c.vendor, quarantine.c.model))
_SET_LANE = dialect.insert_or_replace(lane_pause, ("reason", "since_ms", "probe_at_ms"))
_DELETE_LANE = delete(lane_pause).where(lane_pause.c.lane == bindparam("of_lane"))
_LANES = select(lane_pause).order_by(lane_pause.c.lane)
_SET_CAP = (
    update(batch)
    .where(batch.c.batch_id == bindparam("of_batch"))
    .values(cap_picousd=bindparam("cap"), cap_soft=bindparam("soft"))
)


def add_fact(connection: Connection, batch_id: str, fact: Pause) -> int:
    """The first fact of a cause stands. Returns how many facts the batch has now; 0: it had one of that cause."""
    values = {
        "batch_id": batch_id,
        "cause": fact.cause.value,
        "reason": fact.reason,
        "since_ms": fact.since_ms,
        "lane": fact.lane,
    }
    batches.lock(connection, (batch_id,))  # two facts at once would each be counted alone
    if not connection.execute(_ADD, values).rowcount:
        return 0
    return batches.recount_pauses(connection, batch_id)


def resume_batch(connection: Connection, batch_id: str, causes: frozenset[PauseCause]) -> None:
    batches.get_locked(connection, batch_id)
    for cause in sorted(causes):
        connection.execute(_DELETE_CAUSE, {"of_batch": batch_id, "of_cause": cause.value})
    batches.recount_pauses(connection, batch_id)
    dialect.wake_others(connection)


def facts_of(connection: Connection, batch_id: str) -> tuple[Pause, ...]:
    """A batch's pause facts, the oldest first."""
    return tuple(_fact(row) for row in connection.execute(_OF_BATCH, {"batch_id": batch_id}))


def batch_pauses(connection: Connection, limit: int) -> list[tuple[str, Pause]]:
    return [(row.batch_id, _fact(row)) for row in connection.execute(_OF_ALL, {"at_most": limit})]


def _fact(row: Row[Any]) -> Pause:
    return Pause(cause=PauseCause(row.cause), reason=row.reason, since_ms=row.since_ms, lane=row.lane)


def pause_lane(connection: Connection, fact: LanePause) -> None:
    values = {
        "lane": fact.lane,
        "reason": fact.reason,
        "since_ms": fact.since_ms,
        "probe_at_ms": fact.probe_at_ms,
    }
    connection.execute(_SET_LANE, values)


def clear_lane(connection: Connection, lane: str) -> None:
    connection.execute(_DELETE_LANE, {"of_lane": lane})
    release_lane(connection, lane)


def release_lane(connection: Connection, lane: str) -> None:
    reads = split_lane(lane)[0]
    _release(connection, lambda named, texts: named == lane or reads in texts)


def _release(connection: Connection, concerns: Callable[[str, list[str]], bool]) -> None:
    """Lets batches go on that wait for lanes, where that is so of the lane their pause names and of the lanes that they
    had rows for. A fact names one lane, and a batch may wait for others as well: one that goes on in vain is paused
    again by the worker that finds it so."""
    rows = connection.execute(_BY_LANES).all()
    found = dict.fromkeys(row.batch_id for row in rows if concerns(row.lane, (row.lane_set or "").split("\n")))
    for batch_id in found:
        resume_batch(connection, batch_id, frozenset({PauseCause.LANE}))


def set_quarantine(connection: Connection, fact: Quarantine) -> None:
    values = {"vendor": fact.vendor, "model": fact.model, "reason": fact.reason, "since_ms": fact.since_ms}
    connection.execute(_SET_QUARANTINE, values)
    dialect.wake_others(connection)


def lift_quarantine(connection: Connection, vendor: str, model: str) -> bool:
    if not connection.execute(_LIFT_QUARANTINE, {"of_vendor": vendor, "of_model": model}).rowcount:
        return False
    release_lanes(connection, vendor, model)
    dialect.wake_others(connection)
    return True


def release_lanes(connection: Connection, vendor: str, model: str) -> None:
    opened = Quarantine(vendor=vendor, model=model, reason="", since_ms=0)

    def concerns(named: str, texts: list[str]) -> bool:
        lanes = (split_lane(named)[0], *texts)
        return any(opened.covers(LaneKey.parse(lane)) for lane in lanes if lane)

    _release(connection, concerns)


def quarantines(connection: Connection) -> list[Quarantine]:
    return [
        Quarantine(vendor=row.vendor, model=row.model, reason=row.reason, since_ms=row.since_ms)
        for row in _QUARANTINES.all(connection, {})
    ]


def lane_pauses(connection: Connection) -> list[LanePause]:
    return [
        LanePause(lane=row.lane, reason=row.reason, since_ms=row.since_ms, probe_at_ms=row.probe_at_ms)
        for row in connection.execute(_LANES)
    ]


def set_cap(connection: Connection, batch_id: str, max_cost_picousd: int, soft: bool) -> None:
    row = batches.get_unsettled(connection, batch_id, "given another cap")
    connection.execute(_SET_CAP, {"of_batch": batch_id, "cap": max_cost_picousd, "soft": int(soft)})
    if max_cost_picousd < 0 or ledger.taken_picousd(connection, batch_id, row.round) < max_cost_picousd:
        resume_batch(connection, batch_id, frozenset({PauseCause.BUDGET}))
