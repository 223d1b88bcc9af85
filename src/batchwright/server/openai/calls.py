"""Single calls of OpenAI's face: passed to the vendor of their model, and its answer passed back as it came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from batchwright.core.endpoints import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from batchwright.core.money import usd_text
from batchwright.core.records import UNKNOWN
from batchwright.ports.calls import CallBroken, CallRefused, CallReply, Pieces
from batchwright.server.asking import Ask, Handler
from batchwright.server.bodies import read_body
from batchwright.server.envelope import JSON
from batchwright.server.faults import retry_after
from batchwright.server.openai.shell import error_type

ENDPOINTS = (CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES)
EVENT_STREAM = "text/event-stream"

_encode = msgspec.json.Encoder().encode


def call_to(endpoint: str) -> Handler:
    """The route of one endpoint."""

    async def call(ask: Ask) -> Response:
        body = await read_body(ask.request, ask.service.ceilings.row_bytes)
        try:
            reply = await _answered(ask, endpoint, body)
        except CallRefused as error:
            return _refused(error, ask)
        headers = _headers(reply, ask)
        status = reply.status if 200 <= reply.status <= 599 else 502
        if reply.pieces is not None:
            return _Streamed(reply.pieces, status, headers)
        return Response(reply.body, status_code=status, headers=headers)

    return call


async def _answered(ask: Ask, endpoint: str, body: bytes) -> CallReply:
    """Waits for the answer and for whoever asked to go away. Raises CallRefused, ClientDisconnect."""
    sending = asyncio.create_task(ask.service.calls.send(ask.tenant, endpoint, body), name="call")
    going = asyncio.create_task(_gone(ask.request), name="caller goes")
    try:
        await asyncio.wait([sending, going], return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            return await sending
        raise ClientDisconnect
    finally:
        going.cancel()
        sending.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Streamed(StreamingResponse):
    """Whatever becomes of whoever asked, the call is dropped at the vendor if it is still out."""

    def __init__(self, pieces: Pieces, status: int, headers: dict[str, str]) -> None:
        self._pieces = pieces
        events = headers["content-type"].lower().startswith(EVENT_STREAM)
        super().__init__(_with_error(pieces) if events else pieces, status_code=status, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except CallBroken:
            pass  # an answer that is not ended closes its connection: that says it
        finally:
            self._pieces.close()


async def _with_error(pieces: Pieces) -> AsyncIterator[bytes]:
    """A stream of events that broke off says so as an event, as vendors do: there is no other way to say why."""
    try:
        async for piece in pieces:
            yield piece
    except CallBroken as error:
        said = {"message": f"The answer broke off: {error}", "type": "server_error", "param": None, "code": "broken"}
        yield b"\n\ndata: " + _encode({"error": said}) + b"\n\n"


def _headers(reply: CallReply, ask: Ask) -> dict[str, str]:
    """What a header may not hold has been left out of the vendor's own; the name of a vendor is the settings'."""
    headers = {"content-type": JSON, "x-request-id": ask.request_id, **dict(reply.headers)}
    headers["X-Infrai-Request-Id"] = ask.request_id
    headers["X-Infrai-Vendor"] = reply.vendor.encode("ascii", "replace").decode()
    if reply.cost_picousd != UNKNOWN:
        headers["X-Infrai-Cost-Usd"] = usd_text(reply.cost_picousd)
    return headers


def _refused(error: CallRefused, ask: Ask) -> Response:
    said = {
        "message": str(error),
        "type": error_type(error.http_status),
        "param": error.param or None,
        "code": error.code,
    }
    again = "true" if error.http_status == 429 or error.http_status >= 500 else "false"
    headers = {"X-Request-Id": ask.request_id, "X-Infrai-Request-Id": ask.request_id, "X-Should-Retry": again}
    if error.retry_after_s:
        headers["Retry-After"] = retry_after(error.retry_after_s)
    return Response(_encode({"error": said}), status_code=error.http_status, media_type=JSON, headers=headers)
