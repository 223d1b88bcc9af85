"""Calls over a real socket: what is sent, what is sent again, and which error is raised where it is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar

import pytest

from batchwright.client import calls, errors
from batchwright.client.asking import AHEAD_BYTES, Asker
from batchwright.client.event_stream import EventReader
from batchwright.client.sdk import AsyncBatches
from batchwright.client.values import Batch
from batchwright.core.errors import UsageError
from batchwright.fabric.system import SystemChance
from batchwright.http.open import open_http_client
from batchwright.ports.http import Timeouts
from support.loop_clock import LoopClock
from support.raw_server import Peer, Script, free_port, raw_server
from support.scripted_service import KEY, ScriptedService

T = TypeVar("T")


class PatientClock(LoopClock):
    """Waits are written down in place of being waited."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)


def chat(text: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with ScriptedService() as service:
        yield service


@asynccontextmanager
async def asking(base_url: str, clock: PatientClock, key: str = KEY) -> AsyncIterator[AsyncBatches]:
    http = open_http_client(Timeouts(connect_s=5, first_byte_s=10, total_s=10), environ={})
    try:
        yield AsyncBatches(
            Asker(http, base_url=base_url, api_key=key, clock=clock, chance=SystemChance(), agent="test")
        )
    finally:
        await http.close()


def run(base_url: str, work: Callable[[AsyncBatches], Awaitable[T]], clock: PatientClock | None = None) -> T:
    async def main() -> T:
        async with asyncio.timeout(60), asking(base_url, clock or PatientClock()) as batches:
            return await work(batches)

    return asyncio.run(main())


def test_a_service_that_cannot_be_reached_is_told_of_while_it_is_asked_again() -> None:
    class Unlucky(SystemChance):
        def random(self) -> float:
            return 1.0

    said: list[str] = []

    async def main() -> None:
        http = open_http_client(Timeouts(connect_s=5, first_byte_s=10, total_s=10), environ={})
        url = f"http://127.0.0.1:{free_port()}"
        asker = Asker(
            http, base_url=url, api_key="", clock=PatientClock(), chance=Unlucky(), agent="test", report=said.append
        )
        try:
            with pytest.raises(errors.NoAnswer):
                await AsyncBatches(asker).get("batch_1")
        finally:
            await http.close()

    asyncio.run(main())
    (text,) = said
    assert "cannot be reached" in text
    assert text.endswith("; it is asked again, 3 times at most")


def test_a_life_against_a_service_like_infrai(service: ScriptedService) -> None:
    service.set(page_rows=2)

    async def live(batches: AsyncBatches) -> None:
        rows = [chat(f"w{number}") for number in range(4)] + [chat("this is bad")]
        batch = await batches.submit(rows, batch_timeout=1800, metadata={"job": "x"})
        assert (batch.state, batch.terminal, batch.total_count) == ("partial", True, 5)
        assert (await batches.wait(batch.batch_id)).failed_count == 1
        items = [item async for item in batches.results(batch.batch_id)]
        assert [item.request_index for item in items] == [0, 1, 2, 3, 4]
        assert [item.ok for item in items] == [True] * 4 + [False]
        assert sum(item.cost_usd for item in items if item.cost_usd is not None) == Decimal("0.0005456")
        exported = b"".join([piece async for piece in batches.export(batch.batch_id)])
        assert [json.loads(line)["request_index"] for line in exported.splitlines()] == [0, 1, 2, 3, 4]
        assert (await batches.list_page()).batches == ()
        assert (await batches.cancel(batch.batch_id)).state == "partial", "asked for where the reply does not say"

    run(f"{service.base_url}/v1/", live)
    [seen] = service.submits
    assert seen.body["batch_timeout"] == 1800
    assert seen.body["idempotency_key"] == seen.key != ""
    assert seen.rows[0] == chat("w0"), "flat, as Infrai takes them"
    assert set(seen.body) == {"requests", "batch_timeout", "metadata", "idempotency_key"}, (
        "what is not said is not sent"
    )


def test_a_submit_whose_answer_was_lost_makes_one_batch(service: ScriptedService) -> None:
    service.set(deaf=2)
    batch = run(service.base_url, lambda batches: batches.submit([chat("once only")]))
    assert len(service.submits) == 3
    assert len({seen.key for seen in service.submits}) == 1
    assert service.paid["once only"] == 1
    assert batch.idempotency_key == service.submits[0].key


def test_another_submit_has_another_key(service: ScriptedService) -> None:
    async def twice(batches: AsyncBatches) -> None:
        first, second = await batches.submit([chat("x")]), await batches.submit([chat("x")])
        assert first.batch_id != second.batch_id

    run(service.base_url, twice)


def test_retry_after_is_a_floor(service: ScriptedService) -> None:
    service.refuse(429, "RATE_LIMITED", headers=(("Retry-After", "7"),))
    service.refuse(503, "")
    clock = PatientClock()
    run(service.base_url, lambda batches: batches.submit([chat("x")]), clock)
    first, second = clock.waits
    assert 7 <= first <= 7.5
    assert second <= 1.0


def test_who_asks_for_too_long_a_wait_is_not_waited_for(service: ScriptedService) -> None:
    service.refuse(429, "RATE_LIMITED", headers=(("Retry-After", "3000"),))
    clock = PatientClock()
    with pytest.raises(errors.RateLimited) as caught:
        run(service.base_url, lambda batches: batches.submit([chat("x")]), clock)
    assert caught.value.retry_after_s == 3000
    assert not clock.waits


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "INVALID_REQUEST", errors.BadRequest),
        (401, "UNAUTHORIZED", errors.KeyRefused),
        (402, "INSUFFICIENT_CREDIT", errors.CreditSpent),
        (409, "IDEMPOTENCY_CONFLICT", errors.IdempotencyConflict),
        (413, "BATCH_REJECTED", errors.BatchRejected),
    ],
)
def test_what_will_not_pass_is_not_asked_again(
    service: ScriptedService, status: int, code: str, error: type[errors.ServiceError]
) -> None:
    service.refuse(status, code)
    with pytest.raises(error):
        run(service.base_url, lambda batches: batches.submit([chat("x")]))
    assert len(service.calls) == 1


