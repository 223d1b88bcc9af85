"""Claims: the last-but-one step of a checkpoint's transaction.

Over all batches, accounts come in the order of what they were served (`store.fair_order`), and an account's batches
take turns; within a batch a segment that was lost with its worker comes first, then the oldest. A claim reads a few
rows by index: neither a backlog, nor a batch that stands still, nor accounts whose turn is later cost anything. A claim
from one batch alone, as `run` makes, is nobody's turn and is charged to nobody.

Rows that a lost lease left in doubt are dealt with in the same transaction (`store.resolving`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import Connection, bindparam, func, select, text, update

from batchwright.core import fair_share, row_map
from batchwright.core.doubt import Resolution, suspects
from batchwright.core.errors import BodyLost, ObjectsAway
from batchwright.core.records import Record, SegmentInput, Tally
from batchwright.ports.store import ClaimedSegment, ClaimRequest, SegmentKey
from batchwright.store import backlog, inputs, ledger, losing, parts, queueing
from batchwright.store.blobs import Span
from batchwright.store.bodies import Bodies, Outside, Reader
from batchwright.store.connections import TryAgain
from batchwright.store.fair_order import Candidate, FairOrder
from batchwright.store.folding import bases, fold
from batchwright.store.parts import Frame, Merged, Place
from batchwright.store.prepared import Prepared, StoredRow
from batchwright.store.queueing import Served
from batchwright.store.resolving import resolve_doubt, settle_doubt, window_of
from batchwright.store.schema import PARKED, PICKABLE, WAITING, pick, segment
from batchwright.wire import frames

FIRST_EPOCH = 1
"""Of a segment's first claim."""
UNPARK_AT_MOST = 256
"""Parked segments whose moment has come that one claim moves to the waiting ones."""

_DUE = Prepared(
    select(segment.c.batch_id, segment.c.number, segment.c.lane_set)
    .where(text(PARKED), segment.c.not_before_ms <= bindparam("now_ms"))
    .order_by(segment.c.not_before_ms)
    .limit(UNPARK_AT_MOST)
    .with_for_update(skip_locked=True)
)
_UNPARK = (
    update(segment)
    .where(segment.c.batch_id == bindparam("of_batch"), segment.c.number == bindparam("of_number"))
    .values(state="waiting", not_before_ms=0)
)
_PICKS_OF_ONE = Prepared(
    select(pick.c.batch_id, pick.c.lane_set).where(pick.c.batch_id == bindparam("batch_id"), text(PICKABLE))
)
_FIRST_RANK = (
    select(func.min(segment.c.rank))
    .where(segment.c.batch_id == pick.c.batch_id, segment.c.lane_set == pick.c.lane_set, text(WAITING))
    .correlate(pick)
    .scalar_subquery()
)
_HEADS = Prepared(
    select(pick.c.lane_set, segment.c.rank)
    .join_from(pick, segment, (segment.c.batch_id == pick.c.batch_id) & (segment.c.lane_set == pick.c.lane_set))
    .where(pick.c.batch_id == bindparam("batch_id"), pick.c.waiting > 0, text(WAITING), segment.c.rank == _FIRST_RANK)
)
_CREATED = (
    select(pick.c.created_at_ms)
    .where(pick.c.batch_id == bindparam("batch_id"), pick.c.lane_set == bindparam("lanes"))
    .scalar_subquery()
)
IN_DOUBT_MAX = 8
"""Segments in doubt whose bodies lie outside, in one claim: the transaction is begun anew for each of them, and only so
often (`bodies.ROUNDS`). Those that are left are claimed with the next checkpoint."""
# One that another worker takes at this moment is passed over: two never wait for the same segment.
_HEAD = Prepared(
    select(
        segment.c.lane_set,
        segment.c.number,
        segment.c.input_bytes,
        segment.c.holder,
        segment.c.open,
        func.length(segment.c.row_map).label("rows"),
        segment.c.charged,
        segment.c.weight,
        _CREATED.label("created_at_ms"),
    )
    .where(segment.c.batch_id == bindparam("batch_id"), segment.c.lane_set == bindparam("lanes"), text(WAITING))
    .order_by(segment.c.rank)
    .limit(1)
    .with_for_update(skip_locked=True)
)
_TAKE = Prepared(
    update(segment)
    # It waits, and is locked since it was looked at.
    .where(segment.c.batch_id == bindparam("of_batch"), segment.c.number == bindparam("of_number"))
    .values(
        state="held",
        holder=bindparam("taker"),
        epoch=segment.c.epoch + 1,
        rank=segment.c.number,
        charged=bindparam("tokens"),
        weight=bindparam("by_weight"),
    )
    .returning(segment)
)
_GIVE_BACK = (
    update(segment)
    .where(
        segment.c.batch_id == bindparam("of_batch"),
        segment.c.number == bindparam("of_number"),
        segment.c.epoch == bindparam("of_epoch"),
        text("state = 'held'"),
    )
    .values(state="waiting", holder=0)
)


