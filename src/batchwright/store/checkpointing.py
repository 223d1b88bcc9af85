"""A checkpoint: the one transaction in which a worker makes what happened durable.

In this order, so that up to the pauses it touches no row that another worker writes: number, fence, part, results,
tallies and usage, allowances spent; then pauses (of batches whose key has spent its budget too) and claims; last of all
the rows of batches, locked in key order: allowances, gates, settles, turns. A server is sent what belongs together in
one go (`prepared.together`). What a settling segment's result is merged from is read before the transaction begins:
under a valid epoch nobody else adds to it, and a lost one is found by the fence. So is what belongs into an object
store put before it, and the inputs of claimed segments that lie in one are fetched after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from sqlalchemy import Connection, bindparam, select, update

from batchwright.core import row_map
from batchwright.core.errors import BodyLost, ObjectsAway, StoreError, WrongState
from batchwright.core.records import Tally, UsageKey, UsageSum
from batchwright.core.worker_id import WorkerId
from batchwright.ports.store import (
    AllowanceRequest,
    BatchSignals,
    Checkpoint,
    CheckpointResult,
    SegmentChange,
    SegmentKey,
)
from batchwright.store import (
    batches,
    blobs,
    claiming,
    credit,
    fencing,
    funds,
    ledger,
    losing,
    parts,
    signals,
    turning,
)
from batchwright.store.bodies import Bodies, Reader
from batchwright.store.claiming import Claims, Taker
from batchwright.store.fencing import Fenced
from batchwright.store.parts import Merged, Outer
from batchwright.store.prepared import Prepared, StoredRow, together
from batchwright.store.schema import worker

PAUSED_MAX = 64
"""Batches that one checkpoint's claim may pause because something of them is lost; what is left comes with the next."""

_WORKER = select(worker).where(worker.c.name == bindparam("name"), worker.c.incarnation == bindparam("incarnation"))
_NUMBER = Prepared(
    update(worker)
    .where(
        worker.c.name == bindparam("of_name"),
        worker.c.incarnation == bindparam("of_incarnation"),
        worker.c.checkpoint_number == bindparam("before"),
    )
    .values(checkpoint_number=bindparam("number"))
    .returning(worker.c.id, worker.c.dead, worker.c.ended)
)


