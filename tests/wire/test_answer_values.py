"""Which JSON value an answer's text holds: a clear rule, and nothing guessed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from batchwright.core.failures import FailureKind, Flag
from batchwright.wire.answer_values import NoValue, find_value, mismatch_of, parsed_text, text_of
from support.views import reply_body, view_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (" \n[1, 2]\n", [1, 2]),
        ("\ufeff{}", {}),
        ("5", 5),
        ('"word"', "word"),
        ("null", None),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ("```\n[1]\n```", [1]),
        ('```JSON\r\n"word"\r\n```', "word"),
        ('Here you are [1]:\n```json\n{"a": {"b": [2]}}\n```\nAnything else {x}?', {"a": {"b": [2]}}),
        ('```python\nprint({})\n```\n```json\n{"a": 1}\n```', {"a": 1}),
        ('Sure! {"a": "}{"} is what you asked for.', {"a": "}{"}),
        ('See note [1]: {"a": 1}', {"a": 1}),
        ("The list is [1, [2]].", [1, [2]]),
        ('{broken {"a": 1}', {"a": 1}),
        ('```json\n{"a": 1}', {"a": 1}),
        ('{"big": 123456789012345678901234567890}', {"big": 123456789012345678901234567890}),
    ],
)
def test_the_value_is_found(text: str, value: object) -> None:
    found = find_value(text)
    assert found.value == value
    assert json.loads(found.text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no text"),
        (" \n", "has no text"),
        ("It is good.", "is no JSON, and holds none"),
        ("It is 5.", "is no JSON, and holds none"),
        ('{"a": NaN}', "is no JSON, and holds none"),
        ('{"a": 1', "is no JSON, and holds none"),
        ('{"a": 1} or {"a": 2}', "holds 2 JSON values; expected one"),
        ("[1] and [2]", "holds 2 JSON values; expected one"),
        ('```json\n{"a": 1}\n```\n```json\n{"a": 2}\n```', "has 2 blocks of JSON; expected one"),
        ("[" * 100_000, "is no JSON, and holds none"),
        ('{"a":' * 100_000, "is no JSON, and holds none"),
    ],
)
def test_what_is_not_clear_is_no_value(text: str, words: str) -> None:
    with pytest.raises(NoValue, match=words):
        find_value(text)


@given(st.text(max_size=200), st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4))
def test_an_object_is_found_in_any_text_without_brackets(around: str, value: dict[str, object]) -> None:
    around = "".join(sign for sign in around if sign not in "{}[]`")
    assert find_value(f"x {around} {json.dumps(value)} {around}").value == value


def test_the_text_of_an_answer() -> None:
    assert text_of(Raw(b'"x"')) == "x"
    assert text_of(Raw(b'[{"type":"text","text":"a"},{"type":"thinking"},"odd",{"text":"b"}]')) == "ab"
    assert text_of(Raw(b"null")) == ""
    assert text_of(Raw(b"[0.5]")) == ""


def test_what_outputs_show() -> None:
    inside = '{"a":\n"\u2028 \\ud83d", "n": 1e400}'
    shown = parsed_text(view_of(reply_body(f"So: {inside}")))
    assert len(shown.decode().splitlines()) == 1
    assert json.loads(shown) == {"a": "\u2028 \ufffd", "n": float("inf")}
    assert parsed_text(view_of(reply_body("{}"), flag=Flag.TRUNCATED)) == b"{}"
    for flag in (Flag.SCHEMA_MISMATCH, Flag.REFUSED, Flag.FILTERED, Flag.EMPTY):
        assert parsed_text(view_of(reply_body("{}"), flag=flag)) == b"null"
    kept = view_of(reply_body("{}"), flag=Flag.SCHEMA_MISMATCH, message="at $: no")
    assert mismatch_of(kept) == "at $: no"
    assert parsed_text(view_of(reply_body("{}"), kind=FailureKind.SCHEMA_FAILED)) == b"null"
