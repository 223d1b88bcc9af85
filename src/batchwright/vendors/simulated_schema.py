"""A value that a schema describes, for answers that are made up: the plainest that fits what schemas usually say."""

from __future__ import annotations

from typing import Any

import msgspec

MAX_DEPTH = 8
"""Schemas may hold themselves."""


def sample_text(stated: msgspec.Raw, text: str) -> str | None:
    """`stated`: a request's `response_format`, or its `text`; `text`: what stands where a text belongs. None: it states
    no schema."""
    try:
        found = msgspec.json.decode(stated)
    except (msgspec.DecodeError, RecursionError):
        return None
    found = found.get("json_schema") or found.get("format") if isinstance(found, dict) else None
    schema = found.get("schema") if isinstance(found, dict) else None
    if not isinstance(schema, dict):
        return None
    return msgspec.json.encode(_sample(schema, schema, text, 0)).decode()


def _sample(schema: Any, root: dict[str, Any], text: str, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return None
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if choices := schema.get("enum"):
        return choices[sum(text.encode()) % len(choices)]
    if isinstance(reference := schema.get("$ref"), str):
        return _sample(_local(root, reference), root, text, depth + 1)
    for name in ("anyOf", "oneOf", "allOf"):
        if options := schema.get(name):
            return _sample(options[0], root, text, depth + 1)
    return _of_type(schema, root, text, depth)


def _of_type(schema: dict[str, Any], root: dict[str, Any], text: str, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: _sample(each, root, text, depth + 1) for name, each in properties.items()}
    if kind == "array":
        return [_sample(schema.get("items", {}), root, text, depth + 1)] * max(1, int(schema.get("minItems", 1)))
    if kind == "string":
        return text[: int(schema.get("maxLength", len(text)))]
    if kind in ("integer", "number"):
        return schema.get("minimum", 0)
    return True if kind == "boolean" else None


def _local(root: dict[str, Any], reference: str) -> Any:
    found: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found.get(part) if isinstance(found, dict) else None
    return found
