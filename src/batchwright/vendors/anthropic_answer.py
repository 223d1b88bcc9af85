"""Anthropic's message -> the chat completion that a row is answered with. Pure.

stop_reason        end_turn, stop_sequence -> stop      max_tokens, model_context_window_exceeded -> length
                   tool_use -> tool_calls               refusal -> content_filter
                   any other                            as it is (whether the answer is whole is not known)
usage              prompt_tokens = input + cache_read + cache_creation, cached_tokens = cache_read
"""

from __future__ import annotations

import msgspec

from batchwright.core.records import UNKNOWN

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Message(msgspec.Struct, gc=False):
    type: str
    content: list[_Block]
    id: str = ""
    model: str = ""
    stop_reason: str | None = None
    usage: _Usage | None = None


_MESSAGE = msgspec.json.Decoder(_Message)
_encode = msgspec.json.encode


class ChatBody(msgspec.Struct, frozen=True, gc=False):
    body: bytes
    cache_write_tokens: int = 0
    """Tokens of the input that were written into the cache: they cost more than input does, and no price table here
    has a rate for it."""


def to_chat(body: bytes, created_s: int) -> ChatBody | None:
    """None for what is no message. `created_s`: seconds since the epoch, since Anthropic tells none."""
    try:
        message = _MESSAGE.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if message.type != "message":
        return None
    text = "".join(block.text or "" for block in message.content if block.type == "text")
    calls = [_tool_call(block) for block in message.content if block.type == "tool_use"]
    thoughts = "".join(block.thinking or "" for block in message.content if block.type == "thinking")
    said: dict[str, object] = {"role": "assistant", "content": text or None}
    if thoughts:
        said["reasoning_content"] = thoughts
    if calls:
        said["tool_calls"] = calls
    reason = message.stop_reason
    chat: dict[str, object] = {
        "id": message.id,
        "object": "chat.completion",
        "created": created_s,
        "model": message.model,
        "choices": [
            {
                "index": 0,
                "message": said,
                "logprobs": None,
                "finish_reason": FINISH.get(reason, reason) if reason is not None else None,
            }
        ],
    }
    usage = message.usage
    written = 0
    if usage is not None and usage.input_tokens is not None:
        written = max(0, usage.cache_creation_input_tokens or 0)
        chat["usage"] = _usage(usage, written)
    return ChatBody(_encode(chat), written)


def _usage(usage: _Usage, written: int) -> dict[str, object]:
    cached = usage.cache_read_input_tokens or 0
    prompt = (usage.input_tokens or 0) + cached + written
    told: dict[str, object] = {"prompt_tokens": prompt}
    if usage.output_tokens is not None:
        told |= {"completion_tokens": usage.output_tokens, "total_tokens": prompt + usage.output_tokens}
    told["prompt_tokens_details"] = {"cached_tokens": cached}
    if written:
        told["cache_creation_input_tokens"] = written
    return told


def _tool_call(block: _Block) -> dict[str, object]:
    return {
        "id": block.id,
        "type": "function",
        "function": {"name": block.name, "arguments": bytes(block.input).decode("utf-8", "replace")},
    }


def without_input_count(prompt_tokens: int, cache_write_tokens: int) -> int:
    """The count of input by which an answer may be priced: not known where part of it has no rate."""
    return UNKNOWN if cache_write_tokens else prompt_tokens
