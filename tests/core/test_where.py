"""`--where`: what it takes, what it cannot tell, and that each fault is shown by its place."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.errors import UsageError
from batchwright.core.where import Where

TABLE = {"lang": "de", "stars": "4.0", "n": "10", "m": "9", "empty": "", "note": "n/a", "order id": "7", "class": "x"}
JSON: dict[str, Any] = {
    "lang": "de",
    "stars": 4,
    "share": 0.1,
    "yes": True,
    "nothing": None,
    "tags": ["a", "b", 3],
    "deep": {"x": 1},
    "empty": "",
    "day": date(2026, 3, 1),
    "price": Decimal("0.10"),
    "nan": float("nan"),
    "big": 10**30,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lang == 'de'", True),
        ('lang != "de"', False),
        ("lang == 'de' and stars >= 4", True),
        ("stars == 4", True),
        ("stars == 4.0", True),
        ("stars == '4'", False),  # two texts
        ("stars > 3 and stars < 5", True),
        ("3 <= stars <= 4", True),
        ("3 <= stars < 4", False),
        ("n > m", False),  # two texts: '10' is before '9'
        ("+n > +m", True),
        ("n > 9", True),
        ("n == 1e1", True),
        ("-5 < n", True),
        ("note >= 4", None),
        ("not note >= 4", None),
        ("note >= 4 or lang == 'de'", True),
        ("note >= 4 and lang == 'en'", False),
        ("note >= 4 or lang == 'en'", None),
        ("empty > 0", None),
        ("empty is null", True),
        ("empty == ''", True),
        ("lang is not null", True),
        ("note is null", False),
        ("lang in ('de', 'fr')", True),
        ("lang not in ['de', 'fr']", False),
        ("stars in (1, 4)", True),
        ("note in (1, 4)", None),
        ("note in (1, 'n/a')", True),
        ("'e' in lang", True),
        ("'x' not in lang", True),
        ("`order id` == 7", True),
        ("class == 'x'", True),
        ("LANG == 'de'", "no column 'LANG'"),
        ("Not lang == 'en' AND lang IS NOT NULL", True),
        ("lang == 'en' or lang == 'de' and n == 10", True),
        ("(lang == 'en' or lang == 'de') and n == 11", False),
        (r"note != 'it\'s'", True),
    ],
)
def test_of_a_table(text: str, expected: bool | str | None) -> None:
    where = Where(text)
    if isinstance(expected, str):
        with pytest.raises(UsageError, match=expected):
            where.check(tuple(TABLE), all_there=True)
        return
    where.check(tuple(TABLE), all_there=True)
    assert where.holds(TABLE, texts=True) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stars >= 4", True),
        ("stars == '4'", True),  # a number and a text: both as numbers
        ("stars == 'four'", None),
        ("share == 0.1", True),
        ("price == 0.1", True),
        ("big > 1e29", True),
        ("yes == true", True),
        ("yes == 'true'", True),
        ("yes == 1", None),
        ("yes > false", None),
        ("nothing == 'x'", None),
        ("nothing != 'x'", None),
        ("nothing is null", True),
        ("nan is null", False),
        ("nan == nan", None),
        ("missing is null", True),
        ("empty is null", False),
        ("'a' in tags", True),
        ("3 in tags", True),
        ("'c' in tags", False),
        ("nothing in tags", None),
        ("'x' in stars", None),
        ("tags == 'a'", None),
        ("deep == 'x'", None),
        ("day >= '2026-02-01'", True),
    ],
)
def test_of_json(text: str, expected: bool | None) -> None:
    assert Where(text).holds(JSON, texts=False) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a column, a text or a number, found the end (at character 1)"),
        ("lang = 'de'", "did you mean ==? (at character 6)"),
        ("lang <> 'de'", "did you mean !=?"),
        ("a == 1 && b == 2", "did you mean and?"),
        ("stars >=", "found the end (at character 9)"),
        ("stars", "expected a comparison (==, !=, <=, >=, <, >, in, is null), found the end"),
        ("len(text) > 3", "'len' cannot be called: there are no functions here (at character 4)"),
        ("text.__class__ == 'x'", "a column's value has no parts here"),
        ("text[0] == 'x'", "expected a comparison"),
        ("stars + 1 == 2", "expected a comparison"),
        ("stars == -text", "there is no arithmetic here"),
        ("stars == null", "asked for with `is null`"),
        ("stars is 4", "expected null, found '4'"),
        ("not", "found the end"),
        ("lang not 'de'", "expected in, found"),
        ("lang == 'de", "a text that does not end: its quote is missing (at character 9)"),
        ("`lang == 'de'", "its backtick is missing"),
        ("(lang == 'de'", "expected ), found the end"),
        ("lang == 'de')", "expected and, or, or the end, found ')'"),
        ("lang in ()", "expected something in the list"),
        ("lang in ('a' 'b')", "expected ), found ''b''"),
        ("lang in 'de'", "expected a list such as ('a', 'b'), or a column"),
        ("4x == 1", "a number that goes on with letters"),
        ("lang == 'a' # all", "'#' has no meaning here (at character 13)"),
        (r"lang == '\d'", "expected \\', \\\", \\\\, \\n or \\t, found \\d (at character 10)"),
        ("n == 1e999", "out of range"),
        ("(" * 200 + "n == 1" + ")" * 200, "more than 50 parentheses"),
        ("not " * 3000 + "n == 1", "at most 10,000 characters"),
        ("lambda: 1", "':' has no meaning here"),
    ],
)
def test_faults_are_told_by_their_place(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Where(text)
    assert message in str(caught.value)


def test_the_place_is_shown_in_long_texts_too() -> None:
    text = " or ".join(f"stars == {number}" for number in range(40)) + " or lang = 'de'"
    with pytest.raises(UsageError) as caught:
        Where(text)
    _, shown, mark = str(caught.value).split("\n")
    assert shown[mark.index("^")] == "="
    assert len(shown) < 70


def test_rows_of_json_may_lack_what_is_asked_for_null() -> None:
    where = Where("lang is null or lang == 'de'")
    where.check(("text",), all_there=False)
    assert where.holds({"text": "x"}, texts=False) is True
    with pytest.raises(UsageError, match="there is no column 'lang'; the input has text"):
        where.check(("text",), all_there=True)
    with pytest.raises(UsageError, match="no column 'lang'"):
        Where("lang == 'de'").check(("text",), all_there=False)


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_told(text: str) -> None:
    try:
        where = Where(text)
    except UsageError:
        return
    assert where.holds(JSON, texts=False) in (True, False, None)


NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)


@given(NUMBERS, NUMBERS)
def test_numbers_compare_as_numbers_however_they_came(left: float, right: float) -> None:
    for row, texts in (({"a": left}, False), ({"a": repr(left)}, True), ({"a": f" {left!r} "}, True)):
        assert Where(f"a < {right!r}").holds(row, texts=texts) is (left < right)
        assert Where(f"a == {right!r}").holds(row, texts=texts) is (left == right)


VALUES = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=3), st.lists(st.text(max_size=1), max_size=2))


@given(VALUES, st.sampled_from(["a == 'x'", "a > 3", "a in (1, 'y')", "a == true", "a is null"]))
def test_a_row_is_in_one_of_three_parts(value: object, text: str) -> None:
    row = {"a": value}
    holds, not_holds = Where(text).holds(row, texts=False), Where(f"not ({text})").holds(row, texts=False)
    assert (holds, not_holds) in ((True, False), (False, True), (None, None))
    assert Where(f"{text} or not {text}").holds(row, texts=False) is (True if holds is not None else None)
