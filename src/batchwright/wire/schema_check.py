"""A JSON schema, compiled once, and what it finds wrong with a value. `jsonschema` is imported here and nowhere else.

The dialect is the schema's own `$schema`, else Draft 2020-12. A reference has to lead into the schema itself, or to a
published meta-schema: nothing is ever fetched. `format` is checked for the formats that can be told without another
package; others are passed over, as the drafts allow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import jsonschema  # type: ignore[import-untyped]
import msgspec
import referencing
import referencing.exceptions
from jsonschema import validators  # type: ignore[import-untyped, unused-ignore]
from jsonschema.exceptions import (  # type: ignore[import-untyped]
    SchemaError,
    ValidationError,
    relevance,
)
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing.jsonschema import DRAFT202012

from batchwright.core.errors import UsageError

MAX_SCHEMA_BYTES = 256 * 1024
"""It is stored with its batch, and read with it: far above any schema a model could keep to."""
MAX_FINDINGS = 5
"""Told of one answer, the most relevant first."""
MAX_LOOKED_AT = 50
MAX_FINDING_CHARS = 300
"""A finding may quote the answer."""

_NOT_SCHEMAS = frozenset({"const", "enum", "default", "examples"})
"""What stands below these is data."""
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


class SchemaCheck:
    """Raises UsageError when it is made, for what is no schema or has a reference that leads nowhere."""

    def __init__(self, text: str, *, name: str = "the schema") -> None:
        schema = _read(text, name)
        dialect = schema.get("$schema") if isinstance(schema, dict) else None
        kind = validators.validator_for(schema, default=None)
        if kind is None:
            if dialect is not None:
                raise UsageError(f"{name}: $schema is {dialect!r}, which is no JSON Schema dialect that is known here")
            kind = jsonschema.Draft202012Validator
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            raise UsageError(f"{name}: {_bounded(error.message)} (at {error.json_path})") from None
        _check_references(schema, name)
        self._validator = kind(schema, registry=REGISTRY, format_checker=_formats())

    def findings(self, value: object) -> list[str]:
        """What is wrong with a value, in words for a person or a model; empty: it matches. Raises nothing."""
        try:
            errors = list(islice(self._validator.iter_errors(value), MAX_LOOKED_AT))
            errors.sort(key=relevance, reverse=True)
            return [_sentence(error) for error in errors[:MAX_FINDINGS]]
        except Exception as error:
            # A number that no float can hold, a nesting beyond all bounds: the answer is paid, and no fault of ours.
            return [f"the schema cannot be applied to it: {type(error).__name__}"]


def _read(text: str, name: str) -> dict[str, Any] | bool:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_SCHEMA_BYTES:
        raise UsageError(f"{name} has {size:,} bytes; at most {MAX_SCHEMA_BYTES:,}")
    try:
        schema = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise UsageError(f"{name} is no JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise UsageError(f"{name}: expected a JSON schema, an object, found {type(schema).__name__}")
    return schema


def _check_references(schema: object, name: str) -> None:
    root = DRAFT202012.create_resource(schema)
    resolver = REGISTRY.resolver_with_root(root)
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except (referencing.exceptions.Unresolvable, ValueError):
            if not reference.startswith("#"):
                raise UsageError(
                    f"{name}: $ref {reference[:200]!r} leads elsewhere, and nothing is fetched: put what it names into "
                    "$defs and refer to it as #/$defs/NAME"
                ) from None
            raise UsageError(f"{name}: $ref {reference[:200]!r} leads nowhere in it") from None


def _references(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _references(each)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(each, str):
                yield each
            elif key not in _NOT_SCHEMAS:
                yield from _references(each)


def _sentence(error: ValidationError) -> str:
    return f"at {error.json_path}: {_bounded(error.message)}"


def _bounded(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_FINDING_CHARS else text[: MAX_FINDING_CHARS - 3] + "..."


def _formats() -> jsonschema.FormatChecker:
    """A checker of its own: what is added to the library's would be there for everybody."""
    checker = jsonschema.FormatChecker()
    checker.checks("date-time", raises=ValueError)(_is_date_time)
    checker.checks("uri")(_is_uri)
    return checker


def _is_date_time(value: object) -> bool:
    if not isinstance(value, str):
        return True
    if not _DATE_TIME.fullmatch(value):
        return False
    datetime.fromisoformat(value.upper().replace("Z", "+00:00"))
    return True


def _is_uri(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path)) and not any(sign.isspace() for sign in value)