@dataclass(frozen=True, slots=True)
class Known:
    """What a segment's blobs say."""

    in_round: dict[int, Record]
    previous: dict[int, Record]
    """Of each row reopened in this round, as at the end of the one before."""
    input: SegmentInput


@dataclass(frozen=True, slots=True)
class Taken:
    """A segment that was taken, with what it holds unless that lies outside."""

    row: StoredRow
    resolution: Resolution | None
    known: Known | None
    created_at_ms: int
    """Of the batch."""

    @property
    def key(self) -> SegmentKey:
        return SegmentKey(self.row.batch_id, self.row.number)


@dataclass(slots=True)
class Claims:
    """What a claim did: segments taken, and segments that resolving their doubt brought to an end."""

    taken: list[Taken] = field(default_factory=list)
    ended: list[tuple[Place, Merged | None]] = field(default_factory=list)
    bytes: int = 0
    in_doubt: int = 0
    """Segments whose doubt was resolved with what lies outside: the transaction was begun anew for each."""
    served: set[str] = field(default_factory=set)
    """The batches."""
    fewer: backlog.Waiting = field(default_factory=Counter)
    """What waits no more; `finish` says so."""
    order: FairOrder | None = None
    """Whose turns they were; None: they came from one batch alone."""


@dataclass(frozen=True, slots=True)
class Taker:
    worker_id: int
    number: int
    """Of the checkpoint."""
    now_ms: int
    reader: Reader


def claim(connection: Connection, request: ClaimRequest, taker: Taker) -> Claims:
    """Takes segments. What is left to do (`finish`) touches rows that every worker's claims touch."""
    _unpark(connection, taker.now_ms)
    claims = Claims()
    if request.batch_id:
        _claim_of_one(connection, claims, (request, taker))
        return claims
    claims.order = FairOrder(connection, request, taker.now_ms)
    while len(claims.taken) < request.limit:
        candidate = claims.order.next()
        if candidate is None:
            break
        head = _head(connection, candidate.batch_id, candidate.lane_sets)
        if head is None:
            claims.order.passed(candidate)
            continue
        if _is_too_much(claims, request, head):
            break
        _take_in_turn(connection, claims, (candidate, head, taker))
    return claims


def finish(connection: Connection, claims: Claims, what: tuple[backlog.Waiting, Counter[str]]) -> None:
    """Writes what the claims mean for their batches, whose rows are locked by now, and accounts. `what` is (what waits
    since segments were given back, by how much virtual time of which accounts the estimates were wrong)."""
    given_back, owed = what
    changes = given_back.copy()
    changes.update(claims.fewer)
    order = claims.order
    backlog.change_waiting(connection, changes, order.turns if order is not None else None)
    served = {} if order is None else order.served
    for account, virtual in owed.items():
        served.setdefault(account, Served()).virtual += virtual
    queueing.charge(connection, served)
    if order is not None:
        queueing.rest(connection, order.vain)
        queueing.fill(connection, order.full)


def check(claims: Claims, locked: Mapping[str, StoredRow]) -> None:
    """Raises TryAgain where a batch was paused, closed or ended while it was claimed from."""
    for batch_id in claims.served:
        row = locked.get(batch_id)
        if row is None or row.phase != "open" or row.closing or row.paused:
            raise TryAgain


def _unpark(connection: Connection, now_ms: int) -> None:
    due = _DUE.all(connection, {"now_ms": now_ms})
    if due:
        connection.execute(_UNPARK, [{"of_batch": row.batch_id, "of_number": row.number} for row in due])
        backlog.change_waiting(connection, Counter((row.batch_id, row.lane_set) for row in due))


def _claim_of_one(connection: Connection, claims: Claims, what: tuple[ClaimRequest, Taker]) -> None:
    request, taker = what
    lane_sets = {
        row.lane_set
        for row in _PICKS_OF_ONE.all(connection, {"batch_id": request.batch_id})
        if not _left_alone(request, row.batch_id, row.lane_set)
    }
    while lane_sets and len(claims.taken) < request.limit:
        head = _head(connection, request.batch_id, lane_sets)
        if head is None or _is_too_much(claims, request, head):
            break
        _take(connection, claims, (request.batch_id, head, taker), charged=(0, 0))
        _note_taken(claims, request.batch_id, head)


