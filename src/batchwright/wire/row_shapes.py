"""A line taken apart the slow way: every fault of it, or its parts after all where its shape is merely rare.

Only lines that the fast way of `wire.rows` gave up on come here.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from batchwright.core.endpoints import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, BadEndpoint, normal_endpoint
from batchwright.wire.json_text import kind_of, shown
from batchwright.wire.problems import Problem, nested_too_deeply
from batchwright.wire.row_checks import BodyFacts

MAX_CUSTOM_ID_CHARS = 512
"""Labels in use are under 64 characters; this bounds what an index and every result line carry."""

CAPABILITIES: dict[str, str] = {
    "ai.chat": CHAT,
    "ai.chat.completion": CHAT,
    "ai.chat.completions": CHAT,
    "ai.chat.create": CHAT,
    "ai.chat.completions.create": CHAT,
    "chat": CHAT,
    "chat.completions": CHAT,
    "ai.embeddings": EMBEDDINGS,
    "ai.embeddings.create": EMBEDDINGS,
    "embeddings": EMBEDDINGS,
    "ai.responses": RESPONSES,
    "ai.responses.create": RESPONSES,
    "responses": RESPONSES,
    "ai.completions": COMPLETIONS,
    "ai.completions.create": COMPLETIONS,
    "completions": COMPLETIONS,
}
"""Infrai names what an item asks for by capability; these are the ones that are requests of a model."""

_COLUMN_HINTS = ("text", "question", "query", "content", "input")


class Parts(msgspec.Struct, gc=False):
    """What is needed to build a row."""

    body: bytes = b""
    """Empty: there is none that could be sent."""
    custom_id: str | None = None
    endpoint: str = CHAT
    """Empty: url or capability name none."""
    columns: bytes = b""
    facts: BodyFacts | None = None
    """Of a body that was read already, and is sound."""


read_fields = msgspec.json.Decoder(dict[str, Raw]).decode
read_string = msgspec.json.Decoder(str).decode
"""Of a stranger's values only strings are decoded: numbers may be out of any range, and are never needed."""
encode = msgspec.json.Encoder().encode


def open_object(line: bytes) -> tuple[dict[str, Raw], Problem | None]:
    """The fields of a line that is a JSON object, or what it is instead."""
    try:
        return read_fields(line), None
    except RecursionError:
        return {}, nested_too_deeply("")
    except msgspec.ValidationError:
        return {}, Problem("invalid_type", f"expected an object, got {kind_of(line)}")
    except msgspec.DecodeError as error:
        start = line[:60].decode("utf-8", "replace")
        return {}, Problem("invalid_json_line", f"not valid JSON: {error}; the line begins: {start}")


def take_apart(line: bytes) -> tuple[Parts, list[Problem]]:
    """Raises nothing."""
    fields, problem = open_object(line)
    if problem is not None:
        return Parts(), [problem]
    problems: list[Problem] = []
    try:
        parts = Parts(custom_id=read_custom_id(fields, problems))
        if "body" in fields:
            parts.endpoint = _read_envelope(fields, problems)
            parts.body = _read_body_field(bytes(fields["body"]), problems)
        elif "messages" in fields and fields.keys().isdisjoint(_ENVELOPE):
            parts.body = without(line, "custom_id")
        else:
            problems.append(_no_body(fields))
    except RecursionError:
        return Parts(), [nested_too_deeply("")]
    return parts, problems


_ENVELOPE = frozenset({"url", "method", "capability"})


def without(line: bytes, name: str) -> bytes:
    """A flat body without one of its fields; the same bytes if it has none of that name."""
    fields = read_fields(line)
    return line if fields.pop(name, None) is None else encode(fields)


def with_model(body: bytes, model: str) -> bytes:
    """A body that names this model; its other fields keep their bytes."""
    return encode(read_fields(body) | {"model": Raw(encode(model))})


def read_custom_id(fields: dict[str, Raw], problems: list[Problem]) -> str | None:
    value = fields.get("custom_id", Raw(b"null"))
    kind = kind_of(bytes(value))
    if kind == "string":
        text = read_string(value)
        if len(text) > MAX_CUSTOM_ID_CHARS:
            problems.append(long_custom_id(text))
        return text[:MAX_CUSTOM_ID_CHARS] or None
    if kind != "null":
        found = shown(value)
        hint = f'; write it as text: "{found}"' if kind == "number" else ""
        message = f"custom_id must be a string, got {kind} {found}{hint}"
        problems.append(Problem("invalid_custom_id", message, "custom_id"))
    return None


def long_custom_id(custom_id: str) -> Problem:
    return Problem(
        "invalid_custom_id",
        f"custom_id has {len(custom_id)} characters; at most {MAX_CUSTOM_ID_CHARS} are allowed",
        "custom_id",
    )


def text_field(fields: dict[str, Raw], name: str) -> str:
    """Empty where it is absent or no string."""
    value = bytes(fields.get(name, Raw(b"null")))
    return read_string(value) if kind_of(value) == "string" else ""


def as_text(value: Raw) -> str:
    """A JSON value as a column: a string as it is, null as nothing, anything else as its JSON."""
    text = bytes(value)
    kind = kind_of(text)
    if kind == "string":
        return read_string(text)
    return "" if kind == "null" else text.decode("utf-8")


def _read_envelope(fields: dict[str, Raw], problems: list[Problem]) -> str:
    """The endpoint that url or capability name; empty where they name none."""
    if _is_given(fields, "method") and text_field(fields, "method").upper() != "POST":
        problems.append(Problem("invalid_method", f"method must be POST, got {shown(fields['method'])}", "method"))
    if _is_given(fields, "url"):
        kind = kind_of(bytes(fields["url"]))
        if kind != "string":
            problems.append(Problem("invalid_type", f"url must be a string, got {kind}", "url"))
            return ""
        try:
            return normal_endpoint(read_string(fields["url"]))
        except BadEndpoint as error:
            problems.append(Problem("invalid_url", str(error), "url"))
            return ""
    if not _is_given(fields, "capability"):
        return CHAT
    endpoint = CAPABILITIES.get(text_field(fields, "capability"), "")
    if not endpoint:
        supported = ", ".join(CAPABILITIES)
        message = f"capability {shown(fields['capability'], 60)!r} cannot be sent; supported: {supported}"
        problems.append(Problem("unsupported_capability", message, "capability"))
    return endpoint


def _is_given(fields: dict[str, Raw], name: str) -> bool:
    return name in fields and kind_of(bytes(fields[name])) != "null"


def _read_body_field(body: bytes, problems: list[Problem]) -> bytes:
    kind = kind_of(body)
    if kind == "object":
        return body
    twice = kind == "string" and read_string(body).lstrip().startswith("{")
    hint = "; it was encoded as JSON twice" if twice else ""
    problems.append(Problem("invalid_type", f"body must be an object, got {kind}{hint}", "body"))
    return b""


def _no_body(fields: dict[str, Raw]) -> Problem:
    if "prompt" in fields:
        kind = kind_of(bytes(fields["prompt"]))
        if kind != "string":
            return Problem("invalid_type", f"prompt must be a string, got {kind}", "prompt")
    hint = next((name for name in _COLUMN_HINTS if name in fields), "")
    meant = f"; if '{hint}' holds the question, say --prompt '{{{hint}}}'" if hint else ""
    names = ", ".join(list(fields)[:20])[:200] or "nothing"
    return Problem(
        "missing_required_parameter",
        f"the row has neither body, messages nor prompt{meant} (it has: {names})",
        "body",
    )
