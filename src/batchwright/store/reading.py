"""Readers: batches with their sums, segments as they count, usage, rows by custom id. Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, bindparam, exists, func, select, text

from batchwright.core import row_map
from batchwright.core.batch_state import BatchFacts
from batchwright.core.failures import FailureKind
from batchwright.core.identity import CUSTOM_ID_HASH_BYTES, hash_custom_id
from batchwright.core.lane_wait import LaneWait
from batchwright.core.records import InputRow, SegmentInput, UsageKey, UsageSum
from batchwright.core.tenants import Tenant
from batchwright.ports.store import BatchRow, SegmentKey, SegmentView, UsageLine
from batchwright.store import batches, funds, inputs, ledger, parts, queueing, workers
from batchwright.store.bodies import Bodies, Reader
from batchwright.store.connections import Connections
from batchwright.store.folding import fold, slices
from batchwright.store.prepared import Prepared, StoredRow
from batchwright.store.schema import UNENDED, USAGE_COLUMNS, batch, custom_ids, file_batch, segment, usage
from batchwright.wire.frames import unpack_rows

VIEW_BYTES = 32 * 1024 * 1024
"""Answers that a reader has in memory at once; a single larger one alone."""
SCAN_SEGMENTS = 256
"""Row maps looked at in one transaction while segments are skipped: 128 KiB."""
NO_END = 2**62
PREFIX_END = "\U0010ffff"

_FROM = Prepared(
    select(segment)
    .where(
        segment.c.batch_id == bindparam("batch_id"),
        segment.c.number >= bindparam("first"),
        segment.c.first_index < bindparam("end_index"),
    )
    .order_by(segment.c.number)
    .limit(bindparam("at_most"))
)
_HOLDING = Prepared(
    select(segment.c.number)
    .where(segment.c.batch_id == bindparam("batch_id"), segment.c.first_index <= bindparam("first_index"))
    .order_by(segment.c.first_index.desc())
    .limit(1)
)
_OPEN_LANES = select(segment.c.lane_set).where(segment.c.batch_id == bindparam("batch_id"), text(UNENDED)).distinct()
_HELD = select(segment.c.number).where(segment.c.batch_id == bindparam("batch_id"), text("state = 'held'")).limit(1)
_CLOSED_MAPS = select(segment.c.row_map).where(
    segment.c.batch_id == bindparam("batch_id"), segment.c.round == bindparam("of_round"), segment.c.closed_as != ""
)
_HASHES = (
    select(custom_ids.c.number, custom_ids.c.hashes)
    .where(custom_ids.c.batch_id == bindparam("batch_id"), custom_ids.c.number >= bindparam("first"))
    .order_by(custom_ids.c.number)
    .limit(bindparam("at_most"))
)
_FIRST_INDEX = select(segment.c.first_index).where(
    segment.c.batch_id == bindparam("batch_id"), segment.c.number == bindparam("number")
)


# ---------------------------------------------------------------------------------------------------------- batches


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFilter:
    """Which batches; what is empty or false does not matter."""

    prefix: str
    identity: str
    source: str
    accepting: bool
    account: str
    before: str
    created_after_ms: int
    created_before_ms: int


def get_batch(connection: Connection, batch_id: str) -> BatchRow:
    return batch_row(connection, batches.get(connection, batch_id))


def batch_row(connection: Connection, row: StoredRow) -> BatchRow:
    tally = ledger.sum_tally(connection, row.batch_id, row.round)
    taken = 0
    if row.cap_picousd >= 0:
        taken = tally.cost_picousd + tally.possible_picousd + tally.orphan_picousd + tally.allowance_picousd
    return BatchRow(
        batch_id=row.batch_id,
        tenant=Tenant(row.account, row.key_id),
        spec=batches.spec_of(row),
        facts=BatchFacts(
            total=row.rows,
            refused=row.phase == "refused",
            accepting=row.phase == "accepting",
            reopening=row.phase == "reopening",
            cancel_requested=row.closing == FailureKind.CANCELLED,
            expired=row.closing == FailureKind.EXPIRED,
            paused=row.paused > 0,
            settled=row.phase == "settled",
        ),
        round=row.round,
        created_at_ms=row.created_at_ms,
        settled_at_ms=row.settled_at_ms,
        deadline_ms=row.deadline_ms,
        segments=row.segments,
        segments_open=row.segments_open,
        pauses=funds.pauses_of(connection, row, tally),
        tally=tally,
        budget_taken_picousd=taken,
        gate_passed=bool(row.gate_passed),
        owner=row.owner if row.phase == "accepting" else "",
        worst_picousd=batches.worst_of(row),
        closed_as=FailureKind(row.closing) if row.closing else None,
        left=_left(connection, row),
        waits=_waits(connection, row),
        priority=row.priority,
        share=queueing.share_of(connection, row.account),
    )


def _left(connection: Connection, row: StoredRow) -> int:
    """Mostly nothing was closed, or the first round was, whose counts tell it; else the segments' maps are read."""
    if not (row.round and row.closing and row.phase == "settled"):
        return 0
    maps = connection.execute(_CLOSED_MAPS, {"batch_id": row.batch_id, "of_round": row.round}).scalars()
    return sum(row_map.count_open(map_) for map_ in maps)