@dataclass(slots=True)
class _Work:
    """What one checkpoint has found and done so far."""

    worker_id: int
    gone: bool
    """The worker was marked dead or has ended: what it reports is kept, but it gets nothing."""
    batches: dict[str, StoredRow] = field(default_factory=dict)
    fenced: Fenced = field(default_factory=Fenced)
    merged: dict[SegmentKey, Merged] = field(default_factory=dict)
    settling: Counter[str] = field(default_factory=Counter)
    """Segments that this checkpoint ends, by batch: its own, and those that a claim brings to their end."""
    settled: list[str] = field(default_factory=list)
    paused: set[str] = field(default_factory=set)
    """Batches that this checkpoint paused because the budget of their key is spent."""
    key_short: set[str] = field(default_factory=set)
    key_held: set[str] = field(default_factory=set)
    """As in CheckpointResult."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """What was read and put before the transaction."""

    merged: Mapping[SegmentKey, Merged]
    outer: Outer | None
    """The frames of all changes without a result, where they belong outside, in one object with the results; those of
    lost segments stay unnamed."""


def run(bodies: Bodies, checkpoint: Checkpoint) -> CheckpointResult:
    merged = _merge(bodies, checkpoint.segments)
    rest = [(change.key, change.records) for change in checkpoint.segments if change.records]
    outer, merged = parts.put_outside(
        bodies, _part_key(checkpoint), [(key, records) for key, records in rest if key not in merged], merged
    )
    ready = _Ready(merged, outer)
    result, claims = _commit(bodies, checkpoint, ready)
    claimed = claiming.complete(bodies, claims, checkpoint.now_ms)
    return replace(result, claimed=claimed, given_back=len(claims.taken) - len(claimed))


def _commit(bodies: Bodies, checkpoint: Checkpoint, ready: _Ready) -> tuple[CheckpointResult, Claims]:
    for _ in range(PAUSED_MAX):
        try:
            return bodies.transact(partial(_write, checkpoint=checkpoint, ready=ready))
        except BodyLost as lost:
            if not lost.batch_id:
                raise
            losing.pause_for(bodies, lost, checkpoint.now_ms)
    # As if the objects were away: the worker keeps what it has, and the same checkpoint goes on with the next of them.
    raise ObjectsAway(f"What rows need is lost of more than {PAUSED_MAX} batches; each of them is paused and says so.")


def _part_key(checkpoint: Checkpoint) -> str:
    return blobs.part_key(checkpoint.worker, checkpoint.number, checkpoint.now_ms)


def _write(
    connection: Connection, reader: Reader, *, checkpoint: Checkpoint, ready: _Ready
) -> tuple[CheckpointResult, Claims]:
    work = _begin(connection, checkpoint)
    with together(connection):
        work.fenced = fencing.fence(connection, checkpoint.segments, (work.worker_id, checkpoint.number))
        work.settling.update(work.fenced.settling)
        work.merged = {
            change.key: ready.merged[change.key] for change in work.fenced.held if change.key in ready.merged
        }
        _write_part(connection, work, (checkpoint, ready.outer))
        for key, merged in work.merged.items():
            parts.publish(connection, work.fenced.places[key], merged, checkpoint.now_ms)
        _count(connection, work, checkpoint)
    fencing.check(work.fenced)
    _count_lost(connection, work)
    _write_facts(connection, work, checkpoint)
    claims = _claim(connection, work, (checkpoint, reader))
    given = _change_batches(connection, work, (checkpoint, claims))
    result = CheckpointResult(
        lost=frozenset(change.key for change in work.fenced.lost),
        signals=_signals(connection, work, (checkpoint, claims)),
        allowances=given,
        key_short=frozenset(work.key_short),
        key_held=frozenset(work.key_held),
        settled=work.settled,
    )
    return result, claims


def number_of(connection: Connection, who: WorkerId) -> int:
    return int(_worker(connection, who).checkpoint_number)


def _worker(connection: Connection, who: WorkerId) -> StoredRow:
    row = connection.execute(_WORKER, {"name": who.name, "incarnation": who.incarnation}).one_or_none()
    if row is None:
        raise StoreError(f"Worker {who} is not registered in this store.")
    return row


def _merge(bodies: Bodies, changes: Sequence[SegmentChange]) -> dict[SegmentKey, Merged]:
    """Results of the segments that end with this checkpoint, as many as fit the bound of a transaction's blobs."""
    ending = [change for change in changes if change.closed_as is None and not row_map.count_open(change.row_map)]
    merged: dict[SegmentKey, Merged] = {}
    size = sum(len(change.records) for change in changes)
    for change in ending:
        result = None
        with suppress(BodyLost):  # it ends as the list of its parts: this worker's other answers are not held up by it
            result = bodies.look(partial(_merge_one, change=change))
        if result is not None and size - len(change.records) + len(result.packed) <= blobs.MAX_BYTES:
            size += len(result.packed) - len(change.records)
            merged[change.key] = result
    return merged


def _merge_one(connection: Connection, reader: Reader, *, change: SegmentChange) -> Merged | None:
    return parts.merge(connection, change.key, (change.row_map, change.records), reader)


def _begin(connection: Connection, checkpoint: Checkpoint) -> _Work:
    """Takes the number that tells later whether this checkpoint has landed, and finds the batches it speaks of."""
    who = checkpoint.worker
    number = {"before": checkpoint.number - 1, "number": checkpoint.number}
    named = {change.key.batch_id for change in checkpoint.segments}
    named.update(request.batch_id for request in checkpoint.allowances)
    named.update(batch_id for batch_id, _ in checkpoint.pauses)
    with together(connection):
        taken = _NUMBER.later(connection, {"of_name": who.name, "of_incarnation": who.incarnation, **number})
        found = [batches.find_later(connection, batch_id) for batch_id in sorted(named)]
    if not taken.all():
        landed = number_of(connection, who)
        raise WrongState(f"Worker {who} sent checkpoint {checkpoint.number}, but {landed} was the last that landed.")
    (row,) = taken.all()
    work = _Work(worker_id=row.id, gone=bool(row.dead or row.ended))
    work.batches = {row.batch_id: row for one in found for row in one.all()}
    return work