def test_retries_end(service: ScriptedService) -> None:
    service.refuse(503, "UNAVAILABLE", times=100)
    with pytest.raises(errors.ServiceUnavailable):
        run(service.base_url, lambda batches: batches.get("batch_0"))
    assert len(service.calls) == 5


def test_a_service_that_is_not_there(service: ScriptedService) -> None:
    with ScriptedService() as other:
        url = other.base_url
    clock = PatientClock()
    with pytest.raises(errors.NoAnswer) as caught:
        run(url, lambda batches: batches.submit([chat("x")]), clock)
    assert not caught.value.may_have_arrived
    assert len(clock.waits) == 4


def test_the_key_is_in_no_message(service: ScriptedService) -> None:
    service.refuse(503, "UNAVAILABLE", times=100)
    with pytest.raises(errors.ServiceError) as caught:
        run(service.base_url, lambda batches: batches.get("batch_0"))
    assert KEY not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://user:word@host"])
def test_an_address_that_cannot_be_used(url: str) -> None:
    with pytest.raises(UsageError):
        run(url, lambda batches: batches.get("batch_0"))


# ------------------------------------------------------------------------------------------------- what is built


def body_of(requests: list[Any], **options: Any) -> dict[str, Any]:
    call = calls.submit(requests, calls.SubmitOptions(**options), idempotency_key="k")
    found: dict[str, Any] = json.loads(call.body)
    return found


