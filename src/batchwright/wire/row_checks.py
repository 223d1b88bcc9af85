"""What a row's body says of itself, and everything that is wrong with it.

`read_body` is the fast way: one typed decode that builds next to nothing. Whatever that refuses is looked at again,
slowly and completely, by `explain_body`, which also decides what is merely unusual and passes: only what no vendor
could answer is a finding, everything else is for the vendor to judge.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from batchwright.core.pricing import NO_OUTPUT
from batchwright.wire.endpoint_bodies import BODIES, NULL, OTHER, Body, EndpointBody, answers_asked
from batchwright.wire.json_text import kind_of, read_value, shown
from batchwright.wire.problems import Problem, nested_too_deeply

ELSEWHERE = (b'"image_url"', b'"file_id"', b'"file_url"')
"""Marks of input that is fetched or kept by the vendor: how many tokens it is cannot be told from the row's bytes."""
_find_mark_end = re.compile(rb'_(?:url|id)"').search
"""Finds every mark, and little else: nearly all rows are through with one search instead of three."""
BACKSLASH = 0x5C
_ESCAPED_NAME = re.compile(rb"\\u00([4-7][0-9a-fA-F])")
"""Escaped letters and underscores: legal in a mark, and written by no usual serializer."""
_find_escaped_name = _ESCAPED_NAME.search

MAX_OUTPUT_TOKENS = 2**40
"""A row's own bound is clamped here: a number with hundreds of digits is legal JSON and no bound at all."""


class BodyFacts(msgspec.Struct, gc=False):
    model: str
    """Empty: names none."""
    output_tokens: int
    """Its own bound times `n`; 0: none; NO_OUTPUT: its answer has no output that could cost anything."""


_read_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_read_any = msgspec.json.Decoder().decode


def read_body(body: bytes | Raw, endpoint: str) -> BodyFacts | None:
    """None: something is wrong or unusual, ask `explain_body`. Raises nothing."""
    rules = BODIES.get(endpoint, OTHER)
    try:
        found = rules.read(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    if found.stream or found.background:
        return None
    bound = _output_bound(found, rules)
    return BodyFacts(found.model or "", 0 if bound and _has_input_elsewhere(body) else bound)


def _has_input_elsewhere(body: bytes | Raw) -> bool:
    data = bytes(body)
    if BACKSLASH in data and _find_escaped_name(data):
        # Read from the middle of an escaped backslash it finds too much, and then a bound is lost, not invented.
        data = _ESCAPED_NAME.sub(lambda found: bytes((int(found[1], 16),)), data)
    # With a single underscore, that of its bound's name, it has no mark: told by two scans that cost next to nothing.
    if data.find(b"_") == data.rfind(b"_") or _find_mark_end(data) is None:
        return False
    return any(mark in data for mark in ELSEWHERE) and (b"http" in data or b'"file_id"' in data)


def _output_bound(body: Body, rules: EndpointBody) -> int:
    if not rules.bound_name:
        return 0 if rules.unknown_input(body) else NO_OUTPUT
    bound = body.max_tokens or 0
    if body.max_completion_tokens is not None:
        bound = max(bound, body.max_completion_tokens)
    if body.max_output_tokens is not None:
        bound = max(bound, body.max_output_tokens)
    if body.n or body.best_of or body.prompt is not NULL:
        bound *= answers_asked(body)
    if bound and rules.unknown_input(body):
        return 0
    return bound if 0 <= bound < MAX_OUTPUT_TOKENS else 0


def explain_body(body: bytes | Raw, endpoint: str) -> tuple[BodyFacts, list[Problem]]:
    """All that is wrong with a body, and what it says of itself as far as that can be read.

    The body is an object. Raises nothing.
    """
    problems: list[Problem] = []
    rules = BODIES.get(endpoint, OTHER)
    try:
        fields = _read_fields(body)
        numbers: dict[str, Raw] = {
            name: fields[name] for name in _NUMBERS if name in fields and _is_integer(name, fields[name], problems)
        }
        model = _read_model(fields.get("model"), problems)
        _check_stream(fields.get("stream"), problems)
        rules.check(fields, problems)
        odd = any(name in fields and name not in numbers and bytes(fields[name]) != b"null" for name in _NUMBERS)
        kept = {name: fields[name] for name in rules.kept if name in fields}
        bound = _output_bound(rules.read_bounds(msgspec.json.encode(numbers | kept)), rules)
    except RecursionError:
        return BodyFacts("", 0), [nested_too_deeply("body")]
    except msgspec.DecodeError as error:
        return BodyFacts("", 0), [Problem("invalid_json_line", f"not valid JSON: {error}", "body")]
    # A vendor may read "5" as 5: what is not understood here bounds nothing.
    unbounded = (odd and bound != NO_OUTPUT) or _has_input_elsewhere(body)
    return BodyFacts(model, 0 if unbounded else bound), problems


def why_unbounded(body: bytes, endpoint: str) -> str:
    """Of a body that is sent and of which `BodyFacts.output_tokens` is 0: in words for people, why."""
    fields = _read_fields(body)
    rules = BODIES.get(endpoint, OTHER)
    for name in _NUMBERS:
        value = fields.get(name, NULL)
        if value == NULL:
            continue
        found = read_value(value)
        if type(found) is not int or (name in _BOUNDS and not 1 <= found < MAX_OUTPUT_TOKENS):
            most = f"{MAX_OUTPUT_TOKENS - 1:,}"
            return f"{name} is {bytes(value).decode('utf-8', 'replace')[:40]}, and not a whole number from 1 to {most}"
    kept = {name: fields[name] for name in rules.kept if name in fields}
    if unknown := rules.unknown_input(rules.read_bounds(msgspec.json.encode(kept))):
        return unknown
    if _has_input_elsewhere(body):
        return "some of its input is kept elsewhere and of unknown length"
    if any(fields.get(name, NULL) != NULL for name in _BOUNDS):
        return "its bound times the number of answers is beyond reason"
    return f"it has no {rules.bound_name}"


_BOUNDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_NUMBERS = (*_BOUNDS, "n", "best_of")


def _is_integer(name: str, value: Raw, problems: list[Problem]) -> bool:
    if kind_of(bytes(value)) != "number":
        return False
    try:
        return type(_read_any(value)) is int
    except msgspec.ValidationError:  # 1e999, or thousands of digits
        message = f"{name} must be an integer, got {shown(value)}, which is out of range"
        problems.append(Problem("invalid_type", message, f"body.{name}"))
        return False


def _read_model(value: Raw | None, problems: list[Problem]) -> str:
    if value is None:
        return ""
    kind = kind_of(bytes(value))
    if kind == "string":
        return str(_read_any(value))
    if kind != "null":
        problems.append(Problem("invalid_type", f"model must be a string, got {kind}", "body.model"))
    return ""


def _check_stream(value: Raw | None, problems: list[Problem]) -> None:
    text = bytes(value) if value is not None else b"null"
    if text == b"true":
        problems.append(
            Problem(
                "stream_not_supported",
                "stream is true; rows of a batch are answered whole: leave it out or say false",
                "body.stream",
            )
        )
    elif text not in (b"false", b"null"):
        problems.append(
            Problem("invalid_type", f"stream must be false or absent, got {kind_of(text)} {shown(text)}", "body.stream")
        )
