"""Rows at Anthropic's Messages API: over real HTTP, from the row to the answer in its shape."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import UNKNOWN
from batchwright.http.open import open_http_client
from batchwright.ports.http import HttpReply, Timeouts
from batchwright.ports.vendor import Answer
from batchwright.vendors.anthropic import AnthropicVendor
from batchwright.vendors.registry import OpenVendors
from support.anthropic_vendor import KEY, AnthropicService, message, refusal
from support.batch_vendor import Fault, Json, Reply, as_json
from support.loop_clock import FIXED_NOW_MS, LoopClock
from support.vendor_drive import CHAT, ask, no_groups, no_local_model, no_service

K = FailureKind
TOOL = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}
PIXEL = "data:image/png;base64,AAAA"


@pytest.fixture
def service() -> Iterator[AnthropicService]:
    with AnthropicService() as service:
        yield service


def chat(*messages: Json | str, **fields: Any) -> bytes:
    found = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
    return json.dumps({"model": "claude-1", "max_tokens": 50, "messages": found or [user("hi")], **fields}).encode()


def user(content: object) -> Json:
    return {"role": "user", "content": content}


def answer_of(
    service: AnthropicService, body: bytes, *, transport: str = "own", endpoint: str = CHAT, base_url: str = ""
) -> Answer:
    async def run() -> Answer:
        http = open_http_client(Timeouts(), transport=transport, environ={})
        vendors = OpenVendors(
            lambda timeout_s: http,
            {"A_KEY": KEY},
            LoopClock(),
            local=no_local_model,
            service=no_service,
            grouping=no_groups,
        )
        place = Destination(
            vendor="a",
            base_url=base_url or service.base_url,
            key_env="A_KEY",
            protocol=VendorProtocol.ANTHROPIC,
        )
        try:
            vendor = await vendors.open(place)
            listing = await vendors.list_models(place, timeout_s=10.0)
            assert listing.models == ("claude-1",)
            return await ask(vendor, body, endpoint)
        finally:
            await vendors.close()
            await http.close()

    return asyncio.run(run())


def sent(service: AnthropicService, body: bytes) -> Json:
    """What Anthropic gets for this row."""
    answer = answer_of(service, body)
    assert answer.kind is None, answer.message
    (asked,) = service.requests()
    return asked


def chat_of(service: AnthropicService, reply: Json) -> tuple[Answer, Json]:
    """The answer to a message of theirs, and its body."""
    service.answer = lambda params: as_json(reply)
    answer = answer_of(service, chat("hi", tools=[TOOL]))
    return answer, json.loads(answer.body)


# ------------------------------------------------------------------------------------------------------------ requests


@pytest.mark.parametrize("transport", ["own", "curl"])
def test_a_row_goes_there_and_comes_back_as_a_chat_completion(service: AnthropicService, transport: str) -> None:
    body = chat({"role": "system", "content": "Be brief."}, "café", temperature=0.5, stop=["\n"], user="u-1")
    answer = answer_of(service, body, transport=transport)
    assert service.requests() == [
        {
            "model": "claude-1",
            "max_tokens": 50,
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "café"}]}],
            "temperature": 0.5,
            "stop_sequences": ["\n"],
            "metadata": {"user_id": "u-1"},
        }
    ]
    assert (answer.kind, answer.flag, answer.http_status, answer.request_id) == (None, Flag.PLAIN, 200, "req_live")
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (11, 3, 0)
    assert json.loads(answer.body) == {
        "id": "msg_1",
        "object": "chat.completion",
        "created": FIXED_NOW_MS // 1000,
        "model": "claude-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "café"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 11,
            "completion_tokens": 3,
            "total_tokens": 14,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def test_a_conversation_with_tools_and_pictures(service: AnthropicService) -> None:
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}},
        {"id": "c2", "type": "function", "function": {"name": "look", "arguments": ""}},
    ]
    body = chat(
        user([{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}]),
        {"role": "assistant", "content": None, "tool_calls": calls, "refusal": None, "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
        {"role": "developer", "content": "late rule"},
        user([{"type": "image_url", "image_url": "https://x.example/a.png"}, {"type": "text", "text": "and?"}]),
        tools=[TOOL, {"type": "function", "function": {"name": "end", "strict": True}}],
        tool_choice={"type": "function", "function": {"name": "look"}},
        parallel_tool_calls=False,
    )
    asked = sent(service, body)
    assert asked["system"] == [{"type": "text", "text": "late rule"}]
    assert [turn["role"] for turn in asked["messages"]] == ["user", "assistant", "user"]
    assert asked["messages"][0]["content"][1] == {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    }
    assert asked["messages"][1]["content"] == [
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}},
        {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
    ]
    assert asked["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "one"}]},
        {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "two"}]},
        {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}},
        {"type": "text", "text": "and?"},
    ]
    assert asked["tools"] == [
        {"name": "look", "description": "d", "input_schema": {"type": "object"}},
        {"name": "end", "input_schema": {"type": "object", "properties": {}}, "strict": True},
    ]
    assert asked["tool_choice"] == {"type": "tool", "name": "look", "disable_parallel_tool_use": True}


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        ("auto", None, {"type": "auto"}),
        ("required", True, {"type": "any"}),
        ("none", False, {"type": "none"}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (None, None, None),
    ],
)
def test_tool_choices(service: AnthropicService, choice: object, parallel: object, expected: object) -> None:
    asked = sent(service, chat("hi", tools=[TOOL], tool_choice=choice, parallel_tool_calls=parallel))
    assert asked.get("tool_choice") == expected


def test_a_schema_an_effort_and_fields_of_their_own(service: AnthropicService) -> None:
    schema = {"type": "object", "properties": {}}
    cached = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    pdf = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}}
    asked = sent(
        service,
        chat(
            user([pdf, cached]),
            response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}},
            reasoning_effort="low",
            thinking={"type": "enabled", "budget_tokens": 1024},
            max_completion_tokens=9,
            max_tokens=None,
        ),
    )
    assert asked["output_config"] == {"format": {"type": "json_schema", "schema": schema}, "effort": "low"}
    assert (asked["thinking"]["budget_tokens"], asked["max_tokens"]) == (1024, 9)
    assert asked["messages"][0]["content"] == [
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="},
            "title": "a.pdf",
        },
        cached,
    ]


def test_what_says_nothing_is_left_out(service: AnthropicService) -> None:
    body = chat(
        "hi",
        **{"n": 1, "stream": False, "logprobs": False, "top_logprobs": 0, "frequency_penalty": 0.0, "logit_bias": {}},
        **{"presence_penalty": 0, "seed": 7, "store": True, "metadata": {"a": "b"}, "tools": [], "tool_choice": "auto"},
        **{"service_tier": "auto", "modalities": ["text"], "response_format": {"type": "text"}, "verbosity": None},
    )
    assert sorted(sent(service, body)) == ["max_tokens", "messages", "model"]


def test_half_a_character_in_a_row_is_mended(service: AnthropicService) -> None:
    asked = sent(service, chat("X").replace(b'"X"', rb'"\ud83d!"'))
    assert asked["messages"][0]["content"][0]["text"] == "\ufffd!"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (chat("hi", max_tokens=None), "max_tokens"),
        (chat("hi", max_tokens="9"), "max_tokens"),
        (chat("hi", n=2), "n"),
        (chat("hi", stream=True), "stream"),
        (chat("hi", logprobs=True), "logprobs"),
        (chat("hi", frequency_penalty=0.1), "frequency_penalty"),
        (chat("hi", logit_bias={"5": 1}), "logit_bias"),
        (chat("hi", response_format={"type": "json_object"}), "response_format"),
        (chat("hi", reasoning_effort="minimal"), "reasoning_effort"),
        (chat("hi", verbosity="low"), "verbosity"),
        (chat("hi", web_search_options={}), "web_search_options"),
        (chat("hi", tools=[{"type": "custom", "custom": {}}]), "tools[0]"),
        (chat("hi", tools=[TOOL], tool_choice={"type": "allowed_tools"}), "tool_choice"),
        (chat("hi", functions=[{"name": "f"}]), "functions"),
        (chat("hi", stop=5), "stop"),
        (chat(user([{"type": "input_audio", "input_audio": {}}])), "messages[0].content[0]"),
        (
            chat(user([{"type": "image_url", "image_url": {"url": "data:image/tiff;base64,AA"}}])),
            "messages[0].content[0]",
        ),
        (chat(user([{"type": "image_url", "image_url": {"url": "data:image/png,AA"}}])), "messages[0].content[0]"),
        (chat(user([{"type": "file", "file": {"file_id": "file-1"}}])), "messages[0].content[0]"),
        (chat({"role": "function", "name": "f", "content": "x"}), "messages[0].role"),
        (chat({"role": "user", "content": "x", "name": "Ann"}), "messages[0].name"),
        (chat({"role": "user", "content": ""}), "messages[0].content"),
        (chat({"role": "system", "content": "only"}), "messages"),
        (chat("hi", messages=[]), "messages"),
        (chat("hi", messages="hi"), "messages"),
        (chat("hi", model=5), "model"),
        (
            chat({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{"}}]}),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (b"[1]", ""),
        (b"{", ""),
    ],
)
def test_what_has_no_counterpart_is_refused_and_never_sent(service: AnthropicService, body: bytes, param: str) -> None:
    answer = answer_of(service, body)
    assert (answer.kind, answer.code, answer.param, answer.http_status) == (
        K.INVALID_REQUEST,
        "not_at_anthropic",
        param,
        0,
    )
    assert answer.message
    assert service.requests() == []


def test_other_endpoints_are_refused(service: AnthropicService) -> None:
    assert answer_of(service, chat("hi"), endpoint="/embeddings").message.startswith("Anthropic has no /embeddings")
    assert service.requests() == []


@pytest.mark.parametrize("written", ["/v1", "", "/v1/", "/"])
def test_the_address_is_written_with_its_version_or_without(service: AnthropicService, written: str) -> None:
    answer = answer_of(service, chat("hi"), base_url=service.base_url.removesuffix("/v1") + written)
    assert answer.kind is None


# ------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("reason", "finish", "flag"),
    [
        ("end_turn", "stop", Flag.PLAIN),
        ("stop_sequence", "stop", Flag.PLAIN),
        ("max_tokens", "length", Flag.TRUNCATED),
        ("model_context_window_exceeded", "length", Flag.TRUNCATED),
        ("refusal", "content_filter", Flag.FILTERED),
        ("pause_turn", "pause_turn", Flag.TRUNCATED),
        (None, None, Flag.PLAIN),
    ],
)
def test_stop_reasons(service: AnthropicService, reason: str | None, finish: str | None, flag: Flag) -> None:
    answer, body = chat_of(service, message("text", stop_reason=reason))
    assert (answer.kind, answer.flag, body["choices"][0]["finish_reason"]) == (None, flag, finish)


def test_thoughts_and_calls_of_tools_come_back(service: AnthropicService) -> None:
    blocks: list[Json] = [
        {"type": "thinking", "thinking": "let me", "signature": "s"},
        {"type": "text", "text": "I look "},
        {"type": "text", "text": "now."},
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1e3, "deep": {"x": None}}},
        {"type": "something_new", "data": 1},
    ]
    answer, body = chat_of(service, message(*blocks, stop_reason="tool_use"))
    said = body["choices"][0]["message"]
    assert (answer.flag, said["content"], said["reasoning_content"]) == (Flag.PLAIN, "I look now.", "let me")
    (call,) = said["tool_calls"]
    assert (call["id"], call["type"], call["function"]["name"]) == ("t1", "function", "look")
    assert json.loads(call["function"]["arguments"]) == {"at": 1000.0, "deep": {"x": None}}
    assert body["choices"][0]["finish_reason"] == "tool_calls"


def test_an_answer_without_text_is_empty(service: AnthropicService) -> None:
    answer, body = chat_of(service, message())
    assert (answer.kind, answer.flag, body["choices"][0]["message"]["content"]) == (None, Flag.EMPTY, None)


def test_cached_input_is_part_of_the_input(service: AnthropicService) -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 0}
    answer, body = chat_of(service, message("a", usage=usage))
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (100, 5, 90)
    assert body["usage"]["total_tokens"] == 105


def test_input_that_was_written_into_the_cache_has_no_known_price(service: AnthropicService) -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 40}
    answer, body = chat_of(service, message("a", usage=usage))
    assert (answer.prompt_tokens, answer.completion_tokens) == (UNKNOWN, 5)
    assert (body["usage"]["prompt_tokens"], body["usage"]["cache_creation_input_tokens"]) == (50, 40)


def test_an_answer_without_usage(service: AnthropicService) -> None:
    answer, body = chat_of(service, message("a", usage=None))
    assert (answer.kind, answer.prompt_tokens, "usage" in body) == (None, UNKNOWN, False)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (refusal(429, "rate_limit_error", retry_after="7"), K.RATE_LIMITED),
        (refusal(529, "overloaded_error"), K.OVERLOADED),
        (refusal(500, "api_error"), K.OVERLOADED),
        (refusal(504, "timeout_error"), K.OVERLOADED),
        (refusal(401, "authentication_error", f"invalid x-api-key {KEY}"), K.AUTH),
        (refusal(403, "permission_error"), K.AUTH),
        (refusal(402, "billing_error"), K.QUOTA_EXHAUSTED),
        (refusal(400, "invalid_request_error", "Your credit balance is too low to access it"), K.QUOTA_EXHAUSTED),
        (refusal(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), K.CONTEXT_TOO_LONG),
        (refusal(400, "invalid_request_error", "max_tokens: 9 > 8"), K.INVALID_REQUEST),
        (refusal(404, "not_found_error", "model: claude-9"), K.MODEL_NOT_FOUND),
        (refusal(413, "request_too_large"), K.TOO_LARGE),
        (as_json({"type": "error", "error": {"type": "overloaded_error", "message": "late"}}), K.BAD_RESPONSE),
        (as_json({"id": "x", "choices": []}), K.BAD_RESPONSE),
        (as_json({"type": "message", "content": "text"}), K.BAD_RESPONSE),
        (as_json({}), K.BAD_RESPONSE),
        (Reply(body=b"<html>"), K.BAD_RESPONSE),
        (Reply(body=b""), K.BAD_RESPONSE),
    ],
)
def test_what_is_no_answer(service: AnthropicService, reply: Reply, kind: FailureKind) -> None:
    service.fail("POST", "/messages", Fault(reply=reply))
    answer = answer_of(service, chat("hi"))
    assert (answer.kind, answer.http_status) == (kind, reply.status)
    assert answer.wait_s == (7.0 if "retry-after" in reply.headers else 0.0)
    assert KEY not in answer.message
    assert KEY.encode() not in answer.body


def test_limits_in_headers_are_read(service: AnthropicService) -> None:
    headers = {"anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-requests-remaining": "0"}
    service.answer = lambda params: Reply(body=json.dumps(message("a")).encode(), headers=headers)
    answer = answer_of(service, chat("hi"))
    assert answer.limits is not None
    assert (answer.limits.requests_per_minute, answer.limits.remaining_requests) == (50.0, 0.0)


# -------------------------------------------------------------------------------------------------------- single calls


class Listener:
    """Hears one call (`ports.vendor.CallListener`)."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[tuple[Answer, HttpReply | None]] = asyncio.get_running_loop().create_future()
        self.head = b""
        self.text = b""

    def begin(self, head: bytes) -> None:
        self.head = head

    def take(self, piece: bytes) -> None:
        assert self.head
        self.text += piece

    def end(self, answer: Answer, reply: HttpReply | None, last: bytes) -> None:
        assert (reply is None) == bool(self.head)
        self.text += last
        self.ended.set_result((answer, reply))


