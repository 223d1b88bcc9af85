from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from batchwright.core.failures import FailureKind
from batchwright.ports.http import HttpEnd, HttpFlight, HttpReply, HttpTarget
from batchwright.ports.vendor import Answer
from batchwright.vendors.openai import OpenAIVendor
from batchwright.vendors.profiles import build_profile
from batchwright.vendors.urls import join_url
from support.loop_clock import LoopClock


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions"),
        ("https://open.bigmodel.cn/api/paas/v4", "https://open.bigmodel.cn/api/paas/v4/chat/completions"),
        ("http://localhost:8000", "http://localhost:8000/chat/completions"),
        ("https://a.example/d?api-version=1", "https://a.example/d/chat/completions?api-version=1"),
    ],
)
def test_the_endpoint_goes_below_the_base_url_as_it_is(base_url: str, url: str) -> None:
    assert join_url(base_url, "/chat/completions") == url


class FaultyClient:
    """A transport that breaks its contract in the ways a bug of ours would."""

    def __init__(self) -> None:
        self.broken = False
        self.urls: list[str] = []

    def target(self, method: str, url: str, headers: Mapping[str, str]) -> HttpTarget:
        self.urls.append(url)
        return self

    def send(
        self,
        body: bytes,
        on_end: Callable[[HttpEnd], None],
        *,
        on_piece: Callable[[bytes], None] | None = None,
        on_head: Callable[[bytes], None] | None = None,
    ) -> HttpFlight:
        if self.broken:
            raise RuntimeError("a bug in send")
        asyncio.get_running_loop().call_soon(on_end, HttpReply(200, b"", None))  # type: ignore[arg-type]
        return self

    def abort(self) -> None: ...

    def hold(self, held: bool) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.parametrize("broken", [False, True])
def test_an_exception_of_ours_ends_the_row_alone(broken: bool) -> None:
    async def run() -> list[Answer]:
        client = FaultyClient()
        vendor = OpenAIVendor(
            client, base_url="http://x/v1", key="", profile=build_profile("general"), clock=LoopClock(), agent="t"
        )
        client.broken = broken
        ended: asyncio.Queue[Answer] = asyncio.Queue()
        for _ in range(2):
            vendor.send("/chat/completions", b"{}", ended.put_nowait)
        assert ended.empty(), "an end was told from inside send"
        return [await ended.get() for _ in range(2)]

    for answer in asyncio.run(run()):
        assert answer.kind is FailureKind.INTERNAL
        assert "batchwright itself" in answer.message


def test_one_target_an_endpoint() -> None:
    async def run() -> list[str]:
        client = FaultyClient()
        vendor = OpenAIVendor(
            client, base_url="http://x/v1", key="", profile=build_profile("general"), clock=LoopClock(), agent="t"
        )
        for endpoint in ("/chat/completions", "/embeddings", "/chat/completions", "/embeddings"):
            vendor.send(endpoint, b"{}", lambda answer: None)
        return client.urls

    assert asyncio.run(run()) == ["http://x/v1/chat/completions", "http://x/v1/embeddings"]


class RepeatingClient(FaultyClient):
    """Every request is answered with a body that repeats the key."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__()
        self.status = status
        self.body = body

    def send(
        self,
        body: bytes,
        on_end: Callable[[HttpEnd], None],
        *,
        on_piece: Callable[[bytes], None] | None = None,
        on_head: Callable[[bytes], None] | None = None,
    ) -> HttpFlight:
        asyncio.get_running_loop().call_soon(on_end, HttpReply(self.status, b"HTTP/1.1 %d X" % self.status, self.body))
        return self


async def answer_of(client: RepeatingClient, key: str) -> Answer:
    profile = build_profile("general")
    vendor = OpenAIVendor(client, base_url="http://x/v1", key=key, profile=profile, clock=LoopClock(), agent="t")
    ended: asyncio.Queue[Answer] = asyncio.Queue()
    vendor.send("/chat/completions", b"{}", ended.put_nowait)
    return await ended.get()


@pytest.mark.parametrize(
    ("key", "message"),
    [("sk-very-secret-1", "no such key: [key]"), ("none", "no such key: none")],
)
def test_a_key_that_the_vendor_repeats_goes_no_further(key: str, message: str) -> None:
    body = b'{"error":{"message":"no such key: %b","code":"invalid_api_key","param":"%b"}}' % ((key.encode(),) * 2)
    answer = asyncio.run(answer_of(RepeatingClient(401, body), key))
    assert (answer.kind, answer.message) == (FailureKind.AUTH, message)
    assert (key in repr(answer)) is (key == "none"), "neither message, code, param nor body holds a real key"


def test_a_success_that_echoes_the_key_is_kept_without_it() -> None:
    """A debugging proxy echoes the request's headers; the rest of the answer stays as it came."""
    key = "sk-very-secret-1"
    body = b'{"choices":[{"message":{"content":"yes"},"finish_reason":"stop"}],"seen":{"authorization":"Bearer %b"}}'
    answer = asyncio.run(answer_of(RepeatingClient(200, body % key.encode()), key))
    assert (answer.kind, answer.body) == (None, body % b"[key]")