# --------------------------------------------------------------------------------------------- up to the pauses


def _write_part(connection: Connection, work: _Work, what: tuple[Checkpoint, Outer | None]) -> None:
    checkpoint, outer = what
    packed = [
        (work.fenced.places[change.key], change.records)
        for change in work.fenced.held
        if change.records and change.key not in work.merged
    ]
    parts.write(connection, _part_key(checkpoint), packed, outer)


def _count(connection: Connection, work: _Work, checkpoint: Checkpoint) -> None:
    """This worker's own rows."""
    tallies: dict[tuple[str, int], Tally] = {}
    usage: dict[UsageKey, UsageSum] = {}
    for change in work.fenced.held:
        round_ = work.fenced.places[change.key].round
        tallies.setdefault((change.key.batch_id, round_), Tally()).add(change.tally)
        for key, spent in change.usage.items():
            usage.setdefault(key, UsageSum()).add(spent)
    for (batch_id, round_), delta in tallies.items():
        ledger.add_tally(connection, batch_id, (round_, work.worker_id), delta)
    ledger.add_usage(connection, work.worker_id, usage)
    # What a gone worker had drawn is kept for the rows it left in doubt; the claims of its segments deal with it.
    for batch_id, spent_picousd in () if work.gone else checkpoint.spent.items():
        ledger.lower_allowance(connection, batch_id, work.worker_id, spent_picousd)


def _count_lost(connection: Connection, work: _Work) -> None:
    if not work.fenced.lost:
        return
    # A new round begins with what the one before has cost: none may begin between the look and the sum.
    work.batches.update(batches.lock(connection, {change.key.batch_id for change in work.fenced.lost}))
    tallies: dict[tuple[str, int], Tally] = {}
    for change in work.fenced.lost:
        row = work.batches.get(change.key.batch_id)
        if row is not None:
            # Paid for, though its segment is another's now: the cap counts it, the sum of rows does not.
            orphan = tallies.setdefault((row.batch_id, row.round), Tally())
            orphan.orphan_picousd += change.orphan_picousd
            if row.cap_picousd >= 0 and work.gone:
                place = (row.batch_id, work.worker_id)
                moved = ledger.move_to_orphans(connection, place, row.round, change.orphan_picousd)
                orphan.possible_picousd -= moved
            orphan.orphans += sum(spent.answers for spent in change.usage.values())
    for (batch_id, round_), delta in tallies.items():
        ledger.add_tally(connection, batch_id, (round_, work.worker_id), delta)


# ------------------------------------------------------------------------------------------------------ from there on


def _write_facts(connection: Connection, work: _Work, checkpoint: Checkpoint) -> None:
    work.batches.update(batches.lock(connection, {batch_id for batch_id, _ in checkpoint.pauses}))
    for batch_id, fact in checkpoint.pauses:
        row = work.batches.get(batch_id)
        if row is not None and row.phase != "settled" and row.segments_open > work.settling[batch_id]:
            turning.add_pause(connection, batch_id, fact)
    keys = {key.key_id for change in work.fenced.held for key in change.usage}
    drawing = {row.key_id for request in checkpoint.allowances if (row := work.batches.get(request.batch_id))}
    if not drawing <= keys | {""}:
        credit.lock(connection, keys | drawing)  # all at once, in order
    work.paused = credit.pause_spent(connection, keys, work.settling, checkpoint.now_ms)


def _claim(connection: Connection, work: _Work, what: tuple[Checkpoint, Reader]) -> Claims:
    checkpoint, reader = what
    if checkpoint.claim is None or work.gone or checkpoint.claim.limit <= 0:
        return Claims()
    taker = Taker(work.worker_id, checkpoint.number, checkpoint.now_ms, reader)
    return claiming.claim(connection, checkpoint.claim, taker)