def heard(service: AnthropicService, body: bytes, *, stream: bool, transport: str = "own") -> tuple[Listener, Answer]:
    async def run() -> tuple[Listener, Answer]:
        http = open_http_client(Timeouts(), transport=transport, environ={})
        vendors = OpenVendors(
            lambda timeout_s: http,
            {"A_KEY": KEY},
            LoopClock(),
            local=no_local_model,
            service=no_service,
            grouping=no_groups,
        )
        place = Destination(vendor="a", base_url=service.base_url, key_env="A_KEY", protocol=VendorProtocol.ANTHROPIC)
        try:
            vendor = await vendors.open(place)
            assert isinstance(vendor, AnthropicVendor)
            listener = Listener()
            vendor.relay(CHAT, body, listener, stream=stream)
            answer, reply = await asyncio.wait_for(listener.ended, 10)
            if reply is not None:
                listener.head, listener.text = reply.head, reply.body
            return listener, answer
        finally:
            await vendors.close()
            await http.close()

    return asyncio.run(run())


def chunks(listener: Listener) -> list[Json]:
    """The events of a stream, without the one that ends it."""
    events = listener.text.decode().split("\n\n")
    assert all(event.startswith("data: ") for event in events[:-1])
    assert events[-2:] == ["data: [DONE]", ""]
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


