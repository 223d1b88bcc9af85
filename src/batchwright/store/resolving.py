"""What becomes of the rows that a lost lease left in doubt (`core.doubt`): resolved in the claim that takes their
segment, once, under its new epoch, and written in the same transaction."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select, update

from batchwright.core import row_map
from batchwright.core.batch_spec import BatchSpec, LaneKey, VendorProtocol
from batchwright.core.doubt import Resolution, resolve
from batchwright.core.records import Record, SegmentInput
from batchwright.store import groups, ledger, parts
from batchwright.store.batches import spec_of
from batchwright.store.blobs import doubt_key
from batchwright.store.parts import Place
from batchwright.store.prepared import StoredRow
from batchwright.store.schema import batch, segment
from batchwright.wire import frames

_SET_MAP = (
    update(segment)
    .where(segment.c.batch_id == bindparam("of_batch"), segment.c.number == bindparam("of_number"))
    .values(
        row_map=bindparam("new_map"),
        open=bindparam("new_open"),
        state=bindparam("new_state"),
        holder=bindparam("new_holder"),
        window=bindparam("new_window"),
        charged=segment.c.charged * bindparam("keep_charge"),
    )
)
_BATCH = select(batch).where(batch.c.batch_id == bindparam("batch_id"))


def resolve_doubt(connection: Connection, row: StoredRow, known: tuple[SegmentInput, dict[int, Record]]) -> Resolution:
    """`known`: the segment's input, and the last record of each row."""
    segment_input, last = known
    owner = connection.execute(_BATCH, {"batch_id": row.batch_id}).one()
    spec = spec_of(owner)
    worst = {}
    if spec.max_cost_picousd >= 0:
        worst = {number: item.worst_picousd for number, item in enumerate(segment_input.rows)}
    return resolve(
        lost_map=row.row_map,
        last=last,
        previous_map=row.previous_map,
        worst_picousd=worst,
        alone=bool(row.lost_alone),
        policy=spec.on_uncertain,
        max_attempts=spec.max_attempts,
        asked_once=_of_protocol(spec, segment_input, VendorProtocol.SERVICE),
        resting=_of_protocol(spec, segment_input, VendorProtocol.BATCH) | _in_groups(connection, row, (spec, last)),
        schema=spec.answers,
    )


def _of_protocol(spec: BatchSpec, segment_input: SegmentInput, protocol: VendorProtocol) -> frozenset[int]:
    """Rows that go to a place of this protocol and nowhere else. (A batch service's chunks have a journal and
    idempotency keys; groups at a vendor's batch API are kept.)"""
    names = {destination.vendor for destination in spec.destinations if destination.protocol is protocol}
    if not names:
        return frozenset()
    lanes = {at for at, lane in enumerate(segment_input.lanes) if LaneKey.parse(lane).vendor in names}
    return frozenset(number for number, row in enumerate(segment_input.rows) if row.lane in lanes and not row.route)


def _in_groups(connection: Connection, row: StoredRow, what: tuple[BatchSpec, dict[int, Record]]) -> frozenset[int]:
    """Rows that may go to a vendor's batch API or to the vendor itself, and whose very attempt is in a group. (One that
    was called back has another attempt durably before it goes live.) `what`: the spec, and each row's last record."""
    spec, last = what
    if not any(place.protocol is VendorProtocol.BATCH and place.live_too for place in spec.destinations):
        return frozenset()
    grouped = groups.rows_of_batch(connection, row.batch_id)
    attempts = ((number, last[number].attempts if number in last else 0) for number in range(len(row.row_map)))
    return frozenset(number for number, tried in attempts if (row.first_index + number, tried) in grouped)


def settle_doubt(connection: Connection, place: Place, what: tuple[Resolution, StoredRow, int, int]) -> None:
    """Writes what became of the doubt: notes under the new epoch, the taker's tally, the map. `what` is (that, the
    segment's row, its taker's id, the moment)."""
    resolution, row, taker_id, now_ms = what
    key = place.key
    packed = frames.pack_records(resolution.records)
    parts.write(connection, doubt_key(key, place.epoch, now_ms), [(place, packed)])
    ledger.add_tally(connection, key.batch_id, (place.round, taker_id), resolution.tally)
    still_open = row_map.count_open(resolution.row_map)
    values = {
        "of_batch": key.batch_id,
        "of_number": key.number,
        "new_map": resolution.row_map,
        "new_open": still_open,
        "new_state": "held" if still_open else "settled",
        "new_holder": taker_id if still_open else 0,
        "new_window": window_of(row, resolution),
        "keep_charge": int(still_open > 0),
    }
    connection.execute(_SET_MAP, values)


def window_of(row: StoredRow, resolution: Resolution | None) -> int:
    """A window narrows with each death and stands until an outcome is checkpointed; doubt without a death sets none."""
    if resolution is None or not row.deaths:
        return int(row.window)
    return resolution.window
