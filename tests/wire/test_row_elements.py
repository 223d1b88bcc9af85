"""An array's elements are cut where they end, however the bytes come."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.wire import row_elements
from batchwright.wire.row_elements import BrokenArray, on_one_line, read_elements

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


class Trickle(io.BytesIO):
    """Gives a few bytes at a time, whatever is asked for."""

    def __init__(self, data: bytes, step: int) -> None:
        super().__init__(data)
        self._step = step

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self._step)


def elements(data: bytes, *, most: int = 1000, step: int = 1 << 20) -> list[bytes]:
    return [element for found in read_elements(Trickle(data, step), most) for element in found]


@given(st.lists(VALUES, max_size=8), st.integers(1, 40), st.sampled_from([None, 0, 2]), st.booleans())
def test_every_element_comes_whole_and_in_order(values: list[object], step: int, indent: int | None, asc: bool) -> None:
    data = json.dumps(values, indent=indent, ensure_ascii=asc).encode("utf-8", "surrogatepass")
    found = elements(b"\xef\xbb\xbf \n" + data + b" \r\n", most=10_000, step=step)
    assert all(b"\n" not in element for element in found)
    assert [json.loads(element) for element in found] == values


def test_a_bad_row_is_left_to_its_reader() -> None:
    assert elements(b'[{"a": NaN}, nonsense, {"b": \'x\'}, {"c": 1,}]') == [
        b'{"a": NaN}',
        b"nonsense",
        b"{\"b\": 'x'}",
        b'{"c": 1,}',
    ]
    assert elements(b"[1 2]") == [b"1 2"]


@pytest.mark.parametrize(
    ("data", "row", "words"),
    [
        (b'[{"a": 1}, {"b": 2}', 3, "cut short"),
        (b'[{"a": 1}, {"b": "2', 2, "cut short"),
        (b'[{"a": 1}, {"b": [2}', 2, "cut short"),
        (b'[{"a": 1} {"b": 2}]', 2, "expected a comma"),
        (b"[1, , 2]", 2, "expected a row, found ,"),
        (b"[1, ]", 2, "expected a row, found ]"),
        (b"[1] {}", 2, "something follows"),
        (b"[1]\n[2]", 2, "something follows"),
        (b'[1, {"x": "' + b"y" * 2000 + b'"}]', 2, "more than 1,000 bytes"),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_what_cannot_be_cut_says_at_which_row(data: bytes, row: int, words: str, step: int) -> None:
    found: list[list[bytes]] = []
    with pytest.raises(BrokenArray, match=words) as broken:
        found.extend(read_elements(Trickle(data, step), 1000))
    assert broken.value.row == row
    assert len([element for some in found for element in some]) == row - 1


def test_a_long_array_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_elements, "BLOCK_BYTES", 100)
    data = json.dumps([{"n": number} for number in range(1000)]).encode()
    pieces = list(read_elements(io.BytesIO(data), 1000))
    assert len(pieces) > 50
    assert [json.loads(element)["n"] for found in pieces for element in found] == list(range(1000))


def test_on_one_line_changes_no_value() -> None:
    assert on_one_line(b'{"a": "x",\n  "b": 1.50}') == b'{"a":"x","b":1.50}'
    assert on_one_line(b'{"a": "x", "b": 1.50}') == b'{"a": "x", "b": 1.50}'
    assert on_one_line(b'{"a":\nx}') == b'{"a": x}'
