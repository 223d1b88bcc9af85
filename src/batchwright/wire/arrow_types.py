"""Types of Arrow columns: as which they are kept beside rows, and what else is asked of one."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

Type = Any
"""A `pyarrow.DataType`; the package has no types of its own."""
Array = Any
Schema = Any

BATCH_ID = b"batchwright.batch_id"
"""In a schema's metadata: by it a file is known to hold answers, and whose."""


class UnkeptType(Exception):
    """A type whose values have no text. The message names it."""


def kept_type(kind: Type) -> Type:
    """The type that a column's values have once they went through text and back. Raises UnkeptType."""
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return kept_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        inner = kept_type(kind.storage_type)
        return kind if inner == kind.storage_type else inner
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_struct(kind):
        names = [field.name for field in kind]
        if len(set(names)) < len(names):
            raise UnkeptType(f"{kind}, in which a name stands twice")
        return pa.struct([_kept_field(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(_kept_field(kind.key_field), _kept_field(kind.item_field), keys_sorted=kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(_kept_field(kind.value_field), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(_kept_field(kind.value_field))
    if is_list(kind):
        return pa.list_(_kept_field(kind.value_field))
    if types.is_union(kind) or types.is_interval(kind):
        raise UnkeptType(str(kind))
    return kind


def kept_field(field: Any) -> Any:
    """A column as it is kept: nullable, since a row that was refused may lack it. Raises UnkeptType."""
    return _kept_field(field).with_nullable(True)


def _kept_field(field: Any) -> Any:
    return field.with_type(kept_type(field.type))


def holds_binary(kind: Type) -> bool:
    """Whether it is bytes, or has some inside."""
    if isinstance(kind, pa.BaseExtensionType):
        return not is_uuid(kind) and holds_binary(kind.storage_type)
    if pa.types.is_nested(kind):
        return any(holds_binary(kind.field(number).type) for number in range(kind.num_fields))
    return is_binary(kind)


def schema_text(schema: Schema) -> str:
    """As a batch keeps it."""
    return base64.b64encode(schema.serialize()).decode()


def schema_of(text: str) -> Schema:
    """The inverse."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _any_of(*names: str) -> Callable[[Type], bool]:
    tests = [getattr(pa.types, name) for name in names]
    return lambda kind: any(test(kind) for test in tests)


is_list = _any_of("is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view")
is_binary = _any_of("is_binary", "is_large_binary", "is_fixed_size_binary", "is_binary_view")


def is_uuid(kind: Type) -> bool:
    return getattr(kind, "extension_name", "") == "arrow.uuid"