def _waits(connection: Connection, row: StoredRow) -> tuple[LaneWait, ...]:
    """Mostly there are none, and the batch's segments are left alone."""
    told = workers.waits(connection) if row.phase == "open" else ()
    if not told:
        return ()
    lanes = {lane for lane_set in open_lane_sets(connection, row.batch_id) for lane in lane_set.split("\n")}
    return tuple(wait for wait in told if wait.lane_text in lanes)


def find_batches(connection: Connection, wish: BatchFilter, limit: int) -> list[BatchRow]:
    statement: Select[Any] = select(batch).where(batch.c.phase != "dropping").order_by(batch.c.seq.desc()).limit(limit)
    if wish.prefix:
        statement = statement.where(batch.c.batch_id >= wish.prefix, batch.c.batch_id < wish.prefix + PREFIX_END)
    if wish.identity:
        statement = statement.where(batch.c.identity == wish.identity)
    if wish.source:
        statement = statement.where(batch.c.source == wish.source)
    if wish.account:
        statement = statement.where(batch.c.account == wish.account)
    if wish.before:
        place = select(batch.c.seq).where(batch.c.batch_id == wish.before).scalar_subquery()
        statement = statement.where(batch.c.seq < place)
    if wish.created_after_ms:
        statement = statement.where(batch.c.created_at_ms >= wish.created_after_ms)
    if wish.created_before_ms:
        statement = statement.where(batch.c.created_at_ms < wish.created_before_ms)
    if wish.accepting:
        of_a_file = exists().where(file_batch.c.batch_id == batch.c.batch_id)
        statement = statement.where(batch.c.phase == "accepting", ~of_a_file)
    return [batch_row(connection, row) for row in connection.execute(statement).all()]


# --------------------------------------------------------------------------------------------------------- segments


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentWish:
    """As in `ports.store.Store.read_segments`."""

    end_index: int
    with_input: bool
    wanted: frozenset[int] | None
    texts_of: frozenset[int] | None


def read_segments(bodies: Bodies, batch_id: str, first_index: int, wish: SegmentWish) -> Iterator[SegmentView]:
    """One short transaction a segment, so that no reader holds up the log."""
    with bodies.connections.read() as connection:
        batches.get(connection, batch_id)
        key = {"batch_id": batch_id, "first_index": first_index}
        holding = _HOLDING.first(connection, key)
        first = holding.number if holding is not None else 0
    return _segments(bodies, batch_id, first, wish)


def _segments(bodies: Bodies, batch_id: str, first: int, wish: SegmentWish) -> Iterator[SegmentView]:
    wanted = wish.wanted
    at_most = 1 if wanted is None else SCAN_SEGMENTS

    def look(connection: Connection, reader: Reader) -> tuple[int, _Loaded | None]:
        """(The number to go on from, what was found); the number is -1 at the end."""
        # Removed meanwhile it would end early, and look like all of it.
        created_at_ms = batches.get(connection, batch_id).created_at_ms
        where = {"batch_id": batch_id, "first": first, "end_index": wish.end_index, "at_most": at_most}
        rows = _FROM.all(connection, where)
        for row in rows:
            counted = counted_map(row)
            if wanted is None or has_any(counted, wanted):
                return row.number + 1, _load(connection, (row, counted, created_at_ms), (wish, reader))
        return rows[-1].number + 1 if rows else -1, None

    while first >= 0:
        first, found = bodies.look(look)
        if found is not None:
            with bodies.forgetting():
                yield from _views(found)


def counted_map(row: StoredRow) -> bytes:
    """A segment's row map as it counts."""
    closed_as = FailureKind(row.closed_as) if row.closed_as else None
    return row_map.read_closed(row.row_map, closed_as, row.previous_map)


def is_held(connection: Connection, batch_id: str) -> bool:
    return connection.execute(_HELD, {"batch_id": batch_id}).first() is not None


def open_lane_sets(connection: Connection, batch_id: str) -> frozenset[str]:
    return frozenset(connection.execute(_OPEN_LANES, {"batch_id": batch_id}).scalars())


