"""A row's chat body -> the body of Anthropic's `POST /v1/messages`. Pure.

Everything in a row is mapped, or the row is refused with the name of what cannot be: nothing is left out in silence but
what is listed in `LEFT_OUT`, which changes no answer. Anthropic's own fields (`OWN_FIELDS`, `cache_control` on parts
and tools) go through as they are. The table for people: docs/protocols/anthropic.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from batchwright.wire.json_text import mend_surrogates

JsonObject = dict[str, object]
Parts = list[JsonObject]

LEFT_OUT = frozenset(
    ("metadata", "prediction", "prompt_cache_key", "prompt_cache_retention", "seed", "store", "stream_options")
)
"""Left out whatever they say: labels, hints for speed, and a seed, which promises nothing at OpenAI either."""
OWN_FIELDS = ("thinking", "top_k", "cache_control", "output_config")
"""Anthropic's own, for rows that are written for it."""
SAME = ("temperature", "top_p")
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "stream": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    "functions": ([],),
}
"""Fields that may only have the value which they have where they are not given."""
EFFORTS = ("low", "medium", "high")
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
MAX_SHOWN = 60

_DECODER = msgspec.json.Decoder()


class Unmapped(ValueError):
    """What Anthropic has no words for. `param` is its place in the row."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


def to_messages(body: bytes, *, stream: bool = False) -> bytes:
    """`stream`: whoever asks can take a streamed answer. Raises Unmapped."""
    try:
        row = _decoded(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Unmapped("", f"the body cannot be read as JSON: {error}") from None
    if not isinstance(row, dict):
        raise Unmapped("", "the body is no JSON object")
    given: JsonObject = {name: value for name, value in row.items() if value is not None and name not in LEFT_OUT}
    asked: JsonObject = {"model": _text(given.pop("model", None), "model"), "max_tokens": _max_tokens(given)}
    _add_messages(asked, given.pop("messages", None))
    _add_tools(asked, given)
    for name in (*SAME, *OWN_FIELDS):
        if name in given:
            asked[name] = given.pop(name)
    if "stop" in given:
        asked["stop_sequences"] = _stops(given.pop("stop"))
    _add_output_config(asked, given)
    for name in ("user", "safety_identifier"):
        if name in given:
            asked["metadata"] = {"user_id": _text(given.pop(name), name)}
    if stream and given.pop("stream", False):
        asked["stream"] = True
    for name, values in NEUTRAL.items():
        if name in given and given.pop(name) not in values:
            raise Unmapped(name, f"Anthropic has no {name}; leave it out of the row")
    if given:
        name = next(iter(given))
        raise Unmapped(name, f"{name!r} has no counterpart at Anthropic; leave it out of the row")
    return msgspec.json.encode(asked)


def _decoded(body: bytes) -> object:
    try:
        return _DECODER.decode(body)
    except msgspec.DecodeError:
        return _DECODER.decode(mend_surrogates(body))


def _max_tokens(given: JsonObject) -> int:
    found = [given.pop(name) for name in ("max_completion_tokens", "max_tokens") if name in given]
    if not found:
        raise Unmapped("max_tokens", "Anthropic needs max_tokens: give it in the row, or for all with --max-tokens")
    if not isinstance(found[0], int) or isinstance(found[0], bool) or found[0] < 1:
        raise Unmapped("max_tokens", f"max_tokens is {_shown(found[0])}; expected a whole number from 1")
    return found[0]


def _stops(value: object) -> list[object]:
    return [value] if isinstance(value, str) else _list(value, "stop")


def _add_output_config(asked: JsonObject, given: JsonObject) -> None:
    config: JsonObject = {}
    kind = given.pop("response_format", {"type": "text"})
    if not isinstance(kind, dict) or kind.get("type") not in ("text", "json_schema"):
        raise Unmapped("response_format", "Anthropic knows the response_format json_schema alone (and text)")
    if kind["type"] == "json_schema":
        schema = kind.get("json_schema")
        if not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict):
            raise Unmapped("response_format", "its json_schema has no schema")
        config["format"] = {"type": "json_schema", "schema": schema["schema"]}
    effort = given.pop("reasoning_effort", None)
    if effort is not None:
        if effort not in EFFORTS:
            raise Unmapped("reasoning_effort", f"it is {_shown(effort)}; Anthropic knows {', '.join(EFFORTS)}")
        config["effort"] = effort
    own = asked.get("output_config", {})
    if config and isinstance(own, dict):
        asked["output_config"] = {**config, **own}


# ------------------------------------------------------------------------------------------------------------ messages


def _add_messages(asked: JsonObject, value: object) -> None:
    """System messages stand in front of the others at Anthropic, wherever they stood in the row. Neighbouring messages
    of one side are one message there, which is how answers of tools and what the user says with them belong together.
    """
    system: Parts = []
    messages: list[JsonObject] = []
    for number, message in enumerate(_list(value, "messages")):
        place = f"messages[{number}]"
        found = _object(message, place)
        role, parts = _message(found, place)
        if role == "system":
            system += parts
        elif messages and messages[-1]["role"] == role:
            before = messages[-1]["content"]
            messages[-1]["content"] = [*before, *parts] if isinstance(before, list) else parts
        else:
            messages.append({"role": role, "content": parts})
    if system:
        asked["system"] = system
    if not messages:
        raise Unmapped("messages", "there is no message but the system's; Anthropic needs one of the user")
    asked["messages"] = messages


def _message(message: JsonObject, place: str) -> tuple[str, Parts]:
    """(Anthropic's role, parts); `system` for what stands in front."""
    role = message.get("role")
    known = {"role", "content"}
    match role:
        case "system" | "developer":
            parts = _parts(message.get("content"), place, _text_part)
            side = "system"
        case "user":
            parts = _parts(message.get("content"), place, _user_part)
            side = "user"
        case "assistant":
            parts = _assistant_parts(message, place)
            known |= {
                "tool_calls",
                "refusal",
                "reasoning_content",
                "reasoning",
                "annotations",
                "audio",
                "function_call",
            }
            side = "assistant"
        case "tool":
            parts = [_tool_result(message, place)]
            known |= {"tool_call_id"}
            side = "user"
        case _:
            raise Unmapped(f"{place}.role", f"the role {_shown(role)} has no counterpart at Anthropic")
    for name, value in message.items():
        if name not in known and value is not None:
            raise Unmapped(f"{place}.{name}", f"{name!r} of a message has no counterpart at Anthropic")
    if not parts:
        raise Unmapped(f"{place}.content", "the message is empty, which Anthropic refuses")
    return side, parts


def _parts(content: object, place: str, read: Callable[[JsonObject, str], JsonObject]) -> Parts:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if content is None:
        return []
    found = _list(content, f"{place}.content")
    return [
        read(_object(part, f"{place}.content[{number}]"), f"{place}.content[{number}]")
        for number, part in enumerate(found)
    ]


def _text_part(part: JsonObject, place: str) -> JsonObject:
    if part.get("type") != "text":
        raise Unmapped(place, f"a part of type {_shown(part.get('type'))} cannot stand here at Anthropic")
    return _with_cache({"type": "text", "text": _text(part.get("text"), f"{place}.text")}, part)


def _user_part(part: JsonObject, place: str) -> JsonObject:
    match part.get("type"):
        case "text":
            return _text_part(part, place)
        case "image_url":
            image = part.get("image_url")
            url = image.get("url") if isinstance(image, dict) else image
            return _with_cache({"type": "image", "source": _image_source(_text(url, place), place)}, part)
        case "file":
            return _with_cache(_document(_object(part.get("file"), place), place), part)
        case kind:
            raise Unmapped(place, f"a part of type {_shown(kind)} has no counterpart at Anthropic")


def _image_source(url: str, place: str) -> JsonObject:
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    kind, data = _data_url(url, place)
    if kind not in IMAGE_TYPES:
        raise Unmapped(place, f"a picture of type {_shown(kind)}; Anthropic takes {', '.join(IMAGE_TYPES)}")
    return {"type": "base64", "media_type": kind, "data": data}


def _document(file: JsonObject, place: str) -> JsonObject:
    data_url = file.get("file_data")
    if not isinstance(data_url, str):
        raise Unmapped(place, "a file by its id at OpenAI is not there at Anthropic; give its file_data")
    kind, data = _data_url(data_url, place)
    if kind != "application/pdf":
        raise Unmapped(place, f"a file of type {_shown(kind)}; Anthropic takes application/pdf")
    document: JsonObject = {
        "type": "document",
        "source": {"type": "base64", "media_type": kind, "data": data},
    }
    if isinstance(file.get("filename"), str):
        document["title"] = file["filename"]
    return document


def _data_url(url: str, place: str) -> tuple[str, str]:
    """(media type, base64)"""
    head, comma, data = url.partition(",")
    kind, _, form = head.removeprefix("data:").partition(";")
    if not url.startswith("data:") or not comma or "base64" not in form:
        raise Unmapped(place, "its data is no data: URL in base64")
    return kind.lower(), data


def _assistant_parts(message: JsonObject, place: str) -> Parts:
    """Reasoning that an earlier answer brought along is left out, as OpenAI does: it is no part of the conversation."""
    for name in ("audio", "function_call"):
        if message.get(name) is not None:
            raise Unmapped(f"{place}.{name}", f"{name!r} of a message has no counterpart at Anthropic")
    content = message.get("content")
    if content is None and isinstance(message.get("refusal"), str):
        content = message["refusal"]
    parts = _parts(content, place, _assistant_part)
    for number, call in enumerate(_list(message.get("tool_calls") or [], f"{place}.tool_calls")):
        parts.append(_tool_use(_object(call, place), f"{place}.tool_calls[{number}]"))
    return parts


def _assistant_part(part: JsonObject, place: str) -> JsonObject:
    if part.get("type") == "refusal":
        return {"type": "text", "text": _text(part.get("refusal"), place)}
    return _text_part(part, place)


def _tool_use(call: JsonObject, place: str) -> JsonObject:
    function = call.get("function")
    if not isinstance(function, dict):
        raise Unmapped(place, f"a tool call of type {_shown(call.get('type'))} has no counterpart at Anthropic")
    arguments = _text(function.get("arguments", ""), f"{place}.function.arguments")
    try:
        asked = _DECODER.decode(arguments) if arguments.strip() else {}
    except (msgspec.MsgspecError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise Unmapped(f"{place}.function.arguments", "the arguments are no JSON object, which Anthropic wants")
    return {
        "type": "tool_use",
        "id": _text(call.get("id"), f"{place}.id"),
        "name": _text(function.get("name"), f"{place}.function.name"),
        "input": asked,
    }


def _tool_result(message: JsonObject, place: str) -> JsonObject:
    result: JsonObject = {
        "type": "tool_result",
        "tool_use_id": _text(message.get("tool_call_id"), f"{place}.tool_call_id"),
    }
    parts = _parts(message.get("content"), place, _user_part)
    if parts:
        result["content"] = parts
    return result


# --------------------------------------------------------------------------------------------------------------- tools


def _add_tools(asked: JsonObject, given: JsonObject) -> None:
    tools = [
        _tool(_object(tool, f"tools[{number}]"), f"tools[{number}]")
        for number, tool in enumerate(_list(given.pop("tools", []), "tools"))
    ]
    choice = _tool_choice(given.pop("tool_choice", None))
    parallel = given.pop("parallel_tool_calls", None)
    if not tools:
        return  # what is said of tools where there are none says nothing
    asked["tools"] = tools
    if parallel is False and (choice is None or choice["type"] != "none"):
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    if choice is not None:
        asked["tool_choice"] = choice


def _tool(tool: JsonObject, place: str) -> JsonObject:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        raise Unmapped(place, f"a tool of type {_shown(tool.get('type'))} has no counterpart at Anthropic")
    made: JsonObject = {
        "name": _text(function.get("name"), f"{place}.function.name"),
        "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
    }
    if function.get("description") is not None:
        made["description"] = function["description"]
    if function.get("strict"):
        made["strict"] = True
    return _with_cache(made, tool)


def _tool_choice(choice: object) -> JsonObject | None:
    match choice:
        case None:
            return None
        case "auto" | "none":
            return {"type": choice}
        case "required":
            return {"type": "any"}
        case {"type": "function", "function": {"name": str(name)}}:
            return {"type": "tool", "name": name}
        case _:
            raise Unmapped("tool_choice", f"the choice {_shown(choice)} has no counterpart at Anthropic")


# --------------------------------------------------------------------------------------------------------------- values


def _with_cache(made: JsonObject, part: JsonObject) -> JsonObject:
    if part.get("cache_control") is not None:
        made["cache_control"] = part["cache_control"]
    return made


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise Unmapped(place, f"{place} is {_shown(value)}; expected a text")
    return value


def _list(value: object, place: str) -> list[object]:
    if not isinstance(value, list):
        raise Unmapped(place, f"{place} is {_shown(value)}; expected a list")
    return value


def _object(value: object, place: str) -> JsonObject:
    if not isinstance(value, dict):
        raise Unmapped(place, f"{place} is {_shown(value)}; expected an object")
    return value


def _shown(value: object) -> str:
    text = repr(value) if value is not None else "missing"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
