"""A request that asks for an answer again: the row's own, with the answer and what was wrong with it behind it.

Made anew from the row and its latest answer whenever it is needed, so that a worker of another process sends the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from batchwright.core.endpoints import CHAT, COMPLETIONS, RESPONSES
from batchwright.wire.json_text import kind_of
from batchwright.wire.row_shapes import encode, read_fields, read_string

MAX_ANSWER_CHARS = 32_000
"""Of the answer that is shown again; the rest of a longer one is left out, with a word that it is."""
MAX_SCHEMA_CHARS = 8_000
"""A larger schema is not repeated; the model has it from the request, or from the rows' own words."""
LEFT_OUT = "\n[... left out ...]"

_read_list = msgspec.json.Decoder(list[Raw]).decode


def repair_body(body: bytes, endpoint: str, *, answer: str, finding: str, schema: str) -> bytes | None:
    """None: a body of this endpoint or shape has no place for it."""
    extend = _EXTEND.get(endpoint)
    if extend is None:
        return None
    if len(answer) > MAX_ANSWER_CHARS:
        answer = answer[:MAX_ANSWER_CHARS] + LEFT_OUT
    try:
        return extend(body, answer, _asking(finding, schema))
    except msgspec.DecodeError:
        return None


def _asking(finding: str, schema: str) -> str:
    repeated = f" The schema: {schema}" if len(schema) <= MAX_SCHEMA_CHARS else ""
    return (
        f"This answer does not match the JSON schema it has to match: {finding}.{repeated} "
        "Answer again with JSON that matches, and with nothing else."
    )


def _turns(answer: str, asking: str) -> list[Raw]:
    turns: Sequence[dict[str, str]] = ({"role": "assistant", "content": answer}, {"role": "user", "content": asking})
    return [Raw(encode(turn)) for turn in turns]


def _extend_chat(body: bytes, answer: str, asking: str) -> bytes | None:
    fields = read_fields(body)
    messages = _read_list(fields.get("messages", b"null"))
    return encode(fields | {"messages": Raw(encode([*messages, *_turns(answer, asking)]))})


def _extend_response(body: bytes, answer: str, asking: str) -> bytes | None:
    fields = read_fields(body)
    given = fields.get("input")
    if given is None:
        return None
    if kind_of(bytes(given)) == "string":
        items = [Raw(encode({"role": "user", "content": read_string(given)}))]
    else:
        items = _read_list(given)
    return encode(fields | {"input": Raw(encode([*items, *_turns(answer, asking)]))})


def _extend_completion(body: bytes, answer: str, asking: str) -> bytes | None:
    fields = read_fields(body)
    prompt = fields.get("prompt")
    if prompt is None or kind_of(bytes(prompt)) != "string":
        return None
    return encode(fields | {"prompt": Raw(encode(f"{read_string(prompt)}{answer}\n\n{asking}\n\n"))})


_EXTEND: dict[str, Callable[[bytes, str, str], bytes | None]] = {
    CHAT: _extend_chat,
    RESPONSES: _extend_response,
    COMPLETIONS: _extend_completion,
}
TEXT_ENDPOINTS = frozenset(_EXTEND)
"""Whose answers are texts, which can hold a value."""
