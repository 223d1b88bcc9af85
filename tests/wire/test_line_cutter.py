"""Lines of a stream, however it is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.wire.line_cutter import LineCutter, LongLine


def cut(pieces: list[bytes], most_bytes: int = 1_000) -> list[tuple[int, bytes]]:
    cutter = LineCutter(most_bytes)
    found = [line for piece in pieces for line in cutter.add(piece)]
    return [(line.number, line.text) for line in found + cutter.rest()]


@given(st.binary(max_size=60).map(lambda text: text.replace(b"a", b"\n")), st.integers(1, 7))
def test_pieces_make_no_difference(text: bytes, size: int) -> None:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    lines = text.split(b"\n")
    assert cut(pieces) == [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def test_a_line_separator_inside_a_string_ends_no_line() -> None:
    assert cut(['{"a":"\u2028\x85"}\r\n\n{}'.encode()]) == [(1, '{"a":"\u2028\x85"}\r'.encode()), (3, b"{}")]


@pytest.mark.parametrize("pieces", [[b"12345\n"], [b"123", b"45"], [b"1\n", b"12345"], [b"1\n12345\n1\n"]])
def test_a_long_line_is_refused_as_soon_as_it_is_known(pieces: list[bytes]) -> None:
    with pytest.raises(LongLine) as caught:
        cut(pieces, most_bytes=4)
    assert caught.value.number == (2 if pieces[0].startswith(b"1\n") else 1)
    assert caught.value.found == 5
    assert cut([b"1234\n1234"], most_bytes=4)
