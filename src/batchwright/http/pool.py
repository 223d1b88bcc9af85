"""All connections to one origin. It grows to what is asked; of those that rest the last one goes first.

A flight takes a resting connection or waits; for each that waits one connection is opened, at most `MAX_OPENING` at a
time, and a connection that falls free before serves it sooner. A connection that cannot be opened ends the flight that
has waited longest: so every flight ends, and none is charged for waiting behind others.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence

from batchwright.http.connection import Connection, PlainConnection, TlsConnection
from batchwright.http.deadlines import overdue, silent
from batchwright.http.dial import Dialer
from batchwright.http.faults import describe, unreachable
from batchwright.http.flight import OwnFlight
from batchwright.http.request import Origin
from batchwright.http.sweep import Sweep
from batchwright.ports.http import MAX_ANSWER_BYTES, FaultCause, HttpFault, Timeouts

MAX_OPENING = 100
"""Connections being opened at once: more would overflow the accept queue of a common server (128, often 100), whose
lost handshakes come back a second later, and would hold the loop up with TLS handshakes."""

TLS_BUFFER_BYTES = 64 * 1024
"""Four of the largest records of TLS."""


class Pool:
    def __init__(
        self,
        origin: Origin,
        *,
        loop: asyncio.AbstractEventLoop,
        timeouts: Timeouts,
        tls: ssl.SSLContext | None,
        sweep: Sweep,
        addresses: Sequence[str] = (),
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        """`addresses`: where to connect, without a look-up of the origin's host."""
        self._origin = origin
        self.loop = loop
        self._timeouts = timeouts
        self._tls = tls
        self._sweep = sweep
        self.max_answer_bytes = max_answer_bytes
        self._dialer = Dialer(origin, loop, addresses)
        self._resting: list[Connection] = []
        self._answered: list[Connection] = []
        """In this turn of the loop."""
        self._looked_at: list[Connection] = []
        """Answered in the turn before; what was sent unasked meanwhile ends them."""
        self._looking = False
        self._waiting: deque[OwnFlight] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._closed: asyncio.Event | None = None
        """Set once `close` was asked and the last connection is gone."""
        self.read_buffer = memoryview(bytearray(TLS_BUFFER_BYTES if tls else 0))
        """One for all: between a `get_buffer` and its `buffer_updated` the loop does nothing else."""
        self.connections: set[Connection] = set()
        """All that are open, resting or not."""

    def send(self, flight: OwnFlight) -> None:
        resting = self._resting
        while resting:
            connection = resting.pop()
            if connection.usable(self.loop.time()):
                connection.begin(flight)
                return
        if self._closed is not None:
            self.loop.call_soon(flight.finish, unreachable("this client has been closed"))
            return
        self._waiting.append(flight)
        self._grow()

    def withdraw(self, flight: OwnFlight) -> None:
        """A waiting flight was aborted; the connection it asked for will serve another, or rest."""
        self._waiting.remove(flight)

    def give_back(self, connection: Connection) -> None:
        """The connection has answered. It is free once the loop has read its sockets again: a server that sends more
        than it was asked for does so right behind the answer, and what is not read yet when the next request is written
        would be taken for the answer to that, and so on for ever."""
        self._answered.append(connection)
        if not self._looking:
            self._looking = True
            self.loop.call_soon(self._look)

    def _look(self) -> None:
        """Comes once a turn while connections answer: those of the turn before have been looked at since."""
        free, self._looked_at, self._answered = self._looked_at, self._answered, []
        if self._looked_at:
            self.loop.call_soon(self._look)
        else:
            self._looking = False
        for connection in free:
            if connection.lost:
                continue
            if self._waiting:
                connection.begin(self._waiting.popleft())
            else:
                connection.rest()
                self._resting.append(connection)
        if self._waiting:
            self._grow()

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        self.connections.discard(connection)
        if self._closed is not None and not self.connections:
            self._closed.set()

    def overdue(self, out_s: float, *, heard: bool) -> HttpFault | None:
        return overdue(self._timeouts, out_s, heard=heard)

    def silent(self, quiet_s: float) -> HttpFault | None:
        return silent(self._timeouts, quiet_s)

    def sweep(self, now_s: float) -> bool:
        """Whether there is anything to sweep later."""
        for connection in list(self.connections):
            connection.sweep(now_s)
        self._resting = [connection for connection in self._resting if not connection.lost]
        return bool(self.connections or self._opening)

    async def close(self) -> None:
        self._closed = asyncio.Event()
        self._dialer.close()
        opening = list(self._opening)
        for task in opening:
            task.cancel()
        unsent = list(self._waiting)
        self._waiting.clear()
        out = [flight for connection in list(self.connections) if (flight := connection.drop()) is not None]
        self._resting.clear()
        await asyncio.gather(*opening, return_exceptions=True)
        if self.connections:
            await self._closed.wait()
        for flight in out:
            flight.finish(CLOSED)
        for flight in unsent:
            flight.finish(unreachable("this client was closed before the request was sent"))

    def _grow(self) -> None:
        lacking = len(self._waiting) - len(self._answered) - len(self._looked_at)
        while len(self._opening) < min(lacking, MAX_OPENING):
            self._opening.add(self.loop.create_task(self._open(), name=f"connect {self._origin.authority}"))
        self._sweep.start()

    async def _open(self) -> None:
        connection = TlsConnection(self) if self._tls else PlainConnection(self)
        try:
            fault = await self._dial(connection)
        except BaseException:
            if connection in self.connections:
                connection.drop()
            raise
        finally:
            task = asyncio.current_task()
            if task is not None:
                self._opening.discard(task)
        if fault is None:
            # Not asked for news: a new connection over TLS has some, the server's tickets.
            if self._waiting:
                connection.begin(self._waiting.popleft())
            else:
                connection.rest()
                self._resting.append(connection)
            self._grow()
            return
        flight = self._waiting.popleft() if self._waiting else None
        self._grow()
        if flight is not None:
            flight.finish(fault)

    async def _dial(self, connection: Connection) -> HttpFault | None:
        connect_s = self._timeouts.connect_s
        try:
            async with asyncio.timeout(connect_s):
                peer = await self._dialer.connect()
                await self.loop.create_connection(
                    lambda: connection,
                    sock=peer,
                    ssl=self._tls,
                    server_hostname=self._origin.host if self._tls else None,
                    ssl_handshake_timeout=connect_s if self._tls else None,
                )
        except TimeoutError:
            fault = unreachable(f"no connection within {connect_s:g} s")
        except (OSError, RuntimeError, ValueError) as error:
            # The last two are the loop's own: a descriptor that another transport has not let go of yet, an odd host.
            # They must end the flight like any other failure, which would else wait for a connection for ever.
            fault = unreachable(describe(error))
        else:
            if not connection.lost:
                return None
            fault = unreachable(
                "the server spoke before it was asked"
                if connection.spoke_unasked
                else "the connection was closed before the request was sent"
            )
        if connection in self.connections:
            connection.drop()
        return fault


CLOSED = HttpFault(cause=FaultCause.NETWORK, detail="this client was closed while the request was out")
