"""Arrays of rows in which some are no JSON: each row alone, and nothing where their number would be a guess."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.wire.bad_body import BadBody
from batchwright.wire.infrai_submit import read_submit
from batchwright.wire.row_array import cut_apart

GOOD = b'{"model":"m","messages":[{"role":"user","content":"a \\"b\\", [c] {d}"}]}'
DEEP = b"[" * 200_000 + b"]" * 200_000
MANY = 1_000

BROKEN_ROWS = {
    "no number": b'{"a":NaN}',
    "infinity": b'{"a":[-Infinity]}',
    "nested too deeply": b'{"a":' + DEEP + b"}",
    "brackets of two kinds, too deeply": b'[{"a":' * 50_000 + b"1" + b"}]" * 50_000,
    "a raw control character": b'{"a":"\x01\n"}',
    "an escape that is none": b'{"a":"\\q"}',
    "half a surrogate": b'{"a":"\\ud83d"}',
    "not UTF-8": b'{"a":"\xff"}',
    "zeros before a number": b'{"a":007}',
    "a word": b"undefined",
    "a comma at the end": b'{"a":[1,],}',
    "no comma": b'{"a":1 "b":2}',
    "two values": b'{"a":1} {"b":2}',
    "text in other marks": b"{'a':'b'}",
    "no value": b'{"a":}',
    "a slash": b'{"a":/}',
    "what would be a comment in a text": b'{"a":NaN,"b":"/* , */ //"}',
}


@pytest.mark.parametrize("name", BROKEN_ROWS)
def test_a_row_that_is_no_json_is_one_row(name: str) -> None:
    row = BROKEN_ROWS[name]
    body = b' {"metadata":{"requests":"[1"}, "requests" : [' + GOOD + b",\n" + row + b" ," + GOOD
    asked = read_submit(body + b'],"batch_timeout":60}', MANY)
    assert [bytes(raw) for raw in asked.rows] == [GOOD, row, GOOD]
    assert (asked.options.timeout_s, asked.options.metadata) == (60, {"requests": "[1"})


NO_ARRAY = {
    "a bracket closed by another": b'{"requests":[{"a":[NaN},1]}',
    "a string without end": b'{"requests":[NaN,{"a":"b}]}',
    "an array without end": b'{"requests":[NaN',
    "a closed row too many": b'{"requests":[NaN,{}}]}',
    "a comment with a comma": b'{"requests":[{"a":1}, /* , */ {"b":2}]}',
    "a comment to the line's end": b'{"requests":[{"a":1}, // , one more\n {"b":2}]}',
    "a comment within a row": b'{"requests":[{"a":1}, {"b": /* ], [ */ 2}]}',
    "nothing between two commas": b'{"requests":[NaN,,1]}',
    "nothing behind the last comma": b'{"requests":[1,]}',
    "broken beside the rows": b'{"requests":[NaN],"batch_timeout":NaN}',
    "broken behind the rows": b'{"requests":[NaN]]',
    "more behind the object": b'{"requests":[NaN]} x',
}


@pytest.mark.parametrize("name", NO_ARRAY)
def test_what_is_no_array_of_rows_is_refused_as_a_whole(name: str) -> None:
    with pytest.raises(BadBody):
        read_submit(NO_ARRAY[name], MANY)


NO_REQUESTS = {
    "an array deeper down": b'{"metadata":{"requests":[NaN]}}',
    "a name that only ends so": b'{"my\\"requests":[NaN]}',
    "no object around it": b'["requests",[NaN]]',
}


@pytest.mark.parametrize("name", NO_REQUESTS)
def test_only_the_field_requests_of_the_body_itself_is_cut(name: str) -> None:
    assert cut_apart(NO_REQUESTS[name], MANY) is None


def test_a_field_given_twice_is_refused_beside_a_broken_row_too() -> None:
    for body, param in (
        (b'{"requests":[NaN],"requests":[1]}', "requests"),
        (b'{"requests":[NaN],"batch_timeout":1,"batch_timeout":2}', "batch_timeout"),
    ):
        with pytest.raises(BadBody) as refused:
            read_submit(body, MANY)
        assert refused.value.param == param


def test_a_body_with_broken_rows_has_a_bound_on_them() -> None:
    body = b'{"requests":[' + b",".join([b"NaN"] * 5) + b"]}"
    assert len(read_submit(body, 5).rows) == 5
    with pytest.raises(BadBody):
        read_submit(body, 4)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200)
@given(st.lists(values, min_size=1, max_size=6), st.dictionaries(st.text(max_size=12), values, max_size=3))
def test_good_rows_are_cut_as_a_reader_cuts_them(rows: list[object], others: dict[str, object]) -> None:
    text = json.dumps({**others, "requests": rows}, indent=1).encode()
    apart = cut_apart(text, MANY)
    assert apart is not None
    assert [msgspec.json.decode(row) for row in apart.rows] == rows
    assert msgspec.json.decode(apart.rest) == {**others, "requests": 0}
