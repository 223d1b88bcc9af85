"""One kept-alive connection of our own: at most one request out at a time, no task, no future, no timer for it.

    state     begins with                     ends with
    opening   the pool's dial                 `connection_made`; what comes or is lost before a request was written is
                                              the pool's to judge: not one byte has left
    idle      the pool gave it a rest         `begin`; bytes, or the end of the connection: it is closed, nobody is told
    busy      `begin`: the request is written whole answer -> idle, or closed where the server or the answer says so;
              in one piece                    anything else -> closed, and the flight ends with a fault
    lost      closed, from either side        -

A request is never written a second time: a connection that dies under it ends the flight as NETWORK, whoever's fault.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from batchwright.http.answer import AnswerReader
from batchwright.http.faults import describe, network
from batchwright.http.sockets import has_news, probe_when_silent
from batchwright.ports.http import HttpEnd, HttpReply
from batchwright.wire.http_head import header

if TYPE_CHECKING:
    from batchwright.http.flight import OwnFlight
    from batchwright.http.pool import Pool

MAX_IDLE_S = 50.0
"""Common servers and balancers close an idle connection after 60 s: one that is older may die under the request."""
TRUSTED_IDLE_S = 0.25
"""A connection that rested longer is looked at before it is used again. Below, the loop has looked by itself
(`Pool.give_back`), and a system call for each request would cost a twentieth of the whole transport."""
KEEP_ALIVE_DIGITS = 9
"""Of the seconds that a server says it keeps a connection: what is longer is a slip, and far above our own bound."""
JOIN_BELOW_BYTES = 64 * 1024
"""Below, head and body are copied into one piece: cheaper than a vectored write of two."""


class Connection(asyncio.BaseProtocol):
    """What both kinds share; `PlainConnection` and `TlsConnection` differ in how bytes are handed to them."""

    __slots__ = (
        "_descriptor",
        "_idle_limit_s",
        "_idle_since_s",
        "_limit_known",
        "_pool",
        "_reader",
        "_transport",
        "_written_s",
        "flight",
        "lost",
        "spoke_unasked",
    )

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._reader = AnswerReader(pool.max_answer_bytes)
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # set before any other method is called
        self._descriptor = -1
        self._written_s = 0.0
        self._idle_since_s = 0.0
        """0 until it first rests."""
        self._idle_limit_s = MAX_IDLE_S
        self._limit_known = False
        """An answer of this connection has been asked how long the server keeps it."""
        self.flight: OwnFlight | None = None
        self.lost = False
        self.spoke_unasked = False
        """Bytes came while nothing was asked."""

    def begin(self, flight: OwnFlight) -> None:
        """Writes the request. Durable reservation lies behind it: from here on the row may be at the vendor."""
        body = flight.body
        if len(body) < JOIN_BELOW_BYTES:
            self._transport.write(b"%b%d\r\n\r\n%b" % (flight.head, len(body), body))
        else:
            self._transport.writelines((b"%b%d\r\n\r\n" % (flight.head, len(body)), body))
        self._written_s = self._pool.loop.time()
        reader = self._reader
        if flight.on_piece is not reader.on_piece or flight.on_head is not reader.on_head:
            reader.on_piece, reader.on_head = flight.on_piece, flight.on_head
        self.flight = flight
        flight.connection = self
        flight.body = b""

    def rest(self) -> None:
        self._idle_since_s = self._pool.loop.time()

    def usable(self, now_s: float) -> bool:
        """Whether a connection that has rested may carry another request; closes it if not."""
        if self.lost or self._transport.is_closing():
            return False
        idle_s = now_s - self._idle_since_s
        if idle_s < TRUSTED_IDLE_S or (idle_s < self._idle_limit_s and not has_news(self._descriptor)):
            return True
        self.drop()
        return False

    def drop(self) -> OwnFlight | None:
        """Closes it at once. Returns the flight that was out on it, which is now nobody's."""
        flight, self.flight = self.flight, None
        self.lost = True
        self._transport.abort()
        return flight

    def sweep(self, now_s: float) -> None:
        """Closes what rested too long; ends a flight whose deadline has passed."""
        if self.flight is None:
            if not self.lost and self._idle_since_s and now_s - self._idle_since_s >= self._idle_limit_s:
                self.drop()
            return
        if self.flight.on_piece is not None:
            fault = None if self.flight.held else self._pool.silent(now_s - self._written_s)
        else:
            fault = self._pool.overdue(now_s - self._written_s, heard=self._reader.heard)
        if fault is not None:
            self._end_lost(fault)

    def hold(self, held: bool) -> None:
        """Stops or goes on reading a streamed answer."""
        if self.lost or self._transport.is_closing():
            return
        if held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
            self._written_s = self._pool.loop.time()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("socket")
        self._descriptor = peer.fileno()
        probe_when_silent(peer)
        self._pool.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self.flight is None:
            # Never kept for later: whatever it is, it is not the answer to a request that is not written yet.
            self.spoke_unasked = True
            self.drop()
            return
        reader = self._reader
        if reader.on_piece is not None:
            self._written_s = self._pool.loop.time()  # its time counts from the last piece
        if reader.feed(data):
            self._end(reader.take())

    def eof_received(self) -> None:
        # Ended here and not in `connection_lost`: that waits for a request that the server has stopped reading.
        if self.flight is not None:
            self._end_lost(self._reader.feed_end())
        else:
            self.drop()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._pool.forget(self)
        if self.flight is not None:
            self._end_lost(self._reader.feed_end() if error is None else network(describe(error)))

    def _end(self, end: HttpEnd) -> None:
        """The answer is whole, or wrong. The connection finds its place before anybody is told: `on_end` may send."""
        flight = self.flight
        if not self._reader.reusable or self._transport.get_write_buffer_size():
            # A buffer that is not empty: answered before the request was read. What is left of it must not be read as
            # the head of another.
            self.drop()
        else:
            self.flight = None
            if not self._limit_known:
                self._idle_limit_s = idle_limit_s(end)
                self._limit_known = True
            if flight is not None and flight.held:
                self.hold(False)
            self._pool.give_back(self)
        if flight is not None:
            flight.finish(end)

    def _end_lost(self, end: HttpEnd) -> None:
        flight = self.drop()
        if flight is not None:
            flight.finish(end)


class PlainConnection(Connection, asyncio.Protocol):
    __slots__ = ()


class TlsConnection(Connection, asyncio.BufferedProtocol):
    """Lends its buffer to TLS. Otherwise each read makes a bytes object of 256 KiB and shrinks it to the answer: three
    system calls on memory a request, which doubled the CPU of a request over TLS where the allocator was unlucky."""

    __slots__ = ()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._pool.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._pool.read_buffer[:nbytes]))


def idle_limit_s(end: HttpEnd) -> float:
    """How long a connection may rest, from what the server says of itself (`Keep-Alive: timeout=5`), with a margin."""
    if not isinstance(end, HttpReply):
        return MAX_IDLE_S
    for part in (header(end.head, "keep-alive") or "").split(","):
        name, _, value = part.partition("=")
        if name.strip().lower() == "timeout" and value.strip().isdecimal():
            said_s = int(value.strip()[:KEEP_ALIVE_DIGITS])
            return min(MAX_IDLE_S, max(said_s - 1.0, said_s / 2))
    return MAX_IDLE_S
