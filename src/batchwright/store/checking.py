"""Recounts the laws of `ports.store` for one batch, from the rows up, sharing no sum with the code that keeps them.

Reads every blob of the batch in one transaction: for tests and for a doubt about a file, not for a run.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Row, select

from batchwright.core import row_map
from batchwright.ports.store import SegmentKey
from batchwright.store import batches, inputs, ledger, parts
from batchwright.store.blobs import Span
from batchwright.store.bodies import Reader
from batchwright.store.folding import fold
from batchwright.store.parts import Frame
from batchwright.store.reading import counted_map
from batchwright.store.schema import pick, queue, segment


def check(connection: Connection, batch_id: str, reader: Reader) -> list[str]:
    """A sentence for each law that does not hold; empty: all hold. Raises Outside."""
    row = batches.get(connection, batch_id)
    segments = connection.execute(
        select(segment).where(segment.c.batch_id == batch_id).order_by(segment.c.number)
    ).all()
    wrong: list[str] = []
    by_map: Counter[int] = Counter()
    by_record: Counter[int] = Counter()
    cost = index = 0
    if reader.goes_outside:
        keys = [SegmentKey(batch_id, found.number) for found in segments]
        _need_all(connection, (keys, row.created_at_ms), reader)
    for found in segments:
        counted = _counted(row, found)
        by_map.update(counted)
        wrong += _check_segment(row, found, index) + _check_input(connection, (row, found), reader)
        index += len(found.row_map)
        read: list[Frame] = []
        try:
            read = parts.read(connection, SegmentKey(batch_id, found.number), reader)
        except KeyError as error:
            wrong.append(f"segment {found.number} has answers in {error.args[0]}, which is not there")
        records = fold((frame.packed for frame in read), counted)
        cost += sum(record.cost_picousd for record in records.values())
        for number, byte in enumerate(counted):
            record = records.get(number)
            if record is not None and record.byte == byte:
                by_record[byte] += 1
            elif byte in row_map.CLOSING_BYTES:
                by_record[byte] += 1  # closed, not answered: the map alone says so
    tally = ledger.sum_tally(connection, batch_id, row.round)
    ends = {byte: rows for byte, rows in by_map.items() if row_map.is_end(byte)}
    recorded = {byte: rows for byte, rows in by_record.items() if row_map.is_end(byte)}
    if tally.counts != ends:
        wrong.append(f"the tallies count {_words(tally.counts)}, the row maps {_words(ends)}")
    if recorded != ends:
        wrong.append(f"the records count {_words(recorded)}, the row maps {_words(ends)}")
    if tally.cost_picousd != cost:
        wrong.append(f"the tallies cost {tally.cost_picousd} picousd, the records {cost}")
    return wrong + _check_batch(row, segments) + _check_picks(connection, row, segments)


def _counted(row: Row[Any], found: Row[Any]) -> bytes:
    """As it counts; a segment that a reopening has not come to yet, as it will."""
    counted = counted_map(found)
    if row.phase == "reopening" and found.number >= row.reopen_next:
        return row_map.reopen(counted, frozenset(row.reopen_bytes))[0]
    return counted


def _check_segment(row: Row[Any], found: Row[Any], index: int) -> list[str]:
    wrong = []
    still_open = 0 if found.closed_as else row_map.count_open(found.row_map)
    if found.open != still_open:
        wrong.append(f"segment {found.number} says {found.open} open rows, its map {still_open}")
    if (found.state == "settled") != (still_open == 0):
        wrong.append(f"segment {found.number} is {found.state} with {still_open} open rows")
    if found.first_index != index:
        wrong.append(f"segment {found.number} begins at row {found.first_index}, the one before ends at {index}")
    if found.previous_map is not None and len(found.previous_map) != len(found.row_map):
        wrong.append(f"segment {found.number} has {len(found.row_map)} rows and {len(found.previous_map)} before")
    if still_open and found.round != row.round:
        wrong.append(f"segment {found.number} is open in round {found.round} of round {row.round}")
    return wrong


def _need_all(connection: Connection, what: tuple[list[SegmentKey], int], reader: Reader) -> None:
    """What lies outside, in a few rounds, not one a segment. Raises Outside."""
    keys, created_at_ms = what
    needed: list[bytes | Span] = []
    for key in keys:
        with suppress(KeyError):  # told of when it is read
            needed += [packed for _, packed in parts.find(connection, key)]
        with suppress(KeyError):
            needed.append(inputs.find(connection, key, created_at_ms))
    reader.need(needed)


def _check_input(connection: Connection, what: tuple[Row[Any], Row[Any]], reader: Reader) -> list[str]:
    """`what` is (the batch's row, the segment's)."""
    row, found = what
    try:
        packed = inputs.find(connection, SegmentKey(found.batch_id, found.number), row.created_at_ms)
        rows = len(inputs.unpack(connection, packed, reader).rows)
    except KeyError as error:
        return [f"segment {found.number} has rows in {error.args[0]}, which is not there"]
    if rows == len(found.row_map):
        return []
    return [f"segment {found.number} has {rows} rows in its input, its map {len(found.row_map)}"]


def _check_batch(row: Row[Any], segments: Any) -> list[str]:
    wrong = []
    still_open = sum(1 for found in segments if found.open)
    if row.segments_open != still_open:
        wrong.append(f"the batch says {row.segments_open} open segments, there are {still_open}")
    if row.segments != len(segments):
        wrong.append(f"the batch says {row.segments} segments, there are {len(segments)}")
    rows = sum(len(found.row_map) for found in segments)
    if row.rows != rows:
        wrong.append(f"the batch says {row.rows} rows, its segments hold {rows}")
    if row.phase in ("open", "settled") and (row.phase == "settled") != (still_open == 0):
        wrong.append(f"the batch is {row.phase} with {still_open} open segments")
    if (row.phase in ("settled", "refused")) != (row.settled_at_ms > 0):
        wrong.append(f"the batch is {row.phase}, settled at {row.settled_at_ms}")
    return wrong


def _check_picks(connection: Connection, row: Row[Any], segments: Any) -> list[str]:
    picks = connection.execute(select(pick).where(pick.c.batch_id == row.batch_id, pick.c.waiting > 0)).all()
    said = {found.lane_set: found.waiting for found in picks}
    there = dict(Counter(found.lane_set for found in segments if found.state == "waiting"))
    wrong = [] if said == there else [f"by lanes {said} segments are said to wait, {there} do"]
    ready = row.phase == "open" and not row.closing and not row.paused
    place = (row.account, row.seq, int(ready), -row.priority, row.deadline_ms)
    for found in picks:
        noted = (found.account, found.seq, found.ready, found.behind, found.deadline_ms)
        if noted != place:
            wrong.append(f"the pick of lanes {found.lane_set!r} has {noted} of its batch, which has {place}")
        queued = select(queue.c.state).where(queue.c.account == row.account, queue.c.lane_set == found.lane_set)
        if ready and not connection.execute(queued).scalar():
            wrong.append(f"segments of lanes {found.lane_set!r} wait, but account {row.account} is not in the queue")
    return wrong


def _words(counts: dict[int, int]) -> str:
    return ", ".join(f"{rows} {row_map.name_of(byte)}" for byte, rows in sorted(counts.items())) or "nothing"
