"""Lines of a stream, however it is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.wire.line_reader import KEPT_BYTES, LineCutter, LongLine


def cut(pieces: list[bytes], max_line_bytes: int = 1_000) -> list[bytes | LongLine]:
    cutter = LineCutter(max_line_bytes)
    return [line for piece in pieces for line in cutter.add(piece)] + cutter.rest()


@given(st.binary(max_size=60).map(lambda text: text.replace(b"a", b"\n")), st.integers(1, 7), st.integers(1, 9))
def test_pieces_make_no_difference(text: bytes, size: int, most: int) -> None:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    found = cut(pieces, most)
    assert [line.size if isinstance(line, LongLine) else line for line in found] == [
        len(line) if len(line) > most else line for line in lines
    ]
    assert all(
        line.startswith(long.head) and long.head
        for long, line in zip(found, lines, strict=True)
        if isinstance(long, LongLine)
    )


def test_a_line_separator_inside_a_string_ends_no_line() -> None:
    assert cut(['{"a":"\u2028\x85"}\r\n\n{}'.encode()]) == ['{"a":"\u2028\x85"}\r'.encode(), b"", b"{}"]


@pytest.mark.parametrize("pieces", [[b"123", b"45"], [b"1\n", b"12345"], [b"1\n123", b"45"]])
def test_a_long_line_is_known_before_it_has_ended(pieces: list[bytes]) -> None:
    cutter = LineCutter(4)
    for piece in pieces:
        cutter.add(piece)
    assert cutter.begun_bytes == 5


def test_of_a_long_line_only_its_start_is_kept() -> None:
    (line,) = cut([b"x" * 3_000] * 100)
    assert isinstance(line, LongLine)
    assert line.size == 300_000
    assert 1_000 < len(line.head) <= KEPT_BYTES