def _change_batches(connection: Connection, work: _Work, what: tuple[Checkpoint, Claims]) -> dict[str, int]:
    """Last of all what other workers' checkpoints change too, which wait from here on: a server is sent all of it at
    once. Returns the allowances given."""
    checkpoint, claims = what
    wanted = _to_lock(connection, work, what)
    given: dict[str, int] = {}
    if checkpoint.allowances:  # go by what is locked
        work.batches.update(batches.lock(connection, wanted))
        given, wanted = _allowances(connection, work, checkpoint), set()
    with together(connection):
        locked = batches.lock_later(connection, wanted)
        for batch_id in checkpoint.gate_passed:
            batches.pass_gate(connection, batch_id)
        lowered = [
            turning.lower_later(connection, batch_id, segments)
            for batch_id, segments in sorted(work.settling.items())
            if segments
        ]
        claiming.finish(connection, claims, (work.fenced.given_back, work.fenced.owed))
    if locked is not None:
        work.batches.update((row.batch_id, row) for row in locked.all())
    claiming.check(claims, work.batches)
    settled = [turning.settle_lowered(connection, each, checkpoint.now_ms) for each in lowered]
    work.settled += [batch_id for batch_id in settled if batch_id is not None]
    return given


def _to_lock(connection: Connection, work: _Work, what: tuple[Checkpoint, Claims]) -> set[str]:
    """The batches whose rows the rest of the transaction changes, or whose caps it goes by."""
    checkpoint, claims = what
    for place, result in claims.ended:
        work.settling[place.key.batch_id] += 1
        if result is not None:
            parts.publish(connection, place, result, checkpoint.now_ms)
    wanted = {batch_id for batch_id, segments in work.settling.items() if segments}
    wanted.update(claims.served, checkpoint.gate_passed, (batch_id for batch_id, _ in work.fenced.given_back))
    for request in checkpoint.allowances:
        row = work.batches.get(request.batch_id)
        if request.picousd > 0 and row is not None and row.cap_picousd >= 0:
            wanted.add(request.batch_id)
    return wanted


def _allowances(connection: Connection, work: _Work, checkpoint: Checkpoint) -> dict[str, int]:
    given: dict[str, int] = {}
    for request in checkpoint.allowances:
        row = None if work.gone else work.batches.get(request.batch_id)
        amount = 0
        if row is not None and request.picousd < 0:
            ledger.lower_allowance(connection, request.batch_id, work.worker_id, -request.picousd)
        elif row is not None:
            amount = _draw(connection, work, row, request)
        given[request.batch_id] = given.get(request.batch_id, 0) + amount
    return given


def _draw(connection: Connection, work: _Work, row: StoredRow, request: AllowanceRequest) -> int:
    """As much as the batch's cap and its key's budget leave; 0 where that is less than the minimum."""
    amount, least = request.picousd, max(1, request.minimum_picousd)
    if row.cap_picousd >= 0:
        amount = min(amount, row.cap_picousd - ledger.taken_picousd(connection, row.batch_id, row.round))
    key = funds.of_key(connection, row.key_id) if row.key_id and amount >= least else None
    if key is not None and key.budget_picousd >= 0 and key.left_picousd < amount:
        amount = key.left_picousd
        if amount < least:
            work.key_short.add(row.batch_id)
            if key.holds_back(least):
                work.key_held.add(row.batch_id)
    if amount < least:
        return 0
    ledger.draw_allowance(connection, row.batch_id, work.worker_id, amount)
    return amount


def _signals(connection: Connection, work: _Work, what: tuple[Checkpoint, Claims]) -> dict[str, BatchSignals]:
    checkpoint, claims = what
    named = {change.key.batch_id for change in (*work.fenced.held, *work.fenced.lost)}
    named.update(segment_.key.batch_id for segment_ in claims.taken)
    if checkpoint.claim is not None and checkpoint.claim.batch_id:
        named.add(checkpoint.claim.batch_id)
    rows: list[StoredRow] = []
    for batch_id in sorted(named):
        # What was read at the begin stands, unless this very transaction has changed it.
        unchanged = not checkpoint.pauses and batch_id not in work.settled and batch_id not in work.paused
        row = work.batches.get(batch_id) if unchanged else None
        row = row or batches.find(connection, batch_id)
        if row is not None:
            rows.append(row)
    return signals.of_rows(connection, rows)
