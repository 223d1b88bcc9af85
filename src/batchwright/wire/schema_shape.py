"""What is read of a schema without applying it: the columns it makes of a value, and how a request states it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw

from batchwright.core.endpoints import CHAT, RESPONSES

MAX_COLUMNS = 200
"""Of a table, for one value; a schema with more properties gets one column for the whole."""
DEFAULT_NAME = "answer"

_read_object = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


def properties_of(text: str) -> tuple[str, ...]:
    """The top-level properties of a schema of objects, in its order; empty: its values are others, or any."""
    try:
        schema = _read_object(text)
    except msgspec.ValidationError:  # true and false are schemas
        return ()
    reference = schema.get("$ref")
    if isinstance(reference, str) and (found := _local(schema, reference)) is not None:
        schema = found
    properties = schema.get("properties")
    if schema.get("type", "object") != "object" or not isinstance(properties, dict):
        return ()
    return tuple(properties) if 0 < len(properties) <= MAX_COLUMNS else ()


def _local(schema: dict[str, Any], reference: str) -> dict[str, Any] | None:
    found: Any = schema
    if not reference.startswith("#/"):
        return None
    for part in reference[2:].split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def format_fields(text: str, endpoint: str) -> dict[str, Raw]:
    """The body fields that state the schema at an endpoint; empty where it has none."""
    schema = _read_any(text)
    stated: dict[str, Any] = {"name": _name_of(schema), "schema": Raw(text.encode())}
    if isinstance(schema, dict) and _is_strict(schema):
        stated["strict"] = True
    if endpoint == CHAT:
        return {"response_format": Raw(_encode({"type": "json_schema", "json_schema": stated}))}
    if endpoint == RESPONSES:
        return {"text": Raw(_encode({"format": {"type": "json_schema"} | stated}))}
    return {}


def _read_any(text: str) -> object:
    return msgspec.json.decode(text)


def _name_of(schema: object) -> str:
    title = schema.get("title") if isinstance(schema, dict) else None
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", title).strip("_")[:64] if isinstance(title, str) else ""
    return name or DEFAULT_NAME


def _is_strict(value: Any) -> bool:
    """Whether a schema keeps to what vendors ask of one that the model is held to: every object says all its properties
    and requires them, and allows no others. One that does not is stated as a hint."""
    if isinstance(value, list):
        return all(_is_strict(each) for each in value)
    if not isinstance(value, dict):
        return True
    properties = value.get("properties")
    if value.get("type") == "object" or isinstance(properties, dict):
        if value.get("additionalProperties") is not False or not isinstance(properties, dict):
            return False
        if set(value.get("required") or ()) != set(properties):
            return False
    return all(_is_strict(each) for key, each in value.items() if key not in ("enum", "const", "default", "examples"))
