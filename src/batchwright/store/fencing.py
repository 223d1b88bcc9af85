"""The fence: which of the segments that a checkpoint speaks of are still its worker's, and their new maps.

A segment that another has by now, or had meanwhile, is under a higher epoch: nothing of it is written, and it is a
result, not an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, bindparam, select, text, update

from batchwright.core import fair_share, row_map
from batchwright.core.errors import StoreError
from batchwright.core.records import Tally
from batchwright.ports.store import SegmentChange, SegmentKey
from batchwright.store import backlog
from batchwright.store.parts import Place
from batchwright.store.prepared import Later, Prepared, StoredRow
from batchwright.store.schema import HAS_HOLDER, segment

_FENCE = Prepared(
    update(segment)
    .where(
        segment.c.batch_id == bindparam("of_batch"),
        segment.c.number == bindparam("of_number"),
        segment.c.epoch == bindparam("of_epoch"),
        segment.c.holder == bindparam("me"),
    )
    .values(
        row_map=bindparam("new_map"),
        open=bindparam("new_open"),
        state=bindparam("new_state"),
        holder=bindparam("new_holder"),
        closed_as=bindparam("new_closed"),
        not_before_ms=bindparam("new_not_before"),
        lane_set=bindparam("new_lanes"),
        charged=bindparam("new_charged"),
        deaths=segment.c.deaths * bindparam("keep"),
        window=segment.c.window * bindparam("keep"),
    )
)
_HELD = Prepared(
    select(
        segment.c.batch_id,
        segment.c.number,
        segment.c.epoch,
        segment.c.round,
        segment.c.lane_set,
        segment.c.row_map,
        segment.c.previous_map,
        segment.c.account,
        segment.c.charged,
        segment.c.weight,
    ).where(segment.c.holder == bindparam("me"), text(HAS_HOLDER), text("state = 'held'"))
)


@dataclass(slots=True)
class Fenced:
    """What became of the changes, and what that means for rows that others write too."""

    held: list[SegmentChange] = field(default_factory=list)
    """In key order; one that closes its segment with its counts as they are."""
    places: dict[SegmentKey, Place] = field(default_factory=dict)
    """Of those."""
    lost: list[SegmentChange] = field(default_factory=list)
    settling: Counter[str] = field(default_factory=Counter)
    """Segments that end, by batch."""
    given_back: backlog.Waiting = field(default_factory=Counter)
    """Segments that wait again from this checkpoint on."""
    owed: Counter[str] = field(default_factory=Counter)
    """Virtual time to be added to what accounts were served; an account that has let go of a segment is in it."""
    written: Later | None = None
    """None: nothing was."""


def fence(connection: Connection, segments: Sequence[SegmentChange], who: tuple[int, int]) -> Fenced:
    """Writes the maps of the segments that are still this worker's, in key order, and tells them from the lost. `who`
    is (the worker, its checkpoint's number)."""
    me, checkpoint_number = who
    fenced = Fenced()
    changes = sorted(segments, key=lambda change: change.key)
    if not changes:
        return fenced
    stored = {SegmentKey(row.batch_id, row.number): row for row in _HELD.all(connection, {"me": me})}
    values = []
    for change in changes:
        row = stored.get(change.key)
        if row is None or row.epoch != change.epoch:
            fenced.lost.append(change)
            continue
        value = _fence_values(change, row, me)
        value["new_charged"] = _settle_charge(fenced, change, (row, value["new_state"] != "held"))
        values.append(value)
        fenced.held.append(change if change.closed_as is None else _recounted(change, row))
        fenced.places[change.key] = Place(change.key, row.round, row.epoch, checkpoint_number)
        if value["new_state"] == "settled":
            fenced.settling[change.key.batch_id] += 1
        elif value["new_state"] == "waiting":
            fenced.given_back[change.key.batch_id, str(value["new_lanes"])] += 1
    # The epoch stands in the statement too: what was read above decides nothing alone.
    if values:
        fenced.written = _FENCE.many_later(connection, values)
    return fenced


def check(fenced: Fenced) -> None:
    """Outside of `prepared.together`. Raises StoreError where not all that are held were written."""
    if fenced.written is not None and (lacking := len(fenced.held) - fenced.written.changed()):
        raise StoreError(f"{lacking} segments changed hands within a transaction.")


def _settle_charge(fenced: Fenced, change: SegmentChange, what: tuple[StoredRow, bool]) -> int:
    """Replaces in the account's share what was estimated of the segment by what its answers used; returns what is
    still charged. `what` is (the segment's row, whether it is let go)."""
    row, leaves = what
    if not row.weight:
        return 0
    tokens = change.tally.prompt_tokens + change.tally.completion_tokens
    open_rows = row_map.count_open(row.row_map)
    used = fair_share.used_tokens(tokens, unknown=change.tally.no_usage, charged=row.charged, open_rows=open_rows)
    settled = fair_share.settle(row.charged, used, leaves=leaves)
    if settled.tokens or leaves:
        fenced.owed[row.account] += fair_share.charge(settled.tokens, row.weight)
    return settled.charged


def _fence_values(change: SegmentChange, row: StoredRow, me: int) -> dict[str, object]:
    still_open = 0 if change.closed_as is not None else row_map.count_open(change.row_map)
    held_on = change.release.value if change.release is not None else "held"
    state = held_on if still_open else "settled"
    return {
        "of_batch": change.key.batch_id,
        "of_number": change.key.number,
        "of_epoch": change.epoch,
        "me": me,
        "new_map": change.row_map,
        "new_open": still_open,
        "new_state": state,
        "new_holder": me if state == "held" else 0,
        "new_closed": change.closed_as.value if change.closed_as is not None else "",
        "new_not_before": change.not_before_ms if state == "parked" else 0,
        "new_lanes": (change.lane_set or row.lane_set) if change.release else row.lane_set,
        "keep": 0 if change.outcomes else 1,
    }


def _recounted(change: SegmentChange, row: StoredRow) -> SegmentChange:
    """A closing change with its counts taken from the maps: what rows read as once closed, less what was counted."""
    counted = row_map.read_closed(change.row_map, change.closed_as, row.previous_map)
    delta = row_map.counts(counted)
    for byte, rows in row_map.counts(row.row_map).items():
        if row_map.is_end(byte):
            delta[byte] = delta.get(byte, 0) - rows
    tally = Tally()
    tally.add(change.tally)
    tally.counts = delta
    return replace(change, tally=tally)
