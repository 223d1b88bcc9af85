"""Arrow values as texts and back, without loss: a column of a typed table is kept beside its rows as text, as a CSV's
is, and gets its type again on the way out.

    integers           digits                     booleans    true, false
    floats             as Python writes them      decimals    all their digits
    dates and times    ISO 8601, a zone's offset behind it; beyond the years 1 to 9999 the bare number of units
    durations          ISO 8601 in seconds, PT1.5S
    binary             base64                     lists, structs, maps    JSON; decimals and times in it are strings

Null is None. Dictionaries are their values. Everything goes column by column, since a row at a time would cost ten
times as much.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from batchwright.wire.arrow_build import binaries, booleans, floats, integers, offsets, strings
from batchwright.wire.arrow_types import Array, Type, is_binary, is_list, is_uuid, kept_type

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_UNITS_A_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_MS: Final = 86_400_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since the epoch: what ISO 8601 has four digits for."""


def as_kept(array: Array, kind: Type) -> Array:
    """The same values in the type that `kept_type` gave for them. An extension's own types are left to its storage."""
    types = pa.types
    if array.type == kind:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return as_kept(array.storage, kind)
    if types.is_dictionary(array.type):
        return as_kept(array.dictionary, kind).take(array.indices)
    if types.is_run_end_encoded(array.type):
        return as_kept(pc.run_end_decode(array), kind)
    if types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        children = [as_kept(child, field.type) for child, field in zip(array.flatten(), fields, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if types.is_map(kind):
        keys, items = _entries(array)
        parts = (as_kept(keys, kind.key_type), as_kept(items, kind.item_type))
        return pa.MapArray.from_arrays(offsets(_lengths(array), pa.int32()), *parts, type=kind)
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        values = as_kept(array.values.slice(array.offset * size, len(array) * size), kind.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=array.is_null())
    if is_list(kind):
        return _wrapped(_lengths(array), as_kept(pc.list_flatten(array), kind.value_type), kind)
    return array.cast(kind)


def texts_of(array: Array) -> list[str | None]:
    """Each value as text. Raises UnicodeDecodeError for strings that are not UTF-8."""
    array = as_kept(array, kept_type(array.type))
    values = plain_values(array)
    kind = array.type.storage_type if isinstance(array.type, pa.BaseExtensionType) else array.type
    if pa.types.is_floating(kind):
        return [value if value is None or type(value) is str else repr(value) for value in values]
    if pa.types.is_integer(kind):
        return [None if value is None else str(value) for value in values]
    if pa.types.is_boolean(kind):
        return [None if value is None else "true" if value else "false" for value in values]
    if pa.types.is_nested(kind):
        return [None if value is None else _encode(value).decode() for value in values]
    return values  # strings already


def plain_values(array: Array, *, sent: bool = False) -> list[Any]:
    """Each value of an array of a kept type as what JSON can say.

    `sent`: as a request wants it, where nothing must come back from it: decimals are numbers, whole floats have no
    point (a table's nulls make floats of integers), and a struct has no nulls.
    """
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _uuids(array.storage) if is_uuid(kind) else plain_values(array.storage, sent=sent)
    if types.is_struct(kind):
        return _structs(array, sent=sent)
    if types.is_map(kind):
        return _maps(array, sent=sent)
    if is_list(kind):
        return _lists(array, sent=sent)
    if types.is_floating(kind):
        return _floats(array, sent=sent)
    if is_binary(kind):
        return [None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()]
    if types.is_decimal(kind):
        texts = [None if value is None else f"{value:f}" for value in array.to_pylist()]
        return [None if text is None else msgspec.Raw(text.encode()) for text in texts] if sent else texts
    if types.is_temporal(kind):
        return _times(array)
    found: list[Any] = array.to_pylist()
    return found


def array_of(texts: Sequence[str | None], kind: Type) -> Array:
    """What `texts_of` made, as an array of this type (one that `kept_type` gave)."""
    inner = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    values: Sequence[Any] = texts
    if pa.types.is_integer(inner):
        values = [None if text is None else int(text) for text in texts]
    elif pa.types.is_boolean(inner):
        values = [None if text is None else text == "true" for text in texts]
    elif pa.types.is_nested(inner):
        values = [None if text is None else _decode(text) for text in texts]
    return _array(values, kind)


# --------------------------------------------------------------------------------------------------- values out of it


def _structs(array: Array, *, sent: bool) -> list[Any]:
    kind = array.type
    names = [kind.field(number).name for number in range(kind.num_fields)]
    columns = [plain_values(child, sent=sent) for child in array.flatten()]
    rows = zip(*columns, strict=True) if columns else [()] * len(array)
    found: list[Any] = []
    for there, row in zip(array.is_valid().to_pylist(), rows, strict=True):
        if not there:
            found.append(None)
        elif sent:
            found.append({name: value for name, value in zip(names, row, strict=True) if value is not None})
        else:
            found.append(dict(zip(names, row, strict=True)))
    return found


def _lists(array: Array, *, sent: bool) -> list[Any]:
    values = plain_values(pc.list_flatten(array), sent=sent)
    found: list[Any] = []
    at = 0
    for length in _lengths(array):
        found.append(None if length is None else values[at : at + length])
        at += length or 0
    return found


def _maps(array: Array, *, sent: bool) -> list[Any]:
    """An object where its keys are strings, each once; else pairs."""
    keys, items = (plain_values(entries, sent=sent) for entries in _entries(array))
    as_objects = pa.types.is_string(array.type.key_type) or pa.types.is_large_string(array.type.key_type)
    found: list[Any] = []
    at = 0
    for length in _lengths(array):
        if length is None:
            found.append(None)
            continue
        pairs = list(zip(keys[at : at + length], items[at : at + length], strict=True))
        named = dict(pairs)
        found.append(named if as_objects and len(named) == length else pairs)
        at += length
    return found


def _entries(array: Array) -> tuple[Array, Array]:
    """A map's keys and items, of the entries that it has."""
    offsets = array.offsets
    first, size = offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py()
    keys, items = array.keys.slice(first, size), array.items.slice(first, size)
    if array.null_count:  # what stands behind a null is no entry
        valid = zip(array.is_valid().to_pylist(), _spans(array), strict=True)
        there = booleans([one for one, each in valid for _ in range(each)])
        keys, items = keys.filter(there), items.filter(there)
    return keys, items


def _spans(array: Array) -> list[int]:
    ends = array.offsets.to_pylist()
    return [end - begin for begin, end in pairwise(ends)]


def _lengths(array: Array) -> list[int | None]:
    """Of a list's or map's values; None for null."""
    if not pa.types.is_map(array.type):
        lengths: list[int | None] = pc.list_value_length(array).to_pylist()
        return lengths
    return [each if valid else None for valid, each in zip(array.is_valid().to_pylist(), _spans(array), strict=True)]


def _floats(array: Array, *, sent: bool) -> list[Any]:
    if array.type == pa.float64():
        values = array.to_pylist()
    else:
        # By its own digits: 0.1 of 32 bits is 0.10000000149011612 of 64.
        texts = array.cast(pa.float32()).cast(pa.string()).to_pylist()
        values = [None if text is None else float(text) for text in texts]
    if sent:
        return [None if value is None or value - value else _whole(value) for value in values]
    return [str(value) if value is not None and value - value else value for value in values]


def _whole(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _times(array: Array) -> list[Any]:
    kind, types = array.type, pa.types
    if types.is_duration(kind):
        each = _UNITS_A_SECOND[kind.unit]
        return [None if count is None else _duration(count, each) for count in array.cast(pa.int64()).to_pylist()]
    if types.is_time(kind):
        clocks: list[Any] = _without_zeros(array.cast(pa.string()), kind.unit).to_pylist()
        return clocks
    texts: list[Any] = _moments(array).to_pylist()
    counts = array.cast(pa.int32() if types.is_date32(kind) else pa.int64())
    least, most = _days_range(kind)
    if len(array) > array.null_count and not (least <= pc.min(counts).as_py() and pc.max(counts).as_py() <= most):
        texts = [
            text if count is None or least <= count <= most else str(count)
            for text, count in zip(texts, counts.to_pylist(), strict=True)
        ]
    return texts


def _days_range(kind: Type) -> tuple[int, int]:
    """What four digits of a year can say, less a day on both sides for zones; in the type's own units."""
    if pa.types.is_date32(kind):
        return _FIRST_DAY, _LAST_DAY
    each = _DAY_MS if pa.types.is_date64(kind) else 86_400 * _UNITS_A_SECOND[kind.unit]
    return (_FIRST_DAY + 1) * each, (_LAST_DAY - 1) * each


def _moments(array: Array) -> Array:
    kind = array.type
    if not pa.types.is_timestamp(kind):
        return array.cast(pa.string())
    wall = _wall(array, kind.unit)
    if kind.tz is None:
        return wall
    if kind.tz == "UTC":
        return _joined(wall, strings(["Z"])[0])
    # Zones once had offsets with seconds in them, which ISO 8601 has no place for: those moments are told in UTC.
    minute = integers([60 * _UNITS_A_SECOND[kind.unit]], pa.int64())[0]
    utc = array.cast(pa.int64())
    offset = pc.subtract(pc.local_timestamp(array).cast(pa.int64()), utc)
    in_minutes = pc.equal(pc.multiply(pc.divide(offset, minute), minute), offset)
    there = _joined(wall, pc.strftime(array, "%Ez"))
    if pc.all(in_minutes).as_py() is not False:
        return there
    plain = _joined(_wall(utc.cast(pa.timestamp(kind.unit)), kind.unit), strings(["Z"])[0])
    return pc.if_else(in_minutes, there, plain)


def _joined(texts: Array, behind: Any) -> Array:
    return pc.binary_join_element_wise(texts, behind, strings([""])[0])


def _wall(array: Array, unit: str) -> Array:
    return _without_zeros(pc.strftime(array, "%Y-%m-%dT%H:%M:%S"), unit)


def _without_zeros(texts: Array, unit: str) -> Array:
    """Of seconds, what stands behind the point and says nothing."""
    return texts if unit == "s" else pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")


def _duration(count: int, each: int) -> str:
    whole, part = divmod(abs(count), each)
    digits = str(part).zfill(len(str(each)) - 1).rstrip("0") if part else ""
    return f"{'-' if count < 0 else ''}PT{whole}{'.' + digits if digits else ''}S"


def _uuids(storage: Array) -> list[Any]:
    found = []
    for value in storage.to_pylist():
        digits = "" if value is None else value.hex()
        cut = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        found.append("-".join(cut) if digits else None)
    return found


# ------------------------------------------------------------------------------------------------------ and back again


def _array(values: Sequence[Any], kind: Type) -> Array:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        if is_uuid(kind):
            values = [None if value is None else bytes.fromhex(value.replace("-", "")) for value in values]
            return pa.ExtensionArray.from_storage(kind, binaries(values, kind.storage_type))
        return pa.ExtensionArray.from_storage(kind, _array(values, kind.storage_type))
    if types.is_struct(kind):
        return _struct_array(values, kind)
    if types.is_map(kind):
        return _map_array(values, kind)
    if is_list(kind):
        return _list_array(values, kind)
    if types.is_floating(kind):
        return floats([None if value is None else float(value) for value in values], kind)
    if is_binary(kind):
        return binaries([None if value is None else base64.b64decode(value) for value in values], kind)
    if types.is_decimal(kind):
        return strings(values).cast(kind)
    if types.is_temporal(kind):
        return _time_array(values, kind)
    if types.is_integer(kind):
        return integers(values, kind)
    if types.is_boolean(kind):
        return booleans(values)
    return pa.nulls(len(values)) if types.is_null(kind) else strings(values).cast(kind)


def _struct_array(values: Sequence[Any], kind: Type) -> Array:
    fields = [kind.field(number) for number in range(kind.num_fields)]
    missing = [value is None for value in values]
    if not fields:
        return pa.array(values, kind)
    children = []
    for field in fields:
        child = _array([None if value is None else value.get(field.name) for value in values], field.type)
        children.append(child)
    return pa.StructArray.from_arrays(children, fields=fields, mask=booleans(missing))


def _list_array(values: Sequence[Any], kind: Type) -> Array:
    if pa.types.is_fixed_size_list(kind):
        padding = [None] * kind.list_size
        flat = [item for value in values for item in (padding if value is None else value)]
        mask = booleans([value is None for value in values])
        return pa.FixedSizeListArray.from_arrays(_array(flat, kind.value_type), type=kind, mask=mask)
    flat = [item for value in values if value is not None for item in value]
    return _wrapped([None if value is None else len(value) for value in values], _array(flat, kind.value_type), kind)


def _wrapped(lengths: Sequence[int | None], values: Array, kind: Type) -> Array:
    """Lists of so many of these values each."""
    large = pa.types.is_large_list(kind)
    of = pa.LargeListArray if large else pa.ListArray
    return of.from_arrays(offsets(lengths, pa.int64() if large else pa.int32()), values, type=kind)


def _map_array(values: Sequence[Any], kind: Type) -> Array:
    lists = [list(value.items()) if isinstance(value, dict) else value for value in values]
    pairs = [pair for value in lists if value is not None for pair in value]
    keys = _array([key for key, _ in pairs], kind.key_type)
    items = _array([item for _, item in pairs], kind.item_type)
    lengths = [None if value is None else len(value) for value in lists]
    return pa.MapArray.from_arrays(offsets(lengths, pa.int32()), keys, items, type=kind)


def _time_array(texts: Sequence[Any], kind: Type) -> Array:
    types = pa.types
    if types.is_duration(kind):
        return integers([_units(text, _UNITS_A_SECOND[kind.unit]) for text in texts], pa.int64()).cast(kind)
    if types.is_time(kind):
        dated = [None if text is None else f"1970-01-01T{text}" for text in texts]
        return strings(dated).cast(pa.timestamp(kind.unit)).cast(kind)
    numbers = [text if text is not None and text.lstrip("-").isdigit() else None for text in texts]
    dated = [None if number is not None else text for text, number in zip(texts, numbers, strict=True)]
    found = strings(dated).cast(kind)
    if not any(numbers):
        return found
    counts = integers([None if number is None else int(number) for number in numbers], pa.int64())
    counted = counts.cast(pa.int32()).cast(kind) if types.is_date32(kind) else counts.cast(kind)
    return pc.coalesce(counted, found)


def _units(text: Any, each: int) -> int | None:
    if text is None:
        return None
    sign = -1 if text.startswith("-") else 1
    whole, _, part = text.lstrip("-").removeprefix("PT").removesuffix("S").partition(".")
    width = len(str(each)) - 1
    return sign * (int(whole) * each + int(part.ljust(width, "0") or "0"))
