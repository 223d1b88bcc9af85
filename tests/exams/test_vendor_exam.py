"""The exam of every vendor adapter over HTTP, with each transport: one row out, one hit there, the right end here.

The other side is a real server on loopback that does what the row says (support/vendor_scripts.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import UNKNOWN
from batchwright.ports.http import Timeouts
from batchwright.ports.vendor import Answer, Vendor
from support.scripted_vendor import ScriptedVendor
from support.vendor_drive import CHAT, ask, row, vendor_at

K = FailureKind
BIG = 17 * 1024 * 1024
"""Above what the transport reads of one answer."""


@pytest.fixture(params=["own", "curl"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server() -> Iterator[ScriptedVendor]:
    with ScriptedVendor() as vendor:
        yield vendor


def examine(
    server: ScriptedVendor,
    transport: str,
    steps: Callable[[Vendor], Awaitable[Any]],
    *,
    timeouts: Timeouts | None = None,
    profile: str = "",
) -> Any:
    async def run() -> Any:
        async with vendor_at(server.base_url, transport, timeouts=timeouts, profile=profile) as vendor:
            return await steps(vendor)

    return asyncio.run(run())


def ask_one(server: ScriptedVendor, transport: str, text: str, **more: Any) -> Answer:
    answer = examine(server, transport, lambda vendor: ask(vendor, row(text)), **more)
    assert isinstance(answer, Answer)
    return answer


def test_a_row_arrives_as_it_was_written_and_its_answer_is_read(server: ScriptedVendor, transport: str) -> None:
    body = b'{ "model":"m-small","messages":[{"role":"user","content":"caf\xc3\xa9 \\ud83c\\udf78 tail"}],"seed":1e3}'
    answer = examine(server, transport, lambda vendor: ask(vendor, body))
    assert (answer.kind, answer.flag, answer.http_status) == (None, Flag.PLAIN, 200)
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (10, 2, UNKNOWN)
    assert json.loads(answer.body)["choices"][0]["message"]["content"] == "tail"
    (hit,) = server.hits
    assert (hit.body, hit.path, hit.text) == (body, "/v1/chat/completions", "caf\u00e9 \U0001f378 tail")
    assert hit.headers["authorization"] == "Bearer sk-scripted"
    assert hit.headers["content-type"] == "application/json"
    assert hit.headers["user-agent"].startswith("batchwright/")


@pytest.mark.parametrize(
    ("script", "flag"),
    [
        ("", Flag.PLAIN),
        ("toolcall", Flag.PLAIN),
        ("content=list", Flag.PLAIN),
        ("finish=length", Flag.TRUNCATED),
        ("finish=length content=empty", Flag.EMPTY),
        ("content=null", Flag.EMPTY),
        ("content=blank", Flag.EMPTY),
        ("body=nochoices", Flag.EMPTY),
        ("finish=content_filter content=null", Flag.FILTERED),
        ("refusal", Flag.REFUSED),
        ("chunked", Flag.PLAIN),
        ("close", Flag.PLAIN),
        ("blank=3", Flag.PLAIN),
        ("blank=3 chunked", Flag.PLAIN),
        ("drip=0.001", Flag.PLAIN),
        ("body=badutf8", Flag.PLAIN),
        ("body=surrogate", Flag.PLAIN),
        ("usage=floats", Flag.PLAIN),
        ("sleep=0.05", Flag.PLAIN),
        ("big=3000000", Flag.PLAIN),
    ],
)
def test_every_good_answer(server: ScriptedVendor, transport: str, script: str, flag: Flag) -> None:
    answer = ask_one(server, transport, f"[[{script}]] tail" if script else "tail")
    assert (answer.kind, answer.flag, answer.http_status) == (None, flag, 200)
    assert (answer.prompt_tokens, answer.completion_tokens) == (10, 2)
    json.loads(answer.body.decode())
    assert len(server.hits) == 1


@pytest.mark.parametrize(
    ("script", "kind", "code"),
    [
        ("status=400 code=invalid_prompt", K.INVALID_REQUEST, "invalid_prompt"),
        ("status=400 code=unsupported_parameter param=max_tokens", K.INVALID_REQUEST, "unsupported_parameter"),
        ("status=400 code=context_length_exceeded", K.CONTEXT_TOO_LONG, "context_length_exceeded"),
        ("status=400 code=content_policy_violation", K.CONTENT_FILTERED, "content_policy_violation"),
        ("status=400 code=model_not_found", K.MODEL_NOT_FOUND, "model_not_found"),
        ("status=401 code=invalid_api_key", K.AUTH, "invalid_api_key"),
        ("status=402", K.QUOTA_EXHAUSTED, "scripted_error"),
        ("status=403", K.AUTH, "scripted_error"),
        ("status=404 code=model_not_found", K.MODEL_NOT_FOUND, "model_not_found"),
        ("status=408", K.OVERLOADED, "scripted_error"),
        ("status=413", K.TOO_LARGE, "scripted_error"),
        ("status=422 body=detail", K.INVALID_REQUEST, ""),
        ("status=422 body=mistral type=invalid_request_error", K.INVALID_REQUEST, "invalid_request_error"),
        ("status=429 code=rate_limit_exceeded", K.RATE_LIMITED, "rate_limit_exceeded"),
        ("status=429 code=insufficient_quota", K.QUOTA_EXHAUSTED, "insufficient_quota"),
        ("status=429 type=insufficient_quota", K.QUOTA_EXHAUSTED, "insufficient_quota"),
        ("status=429 body=wrapped code=RESOURCE_EXHAUSTED", K.RATE_LIMITED, "RESOURCE_EXHAUSTED"),
        ("status=500", K.OVERLOADED, "scripted_error"),
        ("status=502 body=html", K.OVERLOADED, ""),
        ("status=503", K.OVERLOADED, "scripted_error"),
        ("status=529 type=overloaded_error", K.OVERLOADED, "overloaded_error"),
        ("body=redirect", K.INVALID_REQUEST, ""),
        ("body=html", K.BAD_RESPONSE, ""),
        ("body=empty", K.BAD_RESPONSE, ""),
        ("body=cut", K.BAD_RESPONSE, ""),
        ("body=array", K.BAD_RESPONSE, ""),
        ("body=nochoicekey", K.BAD_RESPONSE, ""),
        ("body=sse", K.INVALID_REQUEST, "event_stream"),
        ("error200", K.BAD_RESPONSE, "scripted_error"),
        ("error200 code=502", K.BAD_RESPONSE, "scripted_error"),
        ("error200 code=insufficient_quota", K.QUOTA_EXHAUSTED, "insufficient_quota"),
    ],
)
def test_every_refusal(server: ScriptedVendor, transport: str, script: str, kind: FailureKind, code: str) -> None:
    answer = ask_one(server, transport, f"[[{script}]] tail")
    assert (answer.kind, answer.code) == (kind, code)
    assert answer.http_status == int(server.hits[0].outcome) or script == "body=redirect"
    assert answer.message
    assert len(server.hits) == 1


@pytest.mark.parametrize(
    ("script", "wait_s"),
    [
        ("ra=3", 3.0),
        ("ra=0.5", 0.5),
        ("ra_ms=250", 0.25),
        ('ra="Thu, 01 Jan 2026 00:00:20 GMT"', 20.0),
        ("ra=nonsense", 0.0),
        ("ra=999999", 3600.0),
        ('header="x-ratelimit-remaining-tokens: 0|x-ratelimit-reset-tokens: 6m0s"', 360.0),
        ("", 0.0),
    ],
)
def test_every_form_of_a_wait(server: ScriptedVendor, transport: str, script: str, wait_s: float) -> None:
    answer = ask_one(server, transport, f"[[status=429 {script}]]")
    assert (answer.kind, answer.wait_s) == (K.RATE_LIMITED, wait_s)


@pytest.mark.parametrize("script", ["drop=before", "drop=after", "reset", "halfclose"])
@pytest.mark.parametrize("reused", [False, True])
def test_a_connection_that_dies_is_not_tried_twice(
    server: ScriptedVendor, transport: str, script: str, reused: bool
) -> None:
    async def steps(vendor: Vendor) -> Answer:
        if reused:
            assert (await ask(vendor, row("first"))).kind is None
        return await ask(vendor, row(f"[[{script}]] tail"))

    answer = examine(server, transport, steps)
    assert (answer.kind, answer.http_status, answer.body) == (K.NETWORK, 0, b"")
    assert answer.message
    assert len(server.hits) == 1 + reused


def test_a_vendor_that_never_answers_is_a_timeout(server: ScriptedVendor, transport: str) -> None:
    timeouts = Timeouts(first_byte_s=0.2, total_s=0.4)
    assert ask_one(server, transport, "[[hang]]", timeouts=timeouts).kind is K.TIMEOUT
    assert ask_one(server, transport, "[[drip=0.3]]", timeouts=timeouts).kind is K.TIMEOUT
    assert len(server.hits) == 2


def test_an_answer_that_is_too_large_is_cut_off(server: ScriptedVendor, transport: str) -> None:
    assert ask_one(server, transport, f"[[big={BIG}]]").kind is K.ANSWER_TOO_LARGE
    assert len(server.hits) == 1


def test_nobody_there_is_unreachable_and_then_there_again(server: ScriptedVendor, transport: str) -> None:
    async def steps(vendor: Vendor) -> list[FailureKind | None]:
        kinds = []
        for refuse in (False, True, False):
            await asyncio.to_thread(server.set, refuse=refuse)
            # Without a kept connection: one that died unnoticed would be written to, which counts as sent.
            kinds.append((await ask(vendor, row("[[close]] tail"))).kind)
        return kinds

    assert examine(server, transport, steps) == [None, K.UNREACHABLE, None]
    assert len(server.hits) == 2


def test_a_wrong_path_points_at_the_base_url(server: ScriptedVendor, transport: str) -> None:
    async def run() -> Answer:
        async with vendor_at(server.base_url.removesuffix("/v1"), transport) as vendor:
            return await ask(vendor, row("tail"))

    answer = asyncio.run(run())
    assert (answer.kind, answer.http_status) == (K.INVALID_REQUEST, 404)
    assert "base URL" in answer.message


def test_other_endpoints_of_the_same_vendor(server: ScriptedVendor, transport: str) -> None:
    async def steps(vendor: Vendor) -> list[Answer]:
        embedding = await ask(vendor, b'{"model":"e","input":"x"}', "/embeddings")
        return [embedding, await ask(vendor, b'{"model":"m","input":"x tail"}', "/responses")]

    embedding, response = examine(server, transport, steps)
    assert (embedding.kind, embedding.prompt_tokens, embedding.completion_tokens) == (None, 10, 0)
    assert (response.kind, response.flag, response.completion_tokens) == (None, Flag.PLAIN, 2)


def test_rows_at_once_each_get_their_own_answer(server: ScriptedVendor, transport: str) -> None:
    async def steps(vendor: Vendor) -> list[str]:
        asking = [asyncio.create_task(ask(vendor, row(f"[[hold]] word{number}"))) for number in range(50)]
        await asyncio.to_thread(server.wait_for, lambda vendor: len(vendor.held) == 50)
        server.release()
        answers = [await task for task in asking]
        return [json.loads(answer.body)["choices"][0]["message"]["content"] for answer in answers]

    assert examine(server, transport, steps) == [f"word{number}" for number in range(50)]
    assert server.peak == 50


def test_an_aborted_row_hears_nothing_and_its_neighbour_does(server: ScriptedVendor, transport: str) -> None:
    heard: list[Answer] = []

    async def steps(vendor: Vendor) -> Answer:
        call = vendor.send(CHAT, row("[[hold]] first"), heard.append)
        await asyncio.to_thread(server.wait_for, lambda vendor: len(vendor.held) == 1)
        call.abort()
        server.release()
        return await ask(vendor, row("second"))

    assert examine(server, transport, steps).kind is None
    assert heard == []


def test_a_profile_changes_what_a_code_means(server: ScriptedVendor, transport: str) -> None:
    script = "[[status=429 code=1113]]"
    assert ask_one(server, transport, script).kind is K.RATE_LIMITED
    assert ask_one(server, transport, script, profile="zhipu").kind is K.QUOTA_EXHAUSTED