def events(*found: Json) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (each["type"].encode(), json.dumps(each).encode()) for each in found)


START: Json = {
    "type": "message_start",
    "message": message(usage={"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 1}),
}
TEXT: list[Json] = [
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "caf"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "\u00e9"}},
    {"type": "content_block_stop", "index": 0},
]
TOOLS: list[Json] = [
    {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t1", "name": "look"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"at":'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "t2", "name": "end"}},
    {"type": "content_block_stop", "index": 2},
]
STOP: list[Json] = [
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]


def streaming(service: AnthropicService, stream: bytes, *, cut: int = 7, broken: bool = False) -> None:
    """It answers with these events, in pieces of so many bytes."""
    pieces = [stream[start : start + cut] for start in range(0, len(stream), cut)]
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    service.answer = lambda params: Reply(pieces=pieces, headers=headers, broken=broken)


def test_a_single_call_is_answered_as_a_chat_completion(service: AnthropicService) -> None:
    listener, answer = heard(service, chat("hi"), stream=False)
    assert answer.kind is None
    assert json.loads(listener.text)["choices"][0]["message"]["content"] == "hi"


def test_a_single_call_that_is_refused_there_says_what_was_said(service: AnthropicService) -> None:
    for stream in (False, True):
        service.fail("POST", "/messages", Fault(reply=refusal(429, "rate_limit_error", retry_after="3")))
        listener, answer = heard(service, chat("hi", stream=stream), stream=stream)
        assert answer.kind is K.RATE_LIMITED
        assert listener.head.startswith(b"HTTP/1.1 429")
        assert b"retry-after: 3" in listener.head


def test_a_single_call_without_a_counterpart_is_refused(service: AnthropicService) -> None:
    listener, answer = heard(service, chat("hi", stream=True, n=2), stream=True)
    assert answer.kind is K.INVALID_REQUEST
    assert listener.head.startswith(b"HTTP/1.1 400")
    assert json.loads(listener.text)["error"]["param"] == "n"
    assert service.requests() == []


@pytest.mark.parametrize("transport", ["own", "curl"])
@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_a_streamed_call_goes_by_in_chunks(service: AnthropicService, transport: str, cut: int) -> None:
    streaming(service, events(START, *TEXT, *TOOLS, *STOP), cut=cut)
    body = chat("hi", stream=True, stream_options={"include_usage": True}, tools=[TOOL])
    listener, answer = heard(service, body, stream=True, transport=transport)
    (asked,) = service.requests()
    assert (asked["stream"], "stream_options" in asked) == (True, False)
    found = chunks(listener)
    assert {(each["id"], each["model"], each["object"]) for each in found} == {
        ("msg_1", "claude-1", "chat.completion.chunk")
    }
    deltas = [choice["delta"] for each in found for choice in each["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == "café"
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [(call["index"], call.get("id"), call["function"]["arguments"]) for call in calls] == [
        (0, "t1", ""),
        (0, None, '{"at":'),
        (0, None, "1}"),
        (1, "t2", ""),
        (1, None, "{}"),
    ]
    assert [choice["finish_reason"] for each in found for choice in each["choices"]][-1] == "tool_calls"
    assert (found[-1]["choices"], found[-1]["usage"]["prompt_tokens"]) == ([], 25)
    assert (answer.kind, answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (None, 25, 9, 20)


def test_usage_is_a_chunk_only_where_it_was_asked_for(service: AnthropicService) -> None:
    streaming(service, events(START, *TEXT, *STOP))
    listener, answer = heard(service, chat("hi", stream=True), stream=True)
    assert all(each["choices"] for each in chunks(listener))
    assert answer.prompt_tokens == 25


def test_a_stream_that_breaks_off(service: AnthropicService) -> None:
    streaming(service, events(START, *TEXT), broken=True)
    listener, answer = heard(service, chat("hi", stream=True), stream=True)
    assert (answer.kind, answer.prompt_tokens) == (K.NETWORK, 25)
    assert b"[DONE]" not in listener.text


def test_an_error_in_a_stream_goes_on_without_the_key(service: AnthropicService) -> None:
    trouble = {"type": "error", "error": {"type": "overloaded_error", "message": f"no {KEY}"}}
    streaming(service, events(START, trouble))
    listener, answer = heard(service, chat("hi", stream=True), stream=True)
    assert answer.kind is K.BAD_RESPONSE
    assert b'"overloaded_error"' in listener.text
    assert KEY.encode() not in listener.text
    assert KEY not in answer.message


def test_a_whole_message_where_a_stream_was_asked_for(service: AnthropicService) -> None:
    service.answer = lambda params: as_json(message("all at once"))
    listener, answer = heard(service, chat("hi", stream=True), stream=True)
    assert (answer.kind, answer.prompt_tokens) == (None, 11)
    assert json.loads(listener.text)["choices"][0]["message"]["content"] == "all at once"