def has_any(counted: bytes, wanted: frozenset[int]) -> bool:
    return any(byte in counted for byte in wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """A segment's stored bytes, still packed."""

    row: StoredRow
    counted: bytes
    packed: list[bytes]
    input: SegmentInput | None


def _load(connection: Connection, what: tuple[StoredRow, bytes, int], how: tuple[SegmentWish, Reader]) -> _Loaded:
    """`what` is (its row, its map as it counts, when its batch was created). Raises Outside."""
    row, counted, created_at_ms = what
    wish, reader = how
    key = SegmentKey(row.batch_id, row.number)
    found = parts.find(connection, key)
    packed = inputs.find(connection, key, created_at_ms) if wish.with_input else b""
    reader.need([packed, *(frame for _, frame in found)])  # all in one go
    loaded = None
    if wish.with_input:
        with_texts = wish.texts_of is None or has_any(counted, wish.texts_of)
        loaded = inputs.unpack(connection, packed, reader) if with_texts else unpack_rows(reader.bytes_of(packed))
    return _Loaded(row=row, counted=counted, packed=[reader.bytes_of(frame) for _, frame in found], input=loaded)


def _views(loaded: _Loaded) -> Iterator[SegmentView]:
    """The segment as one view; in several, of consecutive rows, where its answers together would fill the memory."""
    row = loaded.row
    for rows in slices(loaded.packed, len(loaded.counted), VIEW_BYTES):
        records = fold(loaded.packed, loaded.counted, rows)
        yield SegmentView(
            number=row.number,
            first_index=row.first_index + rows.start,
            round=row.round,
            row_map=loaded.counted[rows.start : rows.stop],
            reserved=row.row_map[rows.start : rows.stop],
            records={place - rows.start: record for place, record in records.items()},
            input=_slice(loaded.input, rows),
            epoch=row.epoch,
        )


def _slice(whole: SegmentInput | None, rows: range) -> SegmentInput | None:
    if whole is None:
        return None
    return SegmentInput(lanes=whole.lanes, rows=whole.rows[rows.start : rows.stop])


# ------------------------------------------------------------------------------------------------------------ others


def find_custom_id(bodies: Bodies, batch_id: str, custom_id: str) -> list[int]:
    wanted = hash_custom_id(custom_id)
    found: list[int] = []
    first = 0
    with bodies.connections.read() as connection:
        created_at_ms = batches.get(connection, batch_id).created_at_ms

    def look(connection: Connection, reader: Reader) -> tuple[int, list[int]]:
        """(The number to go on from, or -1; rows found)."""
        rows = connection.execute(_HASHES, {"batch_id": batch_id, "first": first, "at_most": SCAN_SEGMENTS}).all()
        places = [(SegmentKey(batch_id, row.number), _positions(row.hashes, wanted)) for row in rows]
        places = [(key, positions) for key, positions in places if positions]
        reader.need([inputs.find(connection, key, created_at_ms) for key, _ in places] if reader.goes_outside else ())
        there: list[int] = []
        for key, positions in places:
            segment_rows = inputs.read_rows(connection, (key, created_at_ms), reader).rows
            there.extend(_with_text(connection, key, (positions, segment_rows), custom_id=custom_id))
        return rows[-1].number + 1 if rows else -1, there

    while first >= 0:
        first, there = bodies.look(look)
        found.extend(there)
    return found


def id_hashes(connections: Connections, batch_id: str) -> Iterator[bytes]:
    first = 0
    while True:
        with connections.read() as connection:
            key = {"batch_id": batch_id, "first": first, "at_most": SCAN_SEGMENTS}
            rows = connection.execute(_HASHES, key).all()
        if not rows:
            return
        yield b"".join(row.hashes for row in rows)
        first = rows[-1].number + 1


def _positions(hashes: bytes, wanted: bytes) -> list[int]:
    """Where a hash stands in a segment's, by row; found by the search of the bytes type, not row by row."""
    rows = []
    at = hashes.find(wanted)
    while at >= 0:
        if at % CUSTOM_ID_HASH_BYTES == 0:
            rows.append(at // CUSTOM_ID_HASH_BYTES)
        at = hashes.find(wanted, at + 1)
    return rows


def _with_text(
    connection: Connection, key: SegmentKey, what: tuple[list[int], Sequence[InputRow]], *, custom_id: str
) -> list[int]:
    """The request_index of those of these rows that have this custom_id: equal hashes are compared as text. `what` is
    (their places, the segment's rows)."""
    positions, rows = what
    first_index = connection.execute(_FIRST_INDEX, {"batch_id": key.batch_id, "number": key.number}).scalar_one()
    return [first_index + position for position in positions if rows[position].custom_id == custom_id]


def read_usage(connection: Connection, since_day: str, tenant: str) -> list[UsageLine]:
    sums = [func.sum(usage.c[name]).label(name) for name in USAGE_COLUMNS]
    of = usage.c
    by = (of.day, of.account, of.model, of.vendor, of.tenant, of.key_id, of.endpoint)
    statement = select(*by, *sums).group_by(*by).order_by(*by).where(usage.c.day >= since_day)
    if tenant:
        statement = statement.where(usage.c.tenant == tenant)
    return [
        UsageLine(
            key=UsageKey(row.day, row.account, row.model, row.vendor, row.tenant, row.key_id, row.endpoint),
            sum=UsageSum(**{name: int(getattr(row, name)) for name in USAGE_COLUMNS}),
        )
        for row in connection.execute(statement)
    ]
