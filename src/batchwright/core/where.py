"""What a `--where` means for a row: true, false, or not known; only rows for which it is true are taken.

A value is text, a number, true or false, null, or something else (a list, an object). Values of CSV are all text.

    text with text          as text, sign by sign: '10' < '9'
    text with a number      the text is read as a number: '4.0' == 4
    true, false             with each other, == and != alone; the texts true and false count as them
    anything with null, or what cannot be read as the other is; a list with <    not known

Not known is neither true nor false, and stays so through `not`, as in SQL: `not stars >= 4` does not take a row whose
stars are `n/a`. Such rows are counted, since a person may not have thought of them. `x in column` asks a list for an
element, and a text for a part of it. `is null` is always known; of a table an empty field is null.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal

from batchwright.core.column_names import clip, listed
from batchwright.core.where_text import (
    All,
    Any,
    Column,
    Comparison,
    Condition,
    IsNull,
    Literal,
    Membership,
    Not,
    Number,
    Operand,
    Scalar,
    fault,
    number_of,
    read_where,
)

Values = Mapping[str, object]
Test = Callable[[Values, bool], bool | None]
"""(a row's values, whether an empty text is null) -> None: not known."""

_SIGNS: dict[str, Callable[..., bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Where:
    """A condition. Raises UsageError for a text that is none."""

    def __init__(self, text: str) -> None:
        self._text = text
        condition = read_where(text)
        self._columns: dict[str, int] = {}
        """By name, where each stands first."""
        self._perhaps: set[str] = set()
        """Of these, those that are asked whether they are null: rows of JSON may lack them."""
        self._test = self._compiled(condition)

    def check(self, columns: Collection[str], *, all_there: bool) -> None:
        """Raises UsageError for a column that is none of these. `all_there`: no row has another."""
        for name, at in self._columns.items():
            if name not in columns and (all_there or name not in self._perhaps):
                said = f"there is no column {clip(name)!r}; the input has {listed(tuple(columns))}"
                raise fault(self._text, at, said)

    def holds(self, values: Values, *, texts: bool) -> bool | None:
        """None: not known. `texts`: the values are a table's, all of them text."""
        return self._test(values, texts)

    def _compiled(self, condition: Condition) -> Test:
        match condition:
            case Comparison():
                return self._comparison(condition)
            case Membership():
                return self._membership(condition)
            case IsNull(column):
                self._perhaps.add(column.name)
                name = self._noted(column)
                return lambda values, texts: (value := values.get(name)) is None or (texts and value == "")
            case Not(inner):
                test = self._compiled(inner)
                return lambda values, texts: None if (found := test(values, texts)) is None else not found
            case All(conditions):
                return _all([self._compiled(each) for each in conditions])
            case Any(conditions):
                tests = [_negated(self._compiled(each)) for each in conditions]
                return _negated(_all(tests))

    def _comparison(self, found: Comparison) -> Test:
        left, right, compare = self._value_of(found.left), self._value_of(found.right), _SIGNS[found.sign]
        ordered = found.sign not in ("==", "!=")
        return lambda values, _: _compared(left(values), right(values), compare, ordered=ordered)

    def _membership(self, found: Membership) -> Test:
        item = self._value_of(found.item)
        if isinstance(found.among, Column):
            among = self._value_of(found.among)
            return lambda values, _: _is_in_value(item(values), among(values))
        choices = found.among
        return lambda values, _: _is_among(item(values), choices)

    def _value_of(self, operand: Operand) -> Callable[[Values], object]:
        if isinstance(operand, Literal):
            value = operand.value
            return lambda _: value
        name = self._noted(operand)
        if operand.as_number:
            return lambda values: _as_number(plain(values.get(name)))
        return lambda values: plain(values.get(name))

    def _noted(self, column: Column) -> str:
        self._columns.setdefault(column.name, column.at)
        return column.name


def plain(value: object) -> object:
    """As one of the kinds of the module's docstring: what has no kind of its own (a date) is its text."""
    if value is None or isinstance(value, str | bool | int | list | tuple | dict):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Decimal):
        return number_of(str(value))
    return str(value)


def _all(tests: list[Test]) -> Test:
    def holds(values: Values, texts: bool) -> bool | None:
        found: bool | None = True
        for test in tests:
            one = test(values, texts)
            if one is False:
                return False
            if one is None:
                found = None
        return found

    return holds


def _negated(test: Test) -> Test:
    return lambda values, texts: None if (found := test(values, texts)) is None else not found


def _compared(left: object, right: object, compare: Callable[..., bool], *, ordered: bool) -> bool | None:
    if isinstance(left, str) and isinstance(right, str):
        return compare(left, right)
    if isinstance(left, bool) or isinstance(right, bool):
        one, other = _as_bool(left), _as_bool(right)
        return None if ordered or one is None or other is None else compare(one, other)
    if isinstance(left, int | float | str) and isinstance(right, int | float | str):
        number, other_number = _as_number(left), _as_number(right)
        return None if number is None or other_number is None else compare(number, other_number)
    return None


def _as_number(value: object) -> Number | None:
    if isinstance(value, str):
        return number_of(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_bool(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _is_among(item: object, choices: Collection[Scalar]) -> bool | None:
    """As if it was compared with each, joined by `or`."""
    found: bool | None = False
    for choice in choices:
        one = _compared(item, choice, operator.eq, ordered=False)
        if one:
            return True
        if one is None:
            found = None
    return found


def _is_in_value(item: object, among: object) -> bool | None:
    if isinstance(among, str):
        return item in among if isinstance(item, str) else None
    if isinstance(among, list | tuple) and item is not None:
        return any(_compared(item, plain(each), operator.eq, ordered=False) for each in among)
    return None
