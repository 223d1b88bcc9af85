"""`GET status/{id}`, at once or by long poll, and `GET events/{id}`, the same as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import Raw
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from batchwright.core.errors import BatchwrightError
from batchwright.ports.batches import BatchStatus
from batchwright.server import envelope
from batchwright.server.asking import Ask
from batchwright.server.faults import fault_of
from batchwright.server.infrai.status_view import view_for
from batchwright.server.watching import Sight, Watched, settled_count

WAIT_MAX_S = 60
KEEP_ALIVE_S = 15.0
"""Proxies close a connection on which nothing moved for a minute, some after half of that."""
KEEP_ALIVE = b": keep-alive\n\n"
EVENT_STREAM = "text/event-stream"


async def status(ask: Ask) -> Response:
    """With `wait`: as soon as the state is another than now, at the latest after so many seconds. With `seen` (the
    `version` that the caller has) also: as soon as the count of settled rows or what its lanes wait for is another. A
    batch that has ended does not wait."""
    batch_id = ask.batch_id()
    wait_s = ask.number("wait", 0, least=0, most=WAIT_MAX_S)
    seen = ask.text("seen")
    if not wait_s:

        async def view() -> object:
            return view_for(ask.service, await ask.batches.status(batch_id))

        return await ask.answer_recent(view)
    with ask.service.watching.watch(ask.batches, ask.tenant.account, batch_id) as watched:
        sight = await watched.look()
        if seen == sight.version and not sight.status.terminal:
            sight = await watched.after(seen, wait_s) or watched.last or sight
        elif not seen:
            sight = await _other_state(watched, sight, wait_s)
        return ask.answer(Raw(sight.encoded(encoder(ask))))


async def _other_state(watched: Watched, sight: Sight, within_s: float) -> Sight:
    clock = watched.clock
    until_s = clock.now_s() + within_s
    newest = sight
    while newest.status.state is sight.status.state and not newest.status.terminal:
        newer = await watched.after(newest.version, until_s - clock.now_s())
        if newer is None:
            return watched.last or newest
        newest = newer
    return newest


async def events(ask: Ask) -> Response:
    """The status as it is, then whenever it changes, until the batch has ended. A reconnect gets the status as it is
    then; one that has seen the end gets 204, at which browsers stop reconnecting."""
    batch_id = ask.batch_id()
    now = await ask.batches.status(batch_id)
    if now.terminal and ask.request.headers.get("last-event-id", "") == event_id(now):
        return Response(status_code=204)
    return EventStream(ask, batch_id)


def event_id(status: BatchStatus) -> str:
    return f"{status.round}.{settled_count(status)}"


def encoder(ask: Ask) -> Callable[[BatchStatus], bytes]:
    return lambda status: msgspec.json.encode(view_for(ask.service, status))


class EventStream(Response):
    """An ASGI response of its own: no task a watcher but the one that hears the client go."""

    def __init__(self, ask: Ask, batch_id: str) -> None:
        super().__init__(
            media_type=EVENT_STREAM,
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Request-Id": ask.request_id},
        )
        del self.headers["content-length"]
        self._ask, self._batch_id = ask, batch_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        gone = asyncio.create_task(_until_gone(receive), name=f"events of {self._batch_id}: until the client goes")
        try:
            await self._tell_all(send, gone)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone

    async def _tell_all(self, send: Send, gone: asyncio.Task[None]) -> None:
        ask = self._ask
        with ask.service.watching.watch(ask.batches, ask.tenant.account, self._batch_id) as watched:
            try:
                await self._tell(send, watched, gone)
            except BatchwrightError as error:
                await send(_body(_error_event(error)))

    async def _tell(self, send: Send, watched: Watched, gone: asyncio.Task[None]) -> None:
        encode = encoder(self._ask)
        sight = await watched.look()
        await send(_body(_event(sight, encode)))
        while not sight.status.terminal:
            newer = await watched.after(sight.version, KEEP_ALIVE_S, gone)
            if gone.done() or self._ask.service.watching.ending:
                return
            sight = newer or sight
            await send(_body(_event(sight, encode) if newer else KEEP_ALIVE))


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(sight: Sight, encode: Callable[[BatchStatus], bytes]) -> bytes:
    return b"id: %b\nevent: status\ndata: %b\n\n" % (event_id(sight.status).encode(), sight.encoded(encode))


def _error_event(error: BatchwrightError) -> bytes:
    """The batch can no longer be read, most likely because it was deleted."""
    fault = fault_of(error)
    assert fault is not None, "every BatchwrightError is a fault that may be shown"
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode(envelope.error_object(fault))


def _body(data: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": True}
