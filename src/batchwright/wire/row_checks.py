"""What a row's body says of itself, and everything that is wrong with it.

`read_body` is the fast way: one typed decode that builds next to nothing. Whatever that refuses is looked at again,
slowly and completely, by `explain_body`, which also decides what is merely unusual and passes: only what no vendor
could answer is a finding, everything else is for the vendor to judge.
"""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Raw

from batchwright.core.endpoints import CHAT
from batchwright.wire.json_text import kind_of, read_value, shown

NULL = Raw(b"null")
"""The default of a field kept raw."""
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

CODES: dict[str, str] = {
    "invalid_json_line": "the line is no JSON value",
    "invalid_utf8": "the line is not UTF-8",
    "invalid_type": "a value is of another type than expected: the row, its body, messages, model ...",
    "missing_required_parameter": "the row lacks a body, or a chat body lacks messages",
    "row_too_large": "the line is longer than one row may be",
    "duplicate_custom_id": "an earlier line has the same custom_id",
    "invalid_custom_id": "custom_id is no string, or too long to be a label",
    "invalid_method": "method is another than POST",
    "invalid_url": "url is no endpoint: an absolute address, a query, an odd path",
    "url_mismatch": "url is another endpoint than that of the first row",
    "unsupported_capability": "an item's capability is none that can be sent",
    "stream_not_supported": "the row asks for a streamed answer",
    "unroutable": "no configured vendor serves the row's model",
    "template_not_applicable": "--prompt, --template-file or --system was given, but the row has messages of its own",
    "missing_column": "the row lacks a column that the template names",
    "template_failed": "the template file cannot be filled from the row's values",
    "template_too_large": "what the template file makes of the row is too large, or takes too many steps",
    "ragged_row": "a table's row has more or fewer fields than its header",
    "empty_file": "the input has no rows",
    "json_array": "the input is one JSON value over many lines instead of one object a line",
}
"""Every code a finding can have. Those that OpenAI's batch validation has too carry its names."""


class Problem(NamedTuple):
    """A finding without its line."""

    code: str
    message: str
    param: str = ""


class BodyFacts(msgspec.Struct, gc=False):
    model: str
    """Empty: names none."""
    output_tokens: int
    """Its own bound times `n`; 0: none."""


class _Message(msgspec.Struct, gc=False):
    role: str


class _Body(msgspec.Struct, gc=False):
    model: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    n: int | None = None
    best_of: int | None = None
    prompt: Raw = NULL
    """/completions: a list of texts is as many answers."""
    previous_response_id: Raw = NULL


class _ChatBody(_Body, kw_only=True, gc=False):
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]


_read_chat = msgspec.json.Decoder(_ChatBody).decode
_read_other = msgspec.json.Decoder(_Body).decode
_read_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_read_list = msgspec.json.Decoder(list[Raw]).decode
_read_any = msgspec.json.Decoder().decode


