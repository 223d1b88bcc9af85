"""Arrow columns of every type that is kept, with values: for hypothesis, and one table of them by hand."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import strategies as st

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
UNITS = ("s", "ms", "us", "ns")
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
FLOATS = (pa.float16(), pa.float32(), pa.float64())
ZONES = (None, "UTC", "Europe/Berlin", "America/St_Johns", "+05:30")
DAY_S = 86_400


def _bounds(kind: Any) -> tuple[int, int]:
    signed = pa.types.is_signed_integer(kind)
    return (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1) if signed else (0, 2**kind.bit_width - 1)


def _counted(kind: Any, least: int, most: int) -> tuple[Any, st.SearchStrategy[Any]]:
    """Values of a time type, as numbers of its units."""
    return kind, st.integers(least, most)


def leaves() -> list[tuple[Any, st.SearchStrategy[Any]]]:
    found: list[tuple[Any, st.SearchStrategy[Any]]] = [(kind, st.integers(*_bounds(kind))) for kind in INTEGERS]
    found += [(kind, st.floats(width=kind.bit_width)) for kind in FLOATS]
    found += [(pa.bool_(), st.booleans()), (pa.string(), TEXT), (pa.large_string(), TEXT)]
    found += [(pa.binary(), st.binary(max_size=8)), (pa.large_binary(), st.binary(max_size=8))]
    found += [(pa.binary(4), st.binary(min_size=4, max_size=4)), (pa.null(), st.none())]
    for kind in (pa.decimal128(20, 4), pa.decimal128(38, 12), pa.decimal256(60, 2), pa.decimal128(5, -3)):
        digits = st.integers(-(10**kind.precision - 1), 10**kind.precision - 1)
        found.append((kind, st.builds(_decimal, digits, st.just(kind.scale))))
    years = (-62_135_596_800, 253_402_300_799)
    for unit, each in zip(UNITS, (1, 10**3, 10**6, 10**9), strict=True):
        least, most = (years[0] * each, years[1] * each) if unit != "ns" else (-(2**63) + 2 * DAY_S * each, 2**62)
        found += [_counted(pa.timestamp(unit, zone), least, most) for zone in ZONES]
        found.append(_counted(pa.duration(unit), -(2**62), 2**62))
    # Far beyond the years that a calendar has four digits for.
    found += [_counted(pa.timestamp("s"), -(2**40), 2**40), _counted(pa.date32(), -(10**7), 10**7)]
    found += [_counted(pa.time32("s"), 0, DAY_S - 1), _counted(pa.time32("ms"), 0, DAY_S * 1000 - 1)]
    found += [_counted(pa.time64("us"), 0, DAY_S * 10**6 - 1), _counted(pa.time64("ns"), 0, DAY_S * 10**9 - 1)]
    found.append((pa.date64(), st.integers(-700_000, 2_900_000).map(lambda days: days * DAY_S * 1000)))
    return found


def _decimal(number: int, scale: int) -> Decimal:
    sign, digits = int(number < 0), tuple(map(int, str(abs(number))))
    return Decimal((sign, digits, -scale))


def _nested(child: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    def lists(made: tuple[Any, Any]) -> st.SearchStrategy[tuple[Any, Any]]:
        kind, values = made
        several = st.lists(_or_none(values), max_size=3)
        pair = st.lists(_or_none(values), min_size=2, max_size=2)
        keyed = st.dictionaries(TEXT, _or_none(values), max_size=3).map(lambda found: list(found.items()))
        numbered = st.dictionaries(st.integers(0, 9), _or_none(values), max_size=3)
        return st.sampled_from(
            [
                (pa.list_(kind), several),
                (pa.large_list(kind), several),
                (pa.list_(kind, 2), pair),
                (pa.map_(pa.string(), kind), keyed),
                (pa.map_(pa.int32(), kind), numbered.map(lambda found: list(found.items()))),
            ]
        )

    def structs(made: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        fields = {f"f{number}": kind for number, (kind, _) in enumerate(made)}
        values = {f"f{number}": _or_none(value) for number, (_, value) in enumerate(made)}
        return pa.struct(list(fields.items())), st.fixed_dictionaries(values)

    return st.one_of(child.flatmap(lists), st.lists(child, min_size=1, max_size=3).map(structs))


def _or_none(values: Any) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


@st.composite
def columns(draw: st.DrawFn) -> Any:
    """An array of a type that is kept, nested up to a few times."""
    kind, values = draw(st.recursive(st.sampled_from(leaves()), _nested, max_leaves=4))
    return array_of_raw(draw(st.lists(_or_none(values), max_size=6)), kind)


def array_of_raw(values: list[Any], kind: Any) -> Any:
    """Times as numbers of their units, anywhere inside."""
    return pa.array(values, _raw(kind)).cast(kind) if _raw(kind) != kind else pa.array(values, kind)


def _raw(kind: Any) -> Any:
    """The type with numbers in the place of times, and floats of 32 bits in that of 16."""
    types = pa.types
    if types.is_float16(kind):
        return pa.float32()
    if types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _raw(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(kind.key_type, _raw(kind.item_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(_raw(kind.value_type), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(_raw(kind.value_type))
    return pa.list_(_raw(kind.value_type)) if types.is_list(kind) else kind


def every_type() -> Any:
    """A table of three rows: one of values, one of nulls, one more of values."""
    noon = dt.datetime(2026, 3, 1, 12, 30, 15, 250_000)
    made = {
        "whole": pa.array([1, None, -(2**63)], pa.int64()),
        "unsigned": pa.array([2**64 - 1, None, 0], pa.uint64()),
        "small": pa.array([0.1, None, 1.0], pa.float32()),
        "real": pa.array([0.5, None, float("inf")], pa.float64()),
        "truth": pa.array([True, None, False]),
        "text": pa.array(["ü\n", None, ""]),
        "price": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(12, 2)),
        "day": pa.array([noon.date(), None, noon.date()], pa.date32()),
        "clock": pa.array([noon.time(), None, dt.time()], pa.time64("us")),
        "moment": pa.array([noon, None, dt.datetime(2026, 1, 1)], pa.timestamp("ns")),
        "zoned": pa.array([noon, None, noon], pa.timestamp("ms", "Europe/Berlin")),
        "utc": pa.array([noon, None, noon], pa.timestamp("us", "UTC")),
        "span": pa.array([dt.timedelta(seconds=90), None, dt.timedelta(milliseconds=-5)], pa.duration("ms")),
        "bytes": pa.array([b"\0\xff", None, b""]),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int32())),
        "struct": pa.array([{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}]),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
    return pa.table(made)
