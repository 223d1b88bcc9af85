"""A segment's input packed and unpacked, with and without its rows' texts."""

from __future__ import annotations

import msgspec
import pytest

from batchwright.core.records import InputRow, SegmentInput
from batchwright.wire.frames import pack_input, unpack_input, unpack_rows

FULL = InputRow(
    body=b'{"n":1}',
    custom_id="\u00e9",
    model="m",
    lane=1,
    endpoint="/embeddings",
    output_tokens=7,
    columns=b'{"a":"b"}',
    worst_picousd=2**40,
    line=3,
    model_prefix="local/",
)
ROWS = [FULL, InputRow(body=b""), InputRow(body=b"x" * 100_000, columns=b"{}"), InputRow(body=b"\x00")]


def no_piece(file_id: str, number: int) -> bytes:
    pytest.fail(f"piece {number} of {file_id} was asked for: these rows have their texts with them")


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], ROWS[1:2], []], ids=["several", "one", "an empty body", "none"])
def test_what_was_packed_comes_back(rows: list[InputRow]) -> None:
    segment = SegmentInput(lanes=["a|b|c", "d|e|f"], rows=rows)
    packed = pack_input(segment)
    assert unpack_input(packed, no_piece) == segment
    assert segment.rows == rows, "packing takes nothing out of the rows it was given"


def test_without_texts_everything_else_is_there() -> None:
    found = unpack_rows(pack_input(SegmentInput(lanes=["a|b|c"], rows=ROWS)))
    assert found.lanes == ["a|b|c"]
    assert found.rows == [msgspec.structs.replace(row, body=b"", columns=b"") for row in ROWS]
