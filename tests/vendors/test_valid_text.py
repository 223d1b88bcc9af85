from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.vendors.valid_text import one_line, repair


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (rb'"a\n\u00e9"', rb'"a\n\u00e9"'),
        ('"h\u00e4lf \U0001f378"'.encode(), '"h\u00e4lf \U0001f378"'.encode()),
        (rb'"\ud83c\udf78"', rb'"\ud83c\udf78"'),
        (rb'"\uD83C\uDF78"', rb'"\uD83C\uDF78"'),
        (rb'"cut \ud83d"', rb'"cut \ufffd"'),
        (rb'"\udf78 tail"', rb'"\ufffd tail"'),
        (rb'"\ud83d\ud83c\udf78"', rb'"\ufffd\ud83c\udf78"'),
        (rb'"\ud83d\n"', rb'"\ufffd\n"'),
        (rb'"path \\ud83d"', rb'"path \\ud83d"'),
        (rb'"path \\\ud83d"', rb'"path \\\ufffd"'),
        (b'"\xe4"', '"\ufffd"'.encode()),
        (b'"\xf0\x9f\x98"', '"\ufffd"'.encode()),
        (b"\xef\xbb\xbf{}", b"{}"),
    ],
)
def test_only_what_is_no_text_is_replaced(found: bytes, kept: bytes) -> None:
    assert repair(found) == kept


@given(st.binary(max_size=60))
def test_what_is_kept_is_utf8(body: bytes) -> None:
    repair(body).decode()


@given(st.text(st.characters(exclude_categories=()), max_size=40), st.booleans())
def test_json_stays_json_and_its_text_can_be_written(text: str, escaped: bool) -> None:
    body = json.dumps(text, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    read = json.loads(repair(body))
    read.encode()
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert read == text


def test_text_for_a_terminal_has_no_controls_and_an_end() -> None:
    assert one_line("red \x1b[31m\nalert\u2028now", 100) == "red [31m alert now"
    assert one_line("x" * 50, 10) == "x" * 9 + "…"
