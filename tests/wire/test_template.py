from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.errors import UsageError
from batchwright.wire.template import Template

COLUMNS = ("text", "label", "with blank")
ROW = {"text": "{label} {{x}}", "label": "L", "with blank": "B"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("One word: {text}", "One word: {label} {{x}}"),
        ("{label}{label}|{with blank}", "LL|B"),
        ("{{ label }}", "L"),
        ("{{\tlabel }} and {{literal}} {label}", "L and {literal} L"),
        ('{{"label": "{label}"}}', '{"label": "L"}'),
        ('{{ "label": "{label}" }}', '{ "label": "L" }'),
        ("{{{label}}}", "{L}"),
        ("{ label }", "L"),
    ],
)
def test_filling(text: str, filled: str) -> None:
    assert Template(text, COLUMNS).fill(ROW) == filled


def test_missing_columns_are_answered_with_those_there_are() -> None:
    for text in ("{txt}", "{{ txt }}", "{}", "{0}", "{text!r}"):
        with pytest.raises(UsageError, match=r"\{text\}, \{label\}, \{with blank\}"):
            Template(text, COLUMNS)


@pytest.mark.parametrize("text", ["{text", "text}", "{text}}", "}{text}", "{{text}} {"])
def test_lone_braces(text: str) -> None:
    with pytest.raises(UsageError, match=r"lone|names no column"):
        Template(text, COLUMNS)


def test_a_prompt_without_a_column_is_refused_a_system_message_is_not() -> None:
    with pytest.raises(UsageError, match="the same prompt"):
        Template("{{text}}", COLUMNS)
    assert Template("Be {{short}}", COLUMNS, option="--system", constant=True).fill(ROW) == "Be {short}"


def test_columns_in_use() -> None:
    assert Template("{label}{text}{label}", COLUMNS).columns == ("label", "text")


@given(st.text(), st.text())
def test_values_and_escaped_literals_arrive_as_they_are(value: str, literal: str) -> None:
    escaped = literal.replace("{", "{{").replace("}", "}}")
    # A doubled brace before a blank may be the Jinja spelling: those are in the table above.
    if "{{ " not in escaped and "{{\t" not in escaped:
        assert Template(escaped + "|{text}", ["text"]).fill({"text": value}) == literal + "|" + value
