"""A typed column becomes text and the same column again."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given

from batchwright.wire.arrow_types import UnkeptType, holds_binary, kept_type, schema_of, schema_text
from batchwright.wire.arrow_values import array_of, plain_values, texts_of
from support.typed_columns import columns, every_type

UUID = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(range(16))], pa.binary(16)))


def same(one: Any, other: Any) -> bool:
    """NaN is the same as NaN here."""
    return bool(one.equals(other)) or str(one.to_pylist()) == str(other.to_pylist())


@given(columns())
def test_text_and_back_loses_nothing(column: Any) -> None:
    texts = texts_of(column)
    assert [text is None for text in texts] == column.is_null().to_pylist()
    again = array_of(texts, kept_type(column.type))
    assert again.type == column.type
    assert same(again, column)
    again.validate(full=True)


@given(columns())
def test_a_slice_is_its_own_rows_alone(column: Any) -> None:
    assert texts_of(column.slice(1)) == texts_of(column)[1:]


def test_what_a_prompt_says() -> None:
    table = every_type().to_batches()[0]
    first = {name: texts_of(column)[0] for name, column in zip(table.schema.names, table.columns, strict=True)}
    assert first == {
        "whole": "1",
        "unsigned": "18446744073709551615",
        "small": "0.1",
        "real": "0.5",
        "truth": "true",
        "text": "ü\n",
        "price": "1.50",
        "day": "2026-03-01",
        "clock": "12:30:15.25",
        "moment": "2026-03-01T12:30:15.25",
        "zoned": "2026-03-01T13:30:15.25+01:00",
        "utc": "2026-03-01T12:30:15.25Z",
        "span": "PT90S",
        "bytes": "AP8=",
        "list": "[1,null]",
        "struct": '{"a":1,"b":{"c":"x"}}',
        "map": '{"k":1}',
    }
    assert all(texts_of(column)[1] is None for column in table.columns)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (pa.array([1.0]), "1.0"),
        (pa.array([1e300]), "1e+300"),
        (pa.array([float("nan")]), "nan"),
        (pa.array([[float("inf")]]), '["inf"]'),
        (pa.array([Decimal("0.000000000010")], pa.decimal128(38, 12)), "0.000000000010"),
        (pa.array([Decimal("1000")], pa.decimal128(5, -3)), "1000"),
        (pa.array([0], pa.timestamp("s", "UTC")), "1970-01-01T00:00:00Z"),
        (pa.array([-(2**32)], pa.timestamp("s", "Europe/Berlin")), "1833-11-24T17:31:44Z"),
        (pa.array([0], pa.timestamp("ns")), "1970-01-01T00:00:00"),
        (pa.array([2**40], pa.timestamp("s")), "1099511627776"),
        (pa.array(["x"]).dictionary_encode(), "x"),
        (pa.array(["x"], pa.string_view()), "x"),
        (UUID, "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}'])), '{"a": 1}'),
    ],
)
def test_each_value_as_text(array: Any, text: str) -> None:
    assert texts_of(array) == [text]
    again = array_of([text], kept_type(array.type))
    assert again.equals(array) or str(again.to_pylist()) == str(array.to_pylist())


def test_dictionaries_and_views_are_kept_as_their_values_wherever_they_stand() -> None:
    words = pa.dictionary(pa.int8(), pa.string())
    kind = pa.struct([("a", words), ("b", pa.list_(words)), ("c", pa.list_view(pa.string_view()))])
    assert kept_type(kind) == pa.struct(
        [("a", pa.string()), ("b", pa.list_(pa.string())), ("c", pa.list_(pa.string()))]
    )
    nested = pa.array([["x", "y"], None, ["x"]], pa.list_(pa.string())).cast(pa.list_(words))
    assert texts_of(nested) == ['["x","y"]', None, '["x"]']


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.dense_union([pa.field("a", pa.int8())])])
def test_a_type_without_text_is_named(kind: Any) -> None:
    with pytest.raises(UnkeptType):
        kept_type(pa.struct([("a", kind)]))


def test_a_struct_in_which_a_name_stands_twice() -> None:
    with pytest.raises(UnkeptType, match="twice"):
        kept_type(pa.struct([("a", pa.int8()), ("a", pa.int8())]))


def test_bytes_are_found_inside() -> None:
    assert holds_binary(pa.list_(pa.struct([("bytes", pa.binary())])))
    assert not holds_binary(pa.list_(pa.struct([("path", pa.string())])))
    assert not holds_binary(pa.uuid())


def test_what_is_sent_has_no_nulls_in_structs_and_no_points_on_whole_numbers() -> None:
    body = pa.array([{"a": 64.0, "b": None, "c": [Decimal("0.10")], "d": float("nan")}])
    assert msgspec.json.encode(plain_values(body, sent=True)) == b'[{"a":64,"c":[0.10]}]'


def test_a_schema_as_a_batch_keeps_it() -> None:
    schema = every_type().schema
    assert schema_of(schema_text(schema)) == schema