def read_body(body: bytes | Raw, endpoint: str) -> BodyFacts | None:
    """None: something is wrong or unusual, ask `explain_body`. Raises nothing."""
    try:
        found = _read_chat(body) if endpoint == CHAT else _read_other(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    if found.stream:
        return None
    bound = _output_bound(found)
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


def _output_bound(body: _Body) -> int:
    bound = body.max_tokens or 0
    if body.max_completion_tokens is not None:
        bound = max(bound, body.max_completion_tokens)
    if body.max_output_tokens is not None:
        bound = max(bound, body.max_output_tokens)
    if body.n or body.best_of:
        bound *= max(1, body.n or 1, body.best_of or 1)
    # A default is told by `is`, at no cost; what is not the default may still be a null that the row wrote.
    if body.prompt is not NULL and bytes(body.prompt).lstrip()[:1] == b"[":
        bound *= max(1, len(_read_list(body.prompt)))
    if body.previous_response_id is not NULL and body.previous_response_id != NULL:
        return 0  # what the vendor keeps under that name is input too, of unknown length
    return bound if 0 <= bound < MAX_OUTPUT_TOKENS else 0


def explain_body(body: bytes | Raw, endpoint: str) -> tuple[BodyFacts, list[Problem]]:
    """All that is wrong with a body, and what it says of itself as far as that can be read.

    The body is an object. Raises nothing.
    """
    problems: list[Problem] = []
    try:
        fields = _read_fields(body)
        numbers: dict[str, Raw] = {
            name: fields[name] for name in _NUMBERS if name in fields and _is_integer(name, fields[name], problems)
        }
        model = _read_model(fields.get("model"), problems)
        _check_stream(fields.get("stream"), problems)
        if endpoint == CHAT:
            _check_messages(fields.get("messages"), problems)
        odd = any(name in fields and name not in numbers and bytes(fields[name]) != b"null" for name in _NUMBERS)
        kept = {name: fields[name] for name in ("prompt", "previous_response_id") if name in fields}
        bounds = _read_other(msgspec.json.encode(numbers | kept))
    except RecursionError:
        return BodyFacts("", 0), [nested_too_deeply("body")]
    except msgspec.DecodeError as error:
        return BodyFacts("", 0), [Problem("invalid_json_line", f"not valid JSON: {error}", "body")]
    # A vendor may read "5" as 5: what is not understood here bounds nothing.
    unbounded = odd or _has_input_elsewhere(body)
    return BodyFacts(model, 0 if unbounded else _output_bound(bounds)), problems


def why_unbounded(body: bytes) -> str:
    """Of a body that is sent and of which `BodyFacts.output_tokens` is 0: in words for people, why."""
    fields = _read_fields(body)
    for name in _NUMBERS:
        value = fields.get(name, NULL)
        if value == NULL:
            continue
        found = read_value(value)
        if type(found) is not int or (name in _BOUNDS and not 1 <= found < MAX_OUTPUT_TOKENS):
            most = f"{MAX_OUTPUT_TOKENS - 1:,}"
            return f"{name} is {bytes(value).decode('utf-8', 'replace')[:40]}, and not a whole number from 1 to {most}"
    if fields.get("previous_response_id", NULL) != NULL:
        return "previous_response_id stands for input of unknown length"
    if _has_input_elsewhere(body):
        return "some of its input is kept elsewhere and of unknown length"
    if any(fields.get(name, NULL) != NULL for name in _BOUNDS):
        return "its bound times the number of answers is beyond reason"
    return "it has no max_tokens"


def nested_too_deeply(param: str) -> Problem:
    return Problem("invalid_json_line", "brackets are nested too deeply to be read", param)


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


def _check_messages(value: Raw | None, problems: list[Problem]) -> None:
    if value is None:
        problems.append(
            Problem(
                "missing_required_parameter",
                "a chat body needs messages: a non-empty list of objects with a role",
                "body.messages",
            )
        )
        return
    kind = kind_of(bytes(value))
    if kind != "array":
        problems.append(
            Problem("invalid_type", f"messages must be a non-empty array of objects, got {kind}", "body.messages")
        )
        return
    messages = _read_list(value)
    if not messages:
        problems.append(Problem("invalid_type", "messages is empty; at least one message is needed", "body.messages"))
    for position, message in enumerate(messages):
        problem = _message_problem(bytes(message), f"messages[{position}]")
        if problem is not None:
            problems.append(problem)
            return


def _message_problem(message: bytes, name: str) -> Problem | None:
    kind = kind_of(message)
    if kind != "object":
        return Problem("invalid_type", f"{name} must be an object, got {kind}", f"body.{name}")
    role = _read_fields(message).get("role")
    if role is None:
        return Problem("missing_required_parameter", f"{name} needs a role", f"body.{name}.role")
    if kind_of(bytes(role)) != "string":
        return Problem("invalid_type", f"{name}.role must be a string, got {kind_of(bytes(role))}", f"body.{name}.role")
    return None
