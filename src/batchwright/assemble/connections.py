"""Connections of the service, bounded: how many, how large a request's head may be, how long it and an answer may take.

uvicorn bounds none of these. What is refused here never reaches a route; it is told in the envelope all the same.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from batchwright.ports.clock import Chance, Clock
from batchwright.server import envelope
from batchwright.server.asking import request_id
from batchwright.server.faults import Fault

CONNECTIONS_MAX = 4096
"""At once; each costs a file descriptor and some 50 KiB. Fewer where the process may open fewer files."""
SPARE_FILES = 256
"""Of the files that the process may open: for the store, vendors and webhooks."""
HEAD_BYTES_MAX = 64 * 1024
"""Of a request line and its headers; a browser's are below 8 KiB."""
HEAD_S = 20.0
"""A head that has not arrived whole by then is given up, and so is a connection on which nothing is asked."""
UNREAD_S = 60.0
"""An answer of which the client takes nothing for so long is broken off."""


def connections_max() -> int:
    if sys.platform == "win32":
        return CONNECTIONS_MAX
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else soft - SPARE_FILES
    return max(16, min(CONNECTIONS_MAX, allowed))


def bounded_protocol(clock: Clock, chance: Chance) -> type[asyncio.Protocol]:
    """The class that uvicorn makes of each connection."""
    at_most = connections_max()

    class Connection(_Bounded):
        def refuse(self, fault: Fault) -> None:
            self.refuse_with(fault, request_id(clock, chance))

        def too_many(self) -> bool:
            return len(self.connections) > at_most

    return Connection


class _Bounded(HttpToolsProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._in_head = True
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def refuse(self, fault: Fault) -> None:
        raise NotImplementedError

    def too_many(self) -> bool:
        raise NotImplementedError

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a TCP transport, always
        super().connection_made(transport)
        if self.too_many():
            self.refuse(Fault("UNAVAILABLE", "Too many connections are open here.", retry_after_s=1.0))
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer = _cancelled(self._head_timer)
        self._unread_timer = _cancelled(self._unread_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES_MAX:
            self.refuse(Fault("HEAD_TOO_LARGE", f"The request's head has more than {HEAD_BYTES_MAX:,} bytes."))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        if self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        self._head_timer = _cancelled(self._head_timer)
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self.refuse(Fault("INVALID_REQUEST", "That is no HTTP request this service can read."))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_timer = self.loop.call_later(UNREAD_S, self._break_off)

    def resume_writing(self) -> None:
        self._unread_timer = _cancelled(self._unread_timer)
        super().resume_writing()

    def refuse_with(self, fault: Fault, name: str) -> None:
        """Answers in the envelope, where nothing of an answer is under way, and closes."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            answer = envelope.failure(fault, request_id=name, latency_ms=0)
            head = [f"HTTP/1.1 {answer.status_code} {fault.code}".encode()]
            head += [b"%b: %b" % header for header in answer.raw_headers]
            head.append(b"connection: close")
            self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + bytes(answer.body))
        self.transport.close()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._await_head()  # the next request waits behind an answer: it is not its sender who is slow
        else:
            self.refuse(Fault("REQUEST_TIMEOUT", f"No request arrived whole within {HEAD_S:g} s.", retry_after_s=1.0))

    def _break_off(self) -> None:
        self._unread_timer = None
        self.transport.abort()


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """What stands in a cancelled timer's place: none."""
    if timer is not None:
        timer.cancel()
    return None
