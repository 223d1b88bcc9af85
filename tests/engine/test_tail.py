"""The last rows of a batch are cut into smaller segments, wherever the input comes from."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchwright.core.records import InputRow
from batchwright.core.routes import RouteLanes
from batchwright.core.rows import SourceRow
from batchwright.engine import intake
from batchwright.engine.intake import SEGMENT_ROWS, Cutter
from batchwright.engine.piece_cutter import PieceCutter
from batchwright.engine.tail import TAIL_LEAST_ROWS, TAIL_ROWS, last_sizes
from batchwright.ports.store import NewSegment


def cut(rows: int, body: bytes = b"{}") -> list[int]:
    cutter = Cutter(lambda: 1, RouteLanes({}, ()))
    segments: list[NewSegment] = []
    for first in range(0, rows, 128):
        segments += cutter.add([SourceRow(row=InputRow(body=body)) for _ in range(first, min(rows, first + 128))])
    segments += cutter.rest()
    assert [segment.number for segment in segments] == list(range(len(segments)))
    sizes = [len(segment.row_map) for segment in segments]
    assert [segment.first_index for segment in segments] == [sum(sizes[:at]) for at in range(len(sizes))]
    return sizes


def cut_upload(lines: int) -> list[int]:
    cutter = PieceCutter()
    text = b"".join(b"%d\n" % line for line in range(lines))
    pieces = [piece for at in range(0, len(text), 700) for piece in cutter.add(text[at : at + 700])]
    pieces += cutter.rest()
    assert b"".join(pieces) == text
    return [piece.count(b"\n") for piece in pieces]


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (0, []),
        (1, [1]),
        (499, [499]),
        (500, [450, 50]),
        (510, [459, 51]),
        (1_000, [500, 400, 50, 50]),
        (5_000, [500] * 9 + [125, 93, 70, 53, 50, 50, 59]),
    ],
)
def test_the_last_tenth_is_in_smaller_segments(rows: int, sizes: list[int]) -> None:
    assert cut(rows) == sizes
    assert cut_upload(rows) == sizes


def test_the_tail_of_a_large_batch_is_bounded() -> None:
    sizes = cut_upload(100_000)
    whole = sizes.index(next(size for size in sizes if size < SEGMENT_ROWS))
    assert TAIL_ROWS - SEGMENT_ROWS <= sum(sizes[whole:]) <= TAIL_ROWS + SEGMENT_ROWS
    assert len(sizes) - whole < 20


def test_large_rows_are_held_within_the_bytes_of_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "SEGMENT_BYTES", 1_000)
    assert cut(30, b"x" * 300) == [3] * 10
    assert cut(3, b"x" * 1_001) == [1, 1, 1]


@given(rows=st.integers(1, 60_000), held=st.integers(1, 2_600), segment_rows=st.sampled_from([1, 3, 60, 500]))
@example(rows=600, held=100, segment_rows=100)
def test_every_row_is_in_one_segment_that_is_not_too_large(rows: int, held: int, segment_rows: int) -> None:
    sizes = last_sizes(max(rows, held), held, segment_rows)
    assert sum(sizes) == held
    assert all(0 < size <= segment_rows for size in sizes)
    assert all(size >= min(TAIL_LEAST_ROWS, segment_rows) for size in sizes[:-1])
