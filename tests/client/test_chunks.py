"""A chunk's conversation with its service, on a clock that a test moves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from batchwright.client import calls
from batchwright.client.asking import Asker
from batchwright.client.batches import ServiceBatches
from batchwright.client.chunks import PATIENCE_S, STALE_S, Carrier, Chunk
from batchwright.client.errors import KeyRefused, NoAnswer, ServiceUnavailable
from batchwright.client.values import RowResult
from batchwright.core.batch_spec import BatchSpec, Destination, VendorProtocol
from batchwright.core.records import InputRow
from batchwright.core.rows import SourceRow
from batchwright.fabric.system import SystemChance
from batchwright.http.open import open_http_client
from batchwright.ports.batches import Submit
from batchwright.ports.http import MAX_ANSWER_BYTES, Timeouts
from support.loop_clock import FIXED_NOW_MS
from support.raw_server import Peer, raw_server
from support.scripted_service import KEY, ScriptedService

T = TypeVar("T")


class MovedClock:
    """Whoever sleeps moves it."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def now_s(self) -> float:
        return self.time_s

    def now_ms(self) -> int:
        return FIXED_NOW_MS

    async def sleep(self, seconds: float) -> None:
        self.time_s += seconds
        self.on_sleep()
        await asyncio.sleep(0)


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with ScriptedService() as service:
        yield service


@asynccontextmanager
async def asking(base_url: str, clock: MovedClock, key: str = KEY) -> AsyncIterator[Asker]:
    http = open_http_client(Timeouts(connect_s=5, first_byte_s=10, total_s=10), environ={})
    try:
        yield Asker(http, base_url=base_url, api_key=key, clock=clock, chance=SystemChance(), agent="test")
    finally:
        await http.close()


def carry(
    service: ScriptedService, work: Callable[[Carrier], Awaitable[T]], clock: MovedClock, key: str = KEY
) -> tuple[T, list[str]]:
    said: list[str] = []

    async def main() -> T:
        async with asyncio.timeout(60), asking(service.base_url, clock, key) as asker:
            return await work(Carrier(asker, report=said.append))

    return asyncio.run(main()), said


def chat(text: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def chunk(*texts: str) -> Chunk:
    items = [calls.item("/chat/completions", json.dumps(chat(text)).encode()) for text in texts]
    return Chunk(key="k", body=calls.array_body(items, "k"), rows=[None] * len(texts), digests=list(texts))


def test_a_batch_that_stands_still_is_told_of_and_waited_for(service: ScriptedService) -> None:
    clock = MovedClock()
    service.set(state="warming_up")

    def later() -> None:
        clock.time_s += 10
        if clock.time_s > 3 * STALE_S:
            service.set(state="")

    clock.on_sleep = later

    async def work(carrier: Carrier) -> str:
        one = chunk("a")
        await carrier.submit(one)
        return (await carrier.wait(one)).state

    state, said = carry(service, work, clock)
    assert state == "completed"
    assert 2 <= len(said) <= 4
    assert "'warming_up', unchanged, for 15 minutes" in said[0]


def test_a_submit_that_may_have_been_read_is_said_again_under_its_key(service: ScriptedService) -> None:
    clock = MovedClock()
    service.set(deaf=20)
    one = chunk("a", "b")
    _, said = carry(service, lambda carrier: carrier.submit(one), clock)
    assert one.batch_id
    assert service.paid == {"a": 1, "b": 1}
    assert {submit.key for submit in service.submits} == {"k"}
    assert len(said) == 1, "told once"
    assert clock.time_s > 10


def test_patience_has_an_end(service: ScriptedService) -> None:
    clock = MovedClock()
    service.refuse(503, "UNAVAILABLE", times=10_000)
    with pytest.raises(ServiceUnavailable) as caught:
        carry(service, lambda carrier: carrier.submit(chunk("a")), clock)
    assert caught.value.unheard
    assert PATIENCE_S <= clock.time_s <= 2 * PATIENCE_S


def test_what_was_surely_not_read_is_given_back_at_once() -> None:
    with ScriptedService() as gone:
        pass
    clock = MovedClock()
    with pytest.raises(NoAnswer) as caught:
        carry(gone, lambda carrier: carrier.submit(chunk("a")), clock)
    assert not caught.value.unheard
    assert clock.time_s < 60


def test_a_key_that_is_refused_is_no_matter_of_patience(service: ScriptedService) -> None:
    with pytest.raises(KeyRefused):
        carry(service, lambda carrier: carrier.submit(chunk("a")), MovedClock(), key="wrong")
    assert len(service.calls) == 1


def test_a_page_that_is_too_large_for_a_reply_is_asked_for_in_smaller_ones() -> None:
    asked: list[int] = []

    async def script(peer: Peer) -> None:
        while True:
            head = await peer.read_head()
            limit = int(head.partition(b"limit=")[2].partition(b"&")[0].split()[0])
            asked.append(limit)
            if limit > 10:
                await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (MAX_ANSWER_BYTES + 1))
                await peer.send(bytes(MAX_ANSWER_BYTES + 1))
                continue
            body = json.dumps({"ok": True, "data": {"items": [{"ok": True, "request_index": 0}], "total_count": 1}})
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body.encode()))

    async def main() -> list[RowResult]:
        async with asyncio.timeout(60), raw_server(script) as server, asking(server.url(""), MovedClock()) as asker:
            taken: list[RowResult] = []
            one = chunk("a")
            one.batch_id = "batch_1"
            await Carrier(asker, report=print).items(one, taken.append)
            return taken

    assert [item.request_index for item in asyncio.run(main())] == [0]
    assert asked == sorted(asked, reverse=True)
    assert asked[-1] <= 10 < asked[0]


def test_rows_are_submitted_with_their_labels(service: ScriptedService) -> None:
    """`ports.batches` at a service: the whole batch in one call."""
    destination = Destination(vendor="there", base_url=service.base_url, protocol=VendorProtocol.SERVICE)
    body = json.dumps(chat("a")).encode()

    async def main() -> None:
        async with asyncio.timeout(60), asking(service.base_url, MovedClock()) as asker:
            batches = ServiceBatches(asker, destination)
            rows = [[SourceRow(row=InputRow(body=body, custom_id="x"))], [SourceRow(row=InputRow(body=body))]]
            submit = Submit(batch_id="", spec=BatchSpec(name="", destinations=(destination,)))
            made = await batches.submit(submit, rows)
            assert (made.status.total, made.status.counts.succeeded, made.replayed) == (2, 2, False)
            found = [view async for views in batches.rows(made.status.batch_id, end=1) for view in views]
            assert [view.request_index for view in found] == [0]

    asyncio.run(main())
    [seen] = service.submits
    assert seen.rows == [
        {"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": chat("a")},
        chat("a"),
    ]