def _take_in_turn(connection: Connection, claims: Claims, what: tuple[Candidate, StoredRow, Taker]) -> None:
    candidate, head, taker = what
    assert claims.order is not None
    tokens = fair_share.estimate_tokens(head.input_bytes, rows=head.rows, open_rows=head.open)
    # A worker that was lost with the segment has left the charge for it behind.
    given = fair_share.charge(head.charged, head.weight) if head.weight else 0
    if not _take(connection, claims, (candidate.batch_id, head, taker), charged=(tokens, candidate.weight)):
        tokens = given = 0  # its rows were in doubt, and have ended so: what it was charged before is what they used
    claims.order.took(candidate, tokens, given=given)
    _note_taken(claims, candidate.batch_id, head)


def _note_taken(claims: Claims, batch_id: str, head: StoredRow) -> None:
    claims.fewer[batch_id, head.lane_set] -= 1
    claims.served.add(batch_id)


def _is_too_much(claims: Claims, request: ClaimRequest, head: StoredRow) -> bool:
    if claims.in_doubt >= IN_DOUBT_MAX:
        return True
    return bool(claims.taken) and 0 < request.max_bytes < claims.bytes + head.input_bytes


def _left_alone(request: ClaimRequest, batch_id: str, lane_set: str) -> bool:
    if (batch_id, lane_set) in request.exclude:
        return True
    return request.is_full(lane_set)


def _head(connection: Connection, batch_id: str, lane_sets: Set[str]) -> StoredRow | None:
    """The batch's first waiting segment that can send and is nobody's now (its lane_set, number, input_bytes, last
    holder)."""
    in_order = list(lane_sets)
    if len(in_order) > 1:
        ranks = {row.lane_set: row.rank for row in _HEADS.all(connection, {"batch_id": batch_id})}
        in_order = sorted(lane_sets & ranks.keys(), key=lambda lanes: (ranks[lanes], lanes))
    for lanes in in_order:
        head = _HEAD.first(connection, {"batch_id": batch_id, "lanes": lanes})
        if head is not None:
            return head
    return None


def _take(
    connection: Connection, claims: Claims, what: tuple[str, StoredRow, Taker], *, charged: tuple[int, int]
) -> bool:
    """`what` is (the batch, what `_head` found of it, who takes it), `charged` (tokens, weight). False: it came to its
    end with the doubt it was in. Raises Outside, and BodyLost with the batch named."""
    try:
        return _take_whole(connection, claims, what, charged=charged)
    except BodyLost as lost:
        raise BodyLost(str(lost), what[0]) from lost


def _take_whole(
    connection: Connection, claims: Claims, what: tuple[str, StoredRow, Taker], *, charged: tuple[int, int]
) -> bool:
    batch_id, head, taker = what
    key, lost_with = SegmentKey(batch_id, head.number), head.holder
    of = {"of_batch": key.batch_id, "of_number": key.number}
    row = _TAKE.first(connection, {**of, "taker": taker.worker_id, "tokens": charged[0], "by_weight": charged[1]})
    assert row is not None, "a segment that waits is there to be taken"
    known: Known | None = None
    resolution = None
    if row_map.RESERVED in row.row_map:
        # Rare, and it decides what is written: where it lies outside the transaction begins anew with it.
        claims.in_doubt += taker.reader.goes_outside
        known = _read(connection, (row, head.created_at_ms), taker.reader)
        resolution = resolve_doubt(connection, row, (known.input, bases(known.in_round, known.previous)))
        tally = resolution.tally
        tally.possible_picousd = ledger.charge_doubt(connection, key.batch_id, lost_with, tally.possible_picousd)
        place = Place(key, row.round, row.epoch, taker.number)
        settle_doubt(connection, place, (resolution, row, taker.worker_id, taker.now_ms))
        known.in_round.update({record.row: record for record in resolution.records})
        if not row_map.count_open(resolution.row_map):
            claims.ended.append((place, _merge(connection, key, (resolution.row_map, taker.reader))))
            return False
    else:
        if lost_with:
            ledger.charge_doubt(connection, key.batch_id, lost_with, 0)
        with suppress(Outside):  # fetched by `complete`, after the commit
            known = _read(connection, (row, head.created_at_ms), taker.reader)
    claims.bytes += row.input_bytes
    claims.taken.append(Taken(row, resolution, known, head.created_at_ms))
    return True


