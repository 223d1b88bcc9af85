"""Many frames of a segment into one record a row: the later wins, and an answer is never lost behind a note.

Pure: bytes and records in, bytes and records out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from batchwright.core import row_map
from batchwright.core.records import Record
from batchwright.wire import frames

CUMULATIVE: tuple[str, ...] = (
    "attempts",
    "used",
    "cost_picousd",
    "unpriced",
    "no_usage",
    "doubts",
    "rate_limits",
    "repairs",
)
"""What a later note carries over onto the outcome that stands again."""


def fold(packed: Iterable[bytes], counted: bytes, rows: range | None = None) -> dict[int, Record]:
    """The record of each row that has one, of frames in (round, epoch, seq) order; of these `rows` alone if given.

    `counted` is the row map as it counts. A row that counts as ended, while its last record is a note (its round was
    closed before it ended anew), has its earlier outcome back, with the attempts and the cost of the note.
    """
    kept = list(packed)
    if rows is None or len(rows) == len(counted):
        last = frames.last_records(kept)
    else:  # What is not wanted is let go frame by frame: answers may be large.
        last = {record.row: record for frame in kept for record in frames.unpack_records(frame) if record.row in rows}
    noted = {row for row, record in last.items() if record.byte <= row_map.RESERVED and counted[row] > row_map.RESERVED}
    if noted:
        for frame in kept:
            for record in frames.unpack_records(frame):
                if record.row in noted and record.byte == counted[record.row]:
                    last[record.row] = stand_again(record, last[record.row])
    return last


def slices(packed: Iterable[bytes], rows: int, most_bytes: int) -> list[range]:
    """The segment's rows in runs whose answers together are not above `most_bytes`, a single larger one alone. Frames
    are opened one at a time: small ones not at all."""
    kept = list(packed)
    if sum(frames.unpacked_size(frame) for frame in kept) <= most_bytes:
        return [range(rows)]
    sizes = [0] * rows
    for frame in kept:
        for record in frames.unpack_records(frame):
            sizes[record.row] = max(sizes[record.row], len(record.body))
    found, first, total = [], 0, 0
    for row, size in enumerate(sizes):
        if total and total + size > most_bytes:
            found.append(range(first, row))
            first, total = row, 0
        total += size
    return [*found, range(first, rows)]


def stand_again(outcome: Record, note: Record) -> Record:
    """An earlier outcome, with what was spent since: counts and cost are cumulative, so the later ones are taken."""
    return msgspec.structs.replace(outcome, **{name: getattr(note, name) for name in CUMULATIVE})


def bases(in_round: Mapping[int, Record], previous: Mapping[int, Record]) -> dict[int, Record]:
    """What the next attempt of each row builds on: its record of this round, else the one before with nothing used up.

    A row that had a success keeps that answer in its base, so that the success can be given back.
    """
    fresh = {
        row: msgspec.structs.replace(record, byte=row_map.RESERVED, used=0, rate_limits=0, alone=0, deaths=0)
        for row, record in previous.items()
    }
    for row, note in in_round.items():
        before = previous.get(row)
        fresh[row] = stand_again(before, note) if before is not None and row_map.is_success(before.byte) else note
    return fresh
