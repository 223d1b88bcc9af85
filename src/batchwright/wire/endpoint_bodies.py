"""What a body of each endpoint must hold, and what of it bounds its answer: one entry an endpoint (`BODIES`).

Only what no vendor could answer is a problem: a body without anything to answer, or with a number where a text belongs.
An endpoint that has no entry passes with whatever it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Raw

from batchwright.core.endpoints import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from batchwright.wire.json_text import kind_of, shown
from batchwright.wire.problems import Problem

NULL = Raw(b"null")
"""The default of a field kept raw."""


class Body(msgspec.Struct, gc=False):
    """What is read of any body: its names, and what bounds its answer."""

    model: str | None = None
    stream: bool | None = None
    background: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    n: int | None = None
    best_of: int | None = None
    prompt: Raw = NULL
    """/completions: a list of texts is as many answers. /responses: a template that the vendor keeps."""
    previous_response_id: Raw = NULL
    conversation: Raw = NULL
    web_search_options: Raw = NULL


class _ResponsesBounds(Body, gc=False):
    tools: Raw = NULL


class _Message(msgspec.Struct, gc=False):
    role: str


class _ChatBody(Body, kw_only=True, gc=False):
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]


_Input = str | Annotated[list[Raw], msgspec.Meta(min_length=1)]


class _ResponsesBody(_ResponsesBounds, kw_only=True, gc=False):
    input: _Input


class _EmbeddingsBody(Body, kw_only=True, gc=False):
    input: _Input


class _CompletionsBody(Body, kw_only=True, gc=False):
    prompt: Raw


class _Tool(msgspec.Struct, gc=False):
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointBody:
    """How bodies of one endpoint are read."""

    read: Callable[[bytes | Raw], Body]
    """The fast way: raises msgspec.DecodeError for what is unusual too."""
    read_bounds: Callable[[bytes], Body]
    """Of the fields that bound it alone: asks for none of the others."""
    kept: tuple[str, ...]
    """Those of these fields that are no numbers."""
    check: Callable[[dict[str, Raw], list[Problem]], None]
    """Adds what is wrong with the fields that only this endpoint has."""
    unknown_input: Callable[[Body], str]
    """Which input is not in the body, and of unknown length, in words for people; empty: all of it is there."""
    bound_name: str = "max_tokens"
    """What the bound of output is called there; empty: answers have no output that is counted."""


def answers_asked(body: Body) -> int:
    """How many answers, each with the bound that the body names, come back at most."""
    count = max(1, body.n or 1, body.best_of or 1)
    # A default is told by `is`, at no cost; what is not the default may still be a null that the row wrote.
    if body.prompt is not NULL and bytes(body.prompt).lstrip()[:1] == b"[":
        prompts = _read_list(body.prompt)
        if prompts and kind_of(bytes(prompts[0])) != "number":  # numbers are the tokens of one prompt
            count *= len(prompts)
    return count


def _is_given(value: Raw) -> bool:
    return value is not NULL and value != NULL


def _kept_elsewhere(body: Body) -> str:
    """What the vendor keeps under a name, or fetches, is input too."""
    if body.previous_response_id is NULL and body.conversation is NULL and body.web_search_options is NULL:
        return ""  # nearly every body
    if _is_given(body.previous_response_id):
        return "previous_response_id stands for input of unknown length"
    if _is_given(body.conversation):
        return "conversation stands for input of unknown length"
    if _is_given(body.web_search_options):
        return "what a search finds is input of unknown length"
    return ""


def _response_input(body: Body) -> str:
    if _is_given(body.prompt):
        return "prompt stands for input of unknown length"
    assert isinstance(body, _ResponsesBounds)
    if _is_given(body.tools):
        try:
            tools = _read_tools(body.tools)
        except (msgspec.DecodeError, RecursionError):
            return "its tools are none that are known here"
        hosted = next((tool.type for tool in tools if tool.type not in ("function", "custom")), "")
        if hosted:
            return f"what the tool {hosted[:40]} finds is input of unknown length"
    return _kept_elsewhere(body)


# ---------------------------------------------------------------------------------------------------------- checks


def _check_nothing(fields: dict[str, Raw], problems: list[Problem]) -> None:
    """Of an endpoint that is not known here nothing is expected."""


def _check_chat(fields: dict[str, Raw], problems: list[Problem]) -> None:
    value = fields.get("messages")
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


def _check_response(fields: dict[str, Raw], problems: list[Problem]) -> None:
    if bytes(fields.get("background", NULL)) == b"true":
        problems.append(
            Problem(
                "background_not_supported",
                "background is true; rows of a batch are answered at once: leave it out or say false",
                "body.background",
            )
        )
    instead = ("prompt", "previous_response_id", "conversation")
    _check_text(fields, "input", problems, endpoint=RESPONSES, kinds=_LISTS, instead=instead)


def _check_embedding(fields: dict[str, Raw], problems: list[Problem]) -> None:
    _check_text(fields, "input", problems, endpoint=EMBEDDINGS, kinds=_PARTS, instead=("messages",))


def _check_completion(fields: dict[str, Raw], problems: list[Problem]) -> None:
    _check_text(fields, "prompt", problems, endpoint=COMPLETIONS, kinds=_PARTS, instead=("prompt_embeds",))


_LISTS = ("string", "array")
_PARTS = (*_LISTS, "object")
"""Some servers take an object, with the text in it."""
_TEXT_NAMES = ("input", "prompt", "messages", "text", "texts")


def _check_text(
    fields: dict[str, Raw],
    name: str,
    problems: list[Problem],
    *,
    endpoint: str,
    kinds: tuple[str, ...],
    instead: tuple[str, ...],
) -> None:
    """`instead`: fields that some vendors take in place of it."""
    value = fields.get(name, NULL)
    kind = kind_of(bytes(value))
    if kind == "null":
        if any(fields.get(other, NULL) != NULL for other in instead):
            return
        found = next((other for other in _TEXT_NAMES if other in fields and other != name), "")
        meant = f"; it has {found}: is another url meant?" if found else ""
        message = f"a body for {endpoint} needs {name}: a text or a non-empty list{meant}"
        problems.append(Problem("missing_required_parameter", message, f"body.{name}"))
    elif kind not in kinds:
        message = f"{name} must be a text or a non-empty list, got {kind} {shown(value)}"
        problems.append(Problem("invalid_type", message, f"body.{name}"))
    elif kind == "array" and not _read_list(value):
        problems.append(Problem("invalid_type", f"{name} is empty; at least one text is needed", f"body.{name}"))


def _read_completion(body: bytes | Raw) -> Body:
    found = _decode_completion(body)
    if kind_of(bytes(found.prompt)) != "string" and not _is_list(found.prompt):
        raise msgspec.ValidationError("prompt is no text")
    return found


def _is_list(value: Raw) -> bool:
    return kind_of(bytes(value)) == "array" and bool(_read_list(value))


_read_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_read_list = msgspec.json.Decoder(list[Raw]).decode
_read_tools = msgspec.json.Decoder(list[_Tool]).decode
_decode_completion = msgspec.json.Decoder(_CompletionsBody).decode
_read_any_body = msgspec.json.Decoder(Body).decode

_KEPT = ("prompt", "previous_response_id", "conversation", "web_search_options")

OTHER = EndpointBody(
    read=_read_any_body,
    read_bounds=_read_any_body,
    kept=_KEPT,
    check=_check_nothing,
    unknown_input=_kept_elsewhere,
)
"""Of an endpoint that has no entry."""
BODIES: dict[str, EndpointBody] = {
    CHAT: EndpointBody(
        read=msgspec.json.Decoder(_ChatBody).decode,
        read_bounds=_read_any_body,
        kept=_KEPT,
        check=_check_chat,
        unknown_input=_kept_elsewhere,
    ),
    RESPONSES: EndpointBody(
        read=msgspec.json.Decoder(_ResponsesBody).decode,
        read_bounds=msgspec.json.Decoder(_ResponsesBounds).decode,
        kept=(*_KEPT, "tools"),
        check=_check_response,
        unknown_input=_response_input,
        bound_name="max_output_tokens",
    ),
    EMBEDDINGS: EndpointBody(
        read=msgspec.json.Decoder(_EmbeddingsBody).decode,
        read_bounds=_read_any_body,
        kept=_KEPT,
        check=_check_embedding,
        unknown_input=_kept_elsewhere,
        bound_name="",
    ),
    COMPLETIONS: EndpointBody(
        read=_read_completion,
        read_bounds=_read_any_body,
        kept=_KEPT,
        check=_check_completion,
        unknown_input=_kept_elsewhere,
    ),
}
