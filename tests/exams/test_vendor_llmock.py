"""The vendor adapter against somebody else's idea of the vendors: llmock, a mock server that is not ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from llmock.pytest_plugin import LLMock

from batchwright.core.batch_spec import VendorProtocol
from batchwright.core.failures import FailureKind, Flag
from batchwright.ports.vendor import Answer, Vendor
from support.vendor_drive import ask, row, vendor_at

K = FailureKind
OPENAI_SHAPED = ["openai", "groq", "together", "mistral", "xai", "perplexity"]


def examine(
    llmock: LLMock, steps: Callable[[Vendor], Awaitable[list[Answer]]], provider: str = "openai"
) -> list[Answer]:
    profile = provider if provider in ("openai", "groq", "together", "mistral") else ""

    async def run() -> list[Answer]:
        async with vendor_at(llmock.base_url(provider), "own", profile=profile) as vendor:
            return await steps(vendor)

    return asyncio.run(run())


async def ask_one(vendor: Vendor) -> list[Answer]:
    return [await ask(vendor, row("say ok"))]


@pytest.mark.parametrize("provider", OPENAI_SHAPED)
def test_a_plain_answer(llmock: LLMock, provider: str) -> None:
    llmock.reply("all good")
    (answer,) = examine(llmock, ask_one, provider)
    assert (answer.kind, answer.flag) == (None, Flag.PLAIN)
    assert answer.prompt_tokens > 0
    assert answer.completion_tokens > 0
    assert json.loads(answer.body)["choices"][0]["message"]["content"] == "all good"
    assert len(llmock.requests) == 1


@pytest.mark.parametrize("provider", OPENAI_SHAPED)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, K.INVALID_REQUEST),
        (401, K.AUTH),
        (402, K.QUOTA_EXHAUSTED),
        (408, K.OVERLOADED),
        (422, K.INVALID_REQUEST),
        (429, K.RATE_LIMITED),
        (500, K.OVERLOADED),
        (503, K.OVERLOADED),
    ],
)
def test_each_status_in_each_vendors_shape(llmock: LLMock, provider: str, status: int, kind: FailureKind) -> None:
    llmock.fail(status, retry_after=2 if status in (429, 503) else None, message="scripted words")
    (answer,) = examine(llmock, ask_one, provider)
    assert (answer.kind, answer.http_status) == (kind, status)
    assert "scripted words" in answer.message
    assert answer.wait_s == (2.0 if status in (429, 503) else answer.wait_s)
    assert len(llmock.requests) == 1


@pytest.mark.parametrize("provider", OPENAI_SHAPED)
def test_a_prompt_above_the_context(llmock: LLMock, provider: str) -> None:
    llmock.context_overflow()
    (answer,) = examine(llmock, ask_one, provider)
    assert answer.kind is K.CONTEXT_TOO_LONG


def test_money_in_a_429(llmock: LLMock) -> None:
    llmock.fail(429, code="insufficient_quota")
    assert examine(llmock, ask_one)[0].kind is K.QUOTA_EXHAUSTED


def test_a_tool_call_is_a_good_answer(llmock: LLMock) -> None:
    llmock.call_tool("look", {"city": "Paris"})
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]

    async def steps(vendor: Vendor) -> list[Answer]:
        return [await ask(vendor, row("where?", tools=tools))]

    (answer,) = examine(llmock, steps)
    assert (answer.kind, answer.flag) == (None, Flag.PLAIN)
    assert json.loads(answer.body)["choices"][0]["message"]["tool_calls"]


def test_limits_come_with_the_answers_and_their_end_with_a_wait(llmock: LLMock) -> None:
    llmock.limits(rpm=2)

    async def steps(vendor: Vendor) -> list[Answer]:
        return [await ask(vendor, row("say ok")) for _ in range(3)]

    first, second, third = examine(llmock, steps)
    assert first.limits is not None
    assert first.limits.requests_per_minute == 2
    assert second.limits is not None, "nothing remains, and that is never overlooked"
    assert second.limits.remaining_requests == 0
    assert second.limits.reset_s > 0
    assert third.kind is K.RATE_LIMITED
    assert 0 < third.wait_s <= 60


def test_a_stream_is_refused_with_advice(llmock: LLMock) -> None:
    async def steps(vendor: Vendor) -> list[Answer]:
        return [await ask(vendor, row("say ok", stream=True))]

    (answer,) = examine(llmock, steps)
    assert (answer.kind, answer.param) == (K.INVALID_REQUEST, "stream")


# ------------------------------------------------------------------------------------------- Anthropic's Messages API


def examine_anthropic(llmock: LLMock, **fields: object) -> Answer:
    async def run() -> Answer:
        async with vendor_at(llmock.base_url("anthropic"), "own", protocol=VendorProtocol.ANTHROPIC) as vendor:
            return await ask(vendor, row("say ok", max_tokens=500, **fields))

    return asyncio.run(run())


def test_a_message_is_a_chat_completion(llmock: LLMock) -> None:
    llmock.reply("all good")
    answer = examine_anthropic(llmock)
    assert (answer.kind, answer.flag) == (None, Flag.PLAIN)
    assert min(answer.prompt_tokens, answer.completion_tokens) > 0
    assert json.loads(answer.body)["choices"][0]["message"]["content"] == "all good"


def test_a_message_that_calls_a_tool(llmock: LLMock) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    llmock.call_tool("look", {"at": 1})
    answer = examine_anthropic(llmock, tools=[tool])
    assert answer.kind is None
    (choice,) = json.loads(answer.body)["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"at": 1}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, K.INVALID_REQUEST),
        (401, K.AUTH),
        (413, K.TOO_LARGE),
        (429, K.RATE_LIMITED),
        (500, K.OVERLOADED),
        (529, K.OVERLOADED),
    ],
)
def test_a_message_that_is_refused(llmock: LLMock, status: int, kind: FailureKind) -> None:
    llmock.fail(status)
    assert examine_anthropic(llmock).kind is kind
