"""`/openapi.json`, made from the table of the routes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import msgspec

from batchwright.server.capabilities import COUNT, FLAG, TEXT, Capability, Param, Place, Schema, shape
from batchwright.server.service import Service
from batchwright.wire.error_codes import CALL_CODES

KEY = "key"
JSON = "application/json"
LINES = "application/x-ndjson"

_METADATA = shape(
    {
        "request_id": TEXT,
        "latency_ms": COUNT,
        "cost_usd": {"type": "number"},
        "vendor": {"type": ["string", "null"]},
        "cache_hit": FLAG,
    }
)


def openapi_page(table: tuple[Capability, ...], service: Service) -> dict[str, Any]:
    ceilings = msgspec.to_builtins(service.ceilings)
    paths: dict[str, dict[str, Any]] = {}
    for one in table:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, ceilings)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Batchwright", "version": service.version},
        "paths": paths,
        "components": {"securitySchemes": {KEY: {"type": "http", "scheme": "bearer"}}},
    }


def _operation(one: Capability, ceilings: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": one.id,
        "summary": one.summary,
        "parameters": [_parameter(param, ceilings) for param in one.params if param.place is not Place.BODY],
        "responses": _responses(one),
        "security": [] if one.scope is None else [{KEY: []}],
    }
    if one.has_body:
        operation["requestBody"] = _body(one)
    return operation


def _parameter(param: Param, ceilings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": param.name,
        "in": param.place.value,
        "required": param.required,
        "schema": param.bounded(ceilings),
        "description": param.about,
    }


def _body(one: Capability) -> dict[str, Any]:
    fields = [param for param in one.params if param.place is Place.BODY]
    required = [param.name for param in fields if param.required]
    schema: Schema = {
        "type": "object",
        "properties": {param.name: {**param.schema, "description": param.about} for param in fields},
        "required": required,
        "additionalProperties": False,
    }
    content: dict[str, Any] = {JSON: {"schema": schema}}
    if one.lines:
        content[LINES] = {"schema": {"type": "string", "description": "One request a line."}}
    return {"required": bool(required), "content": content}


def _responses(one: Capability) -> dict[str, Any]:
    success = one.response if one.bare else _envelope(one.response)
    responses: dict[str, Any] = {"200": {"description": "It is so.", "content": {one.media: {"schema": success}}}}
    for status, meaning in one.also:
        content = {one.media: {"schema": success}} if status < 300 else {}
        responses[str(status)] = {"description": meaning, "content": content}
    by_status = sorted(one.codes, key=lambda code: CALL_CODES[code].http_status)
    for status, codes in groupby(by_status, key=lambda code: CALL_CODES[code].http_status):
        names = list(codes)
        responses[str(status)] = {
            "description": "; ".join(f"{name}: {CALL_CODES[name].meaning}" for name in names),
            "content": {JSON: {"schema": _failure(names)}},
        }
    return responses


def _envelope(data: Schema) -> Schema:
    return shape({"ok": {"const": True}, "data": data, "error": {"type": "null"}, "metadata": _METADATA})


def _failure(codes: list[str]) -> Schema:
    error = shape(
        {
            "code": {"enum": codes},
            "message": TEXT,
            "hint": {"type": ["string", "null"]},
            "retryable": FLAG,
            "param": TEXT,
        },
        optional=frozenset({"param"}),
    )
    return shape({"ok": {"const": False}, "data": {"type": "null"}, "error": error, "metadata": _METADATA})