def _merge(connection: Connection, key: SegmentKey, what: tuple[bytes, Reader]) -> Merged | None:
    """`what` is (the ended segment's row map, the reader). With an object store it stays the list of its parts: a
    result could not be put before this transaction."""
    row_map_, reader = what
    return None if reader.goes_outside else parts.merge(connection, key, (row_map_, b""), reader)


def _read(connection: Connection, what: tuple[StoredRow, int], reader: Reader) -> Known:
    """`what` is (the segment's row, when its batch was created). Raises Outside, BodyLost."""
    row, created_at_ms = what
    key = SegmentKey(row.batch_id, row.number)
    untouched = row.epoch == FIRST_EPOCH and row.open == len(row.row_map)
    stored = [] if untouched else parts.find(connection, key)
    packed = inputs.find(connection, key, created_at_ms)
    reader.need([packed, *(frame for _, frame in stored)])  # all in one go
    found = parts.open_found(stored, reader)
    return Known(
        in_round=frames.last_records(parts.of_round(found, row.round)),
        previous=_previous(row, found),
        input=inputs.unpack(connection, packed, reader),
    )


def complete(bodies: Bodies, claims: Claims, now_ms: int) -> list[ClaimedSegment]:
    """The claimed segments, once the claim has been committed, with what lies outside. Where the object store does not
    answer those that lie there are given back: whoever asks next takes them. Where something of one is lost its batch
    is paused, and those of the others are claimed."""
    outside = [taken for taken in claims.taken if taken.known is None]
    fetched: dict[SegmentKey, Known] = {}
    left = outside
    while left:
        try:
            fetched = bodies.look(partial(_read_all, taken=left))
        except BodyLost as lost:
            losing.pause_for(bodies, lost, now_ms)
            left = [taken for taken in left if taken.row.batch_id != lost.batch_id]
            continue
        except ObjectsAway:
            pass
        break
    if unread := [taken.row for taken in outside if taken.key not in fetched]:
        bodies.connections.transact(partial(_give_back, rows=unread))
    return [
        _claimed(taken.row, known, taken.resolution)
        for taken in claims.taken
        if (known := taken.known or fetched.get(taken.key)) is not None
    ]


def _read_all(connection: Connection, reader: Reader, *, taken: Sequence[Taken]) -> dict[SegmentKey, Known]:
    """Raises Outside, for all of them in one go, and BodyLost with the batch named."""
    lacking: list[Span] = []
    known: dict[SegmentKey, Known] = {}
    for each in taken:
        try:
            known[each.key] = _read(connection, (each.row, each.created_at_ms), reader)
        except Outside as outside:
            lacking += outside.spans
        except BodyLost as lost:
            raise BodyLost(str(lost), each.row.batch_id) from lost
    if lacking:
        raise Outside(lacking)
    return known


def _give_back(connection: Connection, *, rows: Sequence[StoredRow]) -> None:
    waiting: backlog.Waiting = Counter()
    for row in sorted(rows, key=lambda row: (row.batch_id, row.number)):
        mine = {"of_batch": row.batch_id, "of_number": row.number, "of_epoch": row.epoch}
        if connection.execute(_GIVE_BACK, mine).rowcount:
            waiting[row.batch_id, row.lane_set] += 1
    backlog.change_waiting(connection, waiting)


def _previous(row: StoredRow, found: list[Frame]) -> dict[int, Record]:
    """The record that each row reopened in this round had at the end of the one before."""
    if row.previous_map is None:
        return {}
    records = fold(parts.before_round(found, row.round), row.previous_map)
    return {number: record for number, record in records.items() if row.previous_map[number]}


def _claimed(row: StoredRow, known: Known, resolution: Resolution | None) -> ClaimedSegment:
    in_round = known.in_round
    new_map = row.row_map if resolution is None else resolution.row_map
    window = window_of(row, resolution)
    if resolution is not None:
        first = resolution.first
    else:
        # A holder that gave the segment back before it had an outcome leaves the doubt as it was.
        first = tuple(
            number
            for number, record in in_round.items()
            if record.doubts and (window or record.deaths) and new_map[number] == row_map.PENDING
        )
    return ClaimedSegment(
        key=SegmentKey(row.batch_id, row.number),
        epoch=row.epoch,
        round=row.round,
        first_index=row.first_index,
        row_map=new_map,
        previous_map=row.previous_map,
        previous_records=known.previous,
        records=in_round,
        input=known.input,
        input_bytes=row.input_bytes,
        first=first,
        window=window,
        suspects=suspects(first, in_round),
        lane_set=row.lane_set,
        resolved=Tally() if resolution is None else resolution.tally,
    )
