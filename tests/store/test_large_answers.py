"""A segment whose answers would fill the memory is read in slices of rows, and they add up to the segment."""

from __future__ import annotations

from batchwright.core import row_map
from batchwright.core.records import Record
from batchwright.store.folding import fold, slices
from batchwright.wire.frames import pack_records

PLAIN = row_map.PLAIN_SUCCESS


def answered(row: int, size: int, attempts: int = 1) -> Record:
    return Record(row=row, byte=PLAIN, attempts=attempts, used=attempts, body=bytes([row]) * size)


FRAMES = [
    pack_records([answered(2, 400), answered(0, 400)]),
    pack_records([answered(1, 2_000), answered(3, 10)]),
    pack_records([answered(0, 500, attempts=2), answered(4, 10)]),
]
COUNTED = bytes([PLAIN]) * 5


def test_rows_go_together_up_to_the_bound_and_a_larger_one_alone() -> None:
    assert slices(FRAMES, 5, 1_000) == [range(0, 1), range(1, 2), range(2, 5)]


def test_small_frames_are_one_slice() -> None:
    assert slices(FRAMES, 5, 1_000_000) == [range(5)]


def test_slices_hold_the_records_that_the_whole_holds() -> None:
    whole = fold(FRAMES, COUNTED)
    sliced = {row: record for rows in slices(FRAMES, 5, 1_000) for row, record in fold(FRAMES, COUNTED, rows).items()}
    assert sliced == whole
    assert whole[0].attempts == 2
