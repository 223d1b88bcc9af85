"""Workers: a heartbeat row each, which is the lease of every segment they hold and of their shares of lanes' limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, bindparam, func, select, text, update

from batchwright.core import row_map
from batchwright.core.batch_spec import LaneKey
from batchwright.core.lane_wait import LaneWait, WaitCause
from batchwright.core.quarantine import covering
from batchwright.core.shares import LaneUse, grants, heard_lately
from batchwright.core.worker_id import WorkerId
from batchwright.core.worker_state import NOTHING_TOLD, WorkerState
from batchwright.ports.fleet import FleetRow, Heard, WorkerRow
from batchwright.store import backlog, dialect, ledger, pausing
from batchwright.store.prepared import Prepared
from batchwright.store.schema import HAS_HOLDER, LIVES, segment, worker

_ADD = dialect.insert_or_keep(worker)
# Locked, as its own checkpoints lock it: whoever takes a worker for dead waits for one that is on its way.
_OLDER = (
    select(worker)
    .where(
        worker.c.name == bindparam("name"),
        worker.c.incarnation != bindparam("incarnation"),
        text(LIVES),
    )
    .order_by(worker.c.id)
    .with_for_update()
)
_ONE = (
    select(worker)
    .where(
        worker.c.name == bindparam("name"),
        worker.c.incarnation == bindparam("incarnation"),
        text(LIVES),
    )
    .with_for_update()
)
_ID = select(worker.c.id).where(worker.c.name == bindparam("name"), worker.c.incarnation == bindparam("incarnation"))
_LIVE = select(worker).where(text(LIVES)).order_by(worker.c.id)
_WAITS = Prepared(select(worker.c.waits).where(text(LIVES), text("waits <> ''")))
_BEAT = (
    update(worker)
    .where(
        worker.c.name == bindparam("of_name"),
        worker.c.incarnation == bindparam("of_incarnation"),
        text(LIVES),
    )
    .values(
        heartbeat_ms=bindparam("now_ms"),
        note=bindparam("new_note"),
        lanes=bindparam("new_lanes"),
        waits=bindparam("new_waits"),
        state=bindparam("new_state"),
    )
    .returning(worker.c.draining)
)
_SET_DRAINING = (
    update(worker)
    .where(
        worker.c.name == bindparam("of_name"),
        worker.c.incarnation == bindparam("of_incarnation"),
        text(LIVES),
    )
    .values(draining=bindparam("wanted"))
)
_WISHES = Prepared(
    select(worker.c.draining).where(
        worker.c.name == bindparam("of_name"),
        worker.c.incarnation == bindparam("of_incarnation"),
        text(LIVES),
    )
)
_HELD = (
    select(segment.c.holder, func.count().label("segments"))
    .where(text(HAS_HOLDER), text("state = 'held'"))
    .group_by(segment.c.holder)
)
_SET_GONE = (
    update(worker)
    .where(worker.c.id == bindparam("of_id"))
    .values(dead=bindparam("is_dead"), ended=bindparam("has_ended"))
)
_LET_GO = (
    update(segment)
    .where(segment.c.holder == bindparam("of_id"), text(HAS_HOLDER), text("state = 'held'"))
    .values(
        state="waiting",
        # The epoch rises with the loss, not with the next claim: what the worker still sends must not land in between.
        epoch=segment.c.epoch + 1,
        deaths=segment.c.deaths + bindparam("death"),
        lost_alone=0,
        rank=segment.c.number - bindparam("ahead"),
    )
    .returning(segment.c.batch_id, segment.c.number, segment.c.lane_set, segment.c.row_map)
)
_LOST_ALONE = (
    update(segment)
    .where(segment.c.batch_id == bindparam("of_batch"), segment.c.number == bindparam("of_number"))
    .values(lost_alone=1)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """A heartbeat, as in `ports.fleet`."""

    worker: WorkerId
    now_ms: int
    note: str
    uses: Sequence[LaneUse]
    waits: Sequence[LaneWait]
    state: WorkerState


def register(connection: Connection, who: WorkerId, *, host: str, pid: int, now_ms: int, state: WorkerState) -> None:
    """Older incarnations of the name are dead from here on."""
    dialect.wait_for_turn(connection, f"worker {who.name}")  # two incarnations at once would not see each other
    for row in connection.execute(_OLDER, {"name": who.name, "incarnation": who.incarnation}).all():
        _mark_dead(connection, row)
    values = {
        "name": who.name,
        "incarnation": who.incarnation,
        "host": host,
        "pid": pid,
        "started_at_ms": now_ms,
        "heartbeat_ms": now_ms,
        "state": _packed_state(state),
        "draining": int(state.drained),
    }
    connection.execute(_ADD, values)


def id_of(connection: Connection, who: WorkerId) -> int:
    """Of a worker that was registered, whatever became of it."""
    return int(connection.execute(_ID, {"name": who.name, "incarnation": who.incarnation}).scalar_one())


def heartbeat(connection: Connection, told: Telling) -> Heard | None:
    who, now_ms, uses = told.worker, told.now_ms, told.uses
    shares_ppm: dict[str, int] = {}
    if any(use.demand for use in uses):
        shares_ppm = _grants(connection, who, now_ms, uses)
        uses = tuple(msgspec.structs.replace(use, share_ppm=shares_ppm.get(use.lane, 0)) for use in uses)
    values = {
        "of_name": who.name,
        "of_incarnation": who.incarnation,
        "now_ms": now_ms,
        "new_note": told.note,
        "new_lanes": _packed(uses),
        "new_waits": _packed(told.waits),
        "new_state": _packed_state(told.state),
    }
    row = connection.execute(_BEAT, values).one_or_none()
    if row is None:
        return None
    quarantines = tuple(pausing.quarantines(connection))
    return Heard(shares_ppm=shares_ppm, draining=bool(row.draining), quarantines=quarantines)


def _grants(connection: Connection, who: WorkerId, now_ms: int, uses: Sequence[LaneUse]) -> dict[str, int]:
    """What it may use of the lanes' limits beside the others that were heard of lately. One worker after another: two
    that raised their shares at once would not see each other. Who comes while another is at it keeps what it has, which
    is in what it told before, and asks again with its next heartbeat."""
    first = bool(dialect.try_turns(connection, ["shares of lanes"]))
    lately = [row for row in live(connection) if heard_lately(row.heartbeat_ms, now_ms)]
    if all(row.worker != who for row in lately):
        # Its shares ran out before anybody could hear of it again; others may have taken them for free.
        uses = [msgspec.structs.replace(use, share_ppm=0) for use in uses]
    if not first:
        return {use.lane: use.share_ppm for use in uses if use.demand}
    return grants(uses, (use for row in lately if row.worker != who for use in row.uses))


def set_draining(connection: Connection, who: WorkerId, *, wanted: bool) -> bool:
    values = {"of_name": who.name, "of_incarnation": who.incarnation, "wanted": int(wanted)}
    lives = connection.execute(_SET_DRAINING, values).rowcount > 0
    dialect.wake_others(connection)
    return lives


def wishes(connection: Connection, who: WorkerId) -> Heard | None:
    row = _WISHES.first(connection, {"of_name": who.name, "of_incarnation": who.incarnation})
    if row is None:
        return None
    return Heard(draining=bool(row.draining), quarantines=tuple(pausing.quarantines(connection)))


def fleet(connection: Connection) -> FleetRow:
    rows = connection.execute(_LIVE).all()
    held = {row.holder: int(row.segments) for row in connection.execute(_HELD)}
    names = {row.id: WorkerId(row.name, row.incarnation) for row in rows}
    return FleetRow(
        workers=tuple(_row(row) for row in rows),
        segments={names[holder]: segments for holder, segments in held.items() if holder in names},
        pauses=tuple(pausing.lane_pauses(connection)),
        quarantines=tuple(pausing.quarantines(connection)),
    )


def end(connection: Connection, who: WorkerId) -> None:
    row = _find_live(connection, who)
    if row is None:
        return
    connection.execute(_SET_GONE, {"of_id": row.id, "is_dead": 0, "has_ended": 1})
    _let_go(connection, row.id, death=0)


def mark_dead(connection: Connection, whom: Sequence[WorkerId]) -> int:
    segments = 0
    for who in whom:
        row = _find_live(connection, who)
        if row is not None:
            segments += _mark_dead(connection, row)
    return segments


def live(connection: Connection) -> list[WorkerRow]:
    return [_row(row) for row in connection.execute(_LIVE)]


def _row(row: Row[Any]) -> WorkerRow:
    return WorkerRow(
        worker=WorkerId(row.name, row.incarnation),
        host=row.host,
        pid=row.pid,
        started_at_ms=row.started_at_ms,
        heartbeat_ms=row.heartbeat_ms,
        note=row.note,
        uses=msgspec.json.decode(row.lanes, type=tuple[LaneUse, ...]) if row.lanes else (),
        waits=_waits_of(row.waits),
        state=msgspec.json.decode(row.state, type=WorkerState) if row.state else NOTHING_TOLD,
        draining=bool(row.draining),
    )


def _packed(told: Sequence[LaneUse] | Sequence[LaneWait]) -> str:
    return msgspec.json.encode(told).decode() if told else ""


def _packed_state(state: WorkerState) -> str:
    return msgspec.json.encode(state).decode() if state != NOTHING_TOLD else ""


def waits(connection: Connection) -> tuple[LaneWait, ...]:
    """What holds lanes back, as live workers tell it, the longest first. A lane that a person has opened again is none
    of them from then on, though its workers may not have heard of it yet."""
    told = [wait for row in _WAITS.all(connection, {}) for wait in _waits_of(row.waits)]
    if any(wait.cause is WaitCause.QUARANTINED for wait in told):
        closed = pausing.quarantines(connection)
        told = [
            wait
            for wait in told
            if wait.cause is not WaitCause.QUARANTINED or covering(closed, LaneKey.parse(wait.lane_text))
        ]
    return tuple(sorted(told, key=_since))


def _waits_of(packed: str) -> tuple[LaneWait, ...]:
    return msgspec.json.decode(packed, type=tuple[LaneWait, ...]) if packed else ()


def _since(wait: LaneWait) -> int:
    return wait.since_ms


def _find_live(connection: Connection, who: WorkerId) -> Row[Any] | None:
    return connection.execute(_ONE, {"name": who.name, "incarnation": who.incarnation}).one_or_none()


def _mark_dead(connection: Connection, row: Row[Any]) -> int:
    connection.execute(_SET_GONE, {"of_id": row.id, "is_dead": 1, "has_ended": 0})
    return _let_go(connection, row.id, death=1)


def _let_go(connection: Connection, worker_id: int, *, death: int) -> int:
    ahead = death * backlog.LOST_FIRST
    rows = connection.execute(_LET_GO, {"of_id": worker_id, "death": death, "ahead": ahead}).all()
    backlog.change_waiting(connection, Counter((row.batch_id, row.lane_set) for row in rows))
    out = {(row.batch_id, row.number): row.row_map.count(row_map.RESERVED) for row in rows}
    if death and sum(out.values()) == 1:
        ((batch_id, number),) = (key for key, reserved in out.items() if reserved)
        connection.execute(_LOST_ALONE, {"of_batch": batch_id, "of_number": number})
    ledger.clear_allowances(connection, worker_id)
    return len(rows)