def test_rows_may_be_texts_and_go_out_as_they_are() -> None:
    row = '{"model":"m","n":1.10,"big":12345678901234567890123,"messages":[]}'
    call = calls.submit([row, row.encode() + b"\n"], calls.SubmitOptions(), idempotency_key="k")
    assert call.body.count(row.encode()) == 2


def test_options_as_services_take_them() -> None:
    assert body_of([{}], batch_timeout=timedelta(minutes=30))["batch_timeout"] == 1800
    assert body_of([{}], batch_timeout="24h")["batch_timeout"] == "24h"
    assert body_of([{}], max_cost_usd=Decimal("0.1"))["max_cost_usd"] == 0.1
    assert body_of([{"content": "half \ud83d"}])["requests"] == [{"content": "half \ufffd"}]


@pytest.mark.parametrize("rows", [[], ["[1]"], ["nonsense"], ['{"a":1}, {"b":2}'], [{"a": object()}]])
def test_rows_that_are_none_are_refused_before_anything_is_sent(rows: list[Any]) -> None:
    with pytest.raises(UsageError):
        body_of(rows)


def test_an_id_cannot_leave_its_place_in_the_path() -> None:
    assert calls.status("../../account?x=1").path == "/v1/ai/batch/status/..%2F..%2Faccount%3Fx%3D1"


# --------------------------------------------------------------------------------------------------------- events

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(event_id: str, state: str) -> bytes:
    data = json.dumps({"batch_id": "batch_0", "state": state})
    text = f": alive\nid: {event_id}\nevent: status\ndata: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(text), text)


def watch(script: Script) -> tuple[list[Batch], list[bytes]]:
    async def main() -> tuple[list[Batch], list[bytes]]:
        async with asyncio.timeout(60), raw_server(script) as server, asking(server.url(""), PatientClock()) as batches:
            seen = [batch async for batch in batches.events("batch_0")]
            return seen, [request for _, request in server.requests]

    return asyncio.run(main())


def test_events_end_with_the_batch() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD)
        await peer.drip(event("0.1", "running") + event("0.2", "completed"))
        await peer.wait_gone()

    seen, _ = watch(script)
    assert [batch.state for batch in seen] == ["running", "completed"]


def test_events_that_break_off_are_taken_up_again() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD + event("0.7", "running" if peer.number == 0 else "partial"))

    seen, requests = watch(script)
    assert [batch.state for batch in seen] == ["running", "partial"]
    assert b"last-event-id: 0.7\r\n" in requests[1].lower()


def test_events_that_never_end_the_batch_are_no_endless_loop() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD + b"0\r\n\r\n")

    with pytest.raises(errors.BadReply):
        watch(script)


def test_an_event_without_end_is_refused() -> None:
    reader = EventReader()
    assert not reader.feed(b"data: " + b"x" * 900_000)
    with pytest.raises(ValueError, match="above"):
        reader.feed(b"x" * 900_000)


# ------------------------------------------------------------------------------------------------------- streams


def test_an_export_is_not_read_ahead_of_who_takes_it() -> None:
    size = 64 * AHEAD_BYTES
    piece = b"x" * (256 * 1024)
    sent = [0]

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size // len(piece)):
            await peer.send(piece)
            sent[0] += len(piece)

    async def main() -> None:
        async with asyncio.timeout(60), raw_server(script) as server, asking(server.url(""), PatientClock()) as batches:
            pieces = batches.export("batch_0")
            taken = len(await anext(pieces))
            for _ in range(500):
                await asyncio.sleep(0)
            assert sent[0] < size // 2
            async for more in pieces:
                taken += len(more)
            assert taken == size

    asyncio.run(main())


def test_an_export_that_breaks_off_says_so() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")

    async def main() -> None:
        async with asyncio.timeout(60), raw_server(script) as server, asking(server.url(""), PatientClock()) as batches:
            with pytest.raises(errors.NoAnswer):
                async for _ in batches.export("batch_0"):
                    pass
            assert len(server.requests) == 1

    asyncio.run(main())
