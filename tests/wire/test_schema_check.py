"""Schemas: what is refused before anything is sent, what is found wrong with a value, how a request states one."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from batchwright.core.errors import UsageError
from batchwright.wire.schema_check import MAX_FINDINGS, MAX_SCHEMA_BYTES, SchemaCheck
from batchwright.wire.schema_shape import format_fields, properties_of


def findings(schema: object, value: object) -> list[str]:
    return SchemaCheck(json.dumps(schema)).findings(value)


LABEL = {"type": "object", "properties": {"label": {"enum": ["a", "b"]}}, "required": ["label"]}


def test_what_is_wrong_is_said_with_its_place() -> None:
    assert findings(LABEL, {"label": "a"}) == []
    assert findings(LABEL, {"label": "c"}) == ["at $.label: 'c' is not one of ['a', 'b']"]
    assert findings(LABEL, {}) == ["at $: 'label' is a required property"]
    assert findings(LABEL, []) == ["at $: [] is not of type 'object'"]
    assert findings(False, 1) == ["at $: False schema does not allow 1"]
    assert findings(True, 1) == []


def test_findings_are_bounded() -> None:
    found = findings({"items": {"type": "string"}}, list(range(1_000)))
    assert len(found) == MAX_FINDINGS
    (long,) = findings({"type": "integer"}, "x" * 10_000)
    assert len(long) < 400


@pytest.mark.parametrize(
    ("format", "good", "bad"),
    [
        ("date", "2026-12-01", "1.12.2026"),
        ("date-time", "2026-12-01T10:00:00Z", "2026-12-01"),
        ("date-time", "2026-12-01T10:00:00.5+02:00", "2026-13-01T10:00:00Z"),
        ("email", "a@b.example", "nobody"),
        ("uuid", "00000000-0000-4000-8000-000000000000", "123"),
        ("ipv4", "127.0.0.1", "1.2.3"),
        ("uri", "https://a.example/x", "no address"),
        ("regex", "a+", "("),
    ],
)
def test_formats(format: str, good: str, bad: str) -> None:
    schema = {"format": format}
    assert findings(schema, good) == []
    assert findings(schema, bad) == [f"at $: '{bad}' is not a '{format}'"]
    assert findings(schema, 5) == [], "a format speaks of texts"
    assert findings({"format": "of our own"}, bad) == []


@pytest.mark.parametrize(("step", "value"), [(1e-300, float("inf")), (0.01, 10**400)])
def test_a_number_that_the_check_falls_over_does_not_match(step: float, value: float) -> None:
    (said,) = findings({"type": "object", "properties": {"a": {"multipleOf": step}}}, {"a": value})
    assert said == "the schema cannot be applied to it: OverflowError"


def test_references_lead_into_the_schema() -> None:
    tree = {"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}}
    schema = tree | {"$ref": "#/$defs/node"}
    assert findings(schema, {"next": {"next": {}}}) == []
    assert findings(schema, {"next": {"next": 5}}) == ["at $.next.next: 5 is not of type 'object'"]
    named = {"$id": "https://own.example/s", "$defs": {"n": {"$id": "n", "type": "integer"}}, "$ref": "n"}
    assert findings(named, "x") == ["at $: 'x' is not of type 'integer'"]
    assert findings({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"type": 5})
    assert findings({"const": {"$ref": "https://elsewhere.example"}}, {"$ref": "https://elsewhere.example"}) == []


def test_nothing_is_ever_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object) -> None:
        raise AssertionError("somebody connects")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    for reference in ("https://elsewhere.example/s.json", "http://127.0.0.1:1/s", "file:///etc/hostname", "other.json"):
        with pytest.raises(UsageError, match="nothing is fetched"):
            SchemaCheck(json.dumps({"properties": {"a": {"$ref": reference}}}))


def test_the_dialect_is_the_schemas_own() -> None:
    draft_4 = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 5, "exclusiveMinimum": True}
    assert findings(draft_4, 5) == ["at $: 5 is less than or equal to the minimum of 5"]
    with pytest.raises(UsageError, match="exclusiveMinimum"):
        SchemaCheck(json.dumps({"minimum": 5, "exclusiveMinimum": True}))
    assert findings({"prefixItems": [{"type": "string"}]}, [5]), "2020-12 where it says nothing"


@pytest.mark.parametrize("text", ["", "{", "5", '"x"', "[" * 5_000, "x" * (MAX_SCHEMA_BYTES + 1)])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="the schema"):
        SchemaCheck(text)


STRICT: dict[str, Any] = {
    "title": "A label, please",
    "type": "object",
    "properties": {"label": {"enum": ["a"]}, "more": {"type": "array", "items": {"type": "string"}}},
    "required": ["label", "more"],
    "additionalProperties": False,
}


def stated(schema: object, endpoint: str = "/chat/completions") -> Any:
    fields = format_fields(json.dumps(schema), endpoint)
    return {name: json.loads(bytes(value)) for name, value in fields.items()}


def test_how_a_request_states_a_schema() -> None:
    whole = {"name": "A_label_please", "schema": STRICT, "strict": True}
    assert stated(STRICT) == {"response_format": {"type": "json_schema", "json_schema": whole}}
    assert stated(STRICT, "/responses") == {"text": {"format": {"type": "json_schema", **whole}}}
    assert stated(STRICT, "/completions") == {}


@pytest.mark.parametrize(
    "change",
    [
        {"required": ["label"]},
        {"additionalProperties": True},
        {"properties": {"label": {}, "more": {"type": "object", "properties": {"x": {}}}}},
    ],
)
def test_a_schema_that_vendors_would_refuse_as_strict_is_not_stated_so(change: dict[str, object]) -> None:
    assert "strict" not in stated(STRICT | change)["response_format"]["json_schema"]
    assert stated({"type": "string"})["response_format"]["json_schema"]["name"] == "answer"


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        (STRICT, ("label", "more")),
        ({"properties": {"b": {}, "a": {}}}, ("b", "a")),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"y": {}}}}}, ("y",)),
        ({"$ref": "#/$defs/z", "$defs": {}}, ()),
        ({"type": "array", "properties": {"a": {}}}, ()),
        ({"type": "object"}, ()),
        ({"properties": {str(n): {} for n in range(500)}}, ()),
        (True, ()),
    ],
)
def test_columns_of_a_schema(schema: object, names: tuple[str, ...]) -> None:
    assert properties_of(json.dumps(schema)) == names
