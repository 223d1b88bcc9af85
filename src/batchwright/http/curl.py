"""libcurl as the second transport: for proxies, and for whoever asks for it. Implements `ports.http.HttpClient`.

Its multi handle runs inside the event loop: libcurl says which sockets to watch and when to wake it, we call it back.
Left to itself libcurl sends a POST again when a reused connection dies without a byte. Nobody would see that, and a
vendor would be paid twice: here the second call of `PREREQFUNCTION` in one flight aborts it instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pycurl  # type: ignore[import-untyped]  # its wheel has stubs but no py.typed

from batchwright.http.curl_exchange import Exchange, new_easy
from batchwright.http.curl_watch import watch_sockets
from batchwright.http.faults import network, unreachable
from batchwright.http.proxies import Proxies
from batchwright.http.request import check_method, read_url
from batchwright.http.sockets import KeptSockets
from batchwright.http.sweep import Sweep, sweep_interval_s
from batchwright.http.trust import trust_paths
from batchwright.ports.http import HttpEnd, HttpFault, Timeouts


class CurlFlight:
    """Implements `ports.http.HttpFlight`."""

    __slots__ = ("_client", "_exchange", "_on_end")

    def __init__(self, client: CurlClient, exchange: Exchange | None, on_end: Callable[[HttpEnd], None]) -> None:
        self._client = client
        self._exchange = exchange
        self._on_end: Callable[[HttpEnd], None] | None = on_end

    def finish(self, end: HttpEnd) -> None:
        """Tells how it ended, once."""
        on_end = self._on_end
        if on_end is not None:
            self._on_end = self._exchange = None
            on_end(end)

    def abort(self) -> None:
        exchange, self._exchange = self._exchange, None
        self._on_end = None
        if exchange is not None:
            self._client.withdraw(exchange, self)

    def hold(self, held: bool) -> None:
        if self._exchange is not None:
            self._exchange.hold(held)


class CurlTarget:
    """Implements `ports.http.HttpTarget`. Keeps its handles: one is set up once and serves request after request."""

    __slots__ = ("_client", "_free", "_make")

    def __init__(self, client: CurlClient, make: Callable[[], pycurl.Curl]) -> None:
        self._client = client
        self._make = make
        self._free: list[Exchange] = []

    def send(
        self,
        body: bytes,
        on_end: Callable[[HttpEnd], None],
        *,
        on_piece: Callable[[bytes], None] | None = None,
        on_head: Callable[[bytes], None] | None = None,
    ) -> CurlFlight:
        if self._client.closed:
            flight = CurlFlight(self._client, None, on_end)
            self._client.loop.call_soon(flight.finish, unreachable("this client has been closed"))
            return flight
        exchange = self._free.pop() if self._free else self._client.exchange(self._make(), self._free)
        flight = CurlFlight(self._client, exchange, on_end)
        exchange.prepare(body, on_piece, on_head)
        self._client.launch(exchange, flight)
        return flight


class CurlClient:
    """To be made and used inside one running loop."""

    def __init__(self, timeouts: Timeouts, environ: Mapping[str, str], proxies: Proxies | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self._timeouts = timeouts
        self._environ = environ
        self._proxies = proxies or Proxies(environ)
        self._kept = KeptSockets()
        self._out: dict[pycurl.Curl, tuple[Exchange, CurlFlight]] = {}
        self._sweep = Sweep(self.loop, sweep_interval_s(timeouts), self._visit)
        self._timer: asyncio.Handle | None = None
        self._multi = pycurl.CurlMulti()
        self._watch = watch_sockets(self.loop, self._act, self._collect)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)

    def target(self, method: str, url: str, headers: Mapping[str, str]) -> CurlTarget:
        """Raises ValueError for a URL or a header that cannot be sent, UsageError for unreadable trust settings."""
        address = read_url(url)
        make = new_easy(
            check_method(method),
            address,
            headers,
            proxy=self._proxies.proxy_for(address.origin),
            trust=trust_paths(self._environ),
            connect_s=self._timeouts.connect_s,
        )
        return CurlTarget(self, make)

    async def close(self) -> None:
        self.closed = True
        self._sweep.stop()
        left = list(self._out.values())
        for exchange, _ in left:
            self._multi.remove_handle(exchange.easy)
        self._out.clear()
        self._multi.close()
        self._on_timer(-1)
        self._watch.close()
        for exchange, flight in left:
            flight.finish(network("this client was closed while the request was out") if exchange.sent else NOT_SENT)

    # For flights and targets.

    def exchange(self, easy: pycurl.Curl, free: list[Exchange]) -> Exchange:
        return Exchange(easy, free, kept=self._kept, now=self.loop.time)

    def launch(self, exchange: Exchange, flight: CurlFlight) -> None:
        self._out[exchange.easy] = (exchange, flight)
        self._multi.add_handle(exchange.easy)
        self._sweep.start()

    def withdraw(self, exchange: Exchange, flight: CurlFlight) -> None:
        """Ends an exchange early: libcurl closes a connection whose answer it has not read."""
        if self._out.get(exchange.easy) == (exchange, flight):
            del self._out[exchange.easy]
            self._multi.remove_handle(exchange.easy)
            exchange.release()

    # What libcurl calls. It must not be called back from in here.

    def _on_socket(self, what: int, descriptor: int, _multi: pycurl.CurlMulti, _data: object) -> None:
        self._watch.set(descriptor, read=bool(what & pycurl.POLL_IN), write=bool(what & pycurl.POLL_OUT))

    def _on_timer(self, wait_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait_ms == 0:
            self._timer = self.loop.call_soon(self._on_time)
        elif wait_ms > 0:
            self._timer = self.loop.call_later(wait_ms / 1000, self._on_time)

    # What the loop calls.

    def _on_time(self) -> None:
        self._timer = None
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._collect()

    def _act(self, descriptor: int, readable: bool, writable: bool) -> None:
        mask = (pycurl.CSELECT_IN if readable else 0) | (pycurl.CSELECT_OUT if writable else 0)
        self._multi.socket_action(descriptor, mask)

    def _collect(self) -> None:
        """Tells all flights that libcurl has finished. First all are taken out, because `on_end` may send or abort."""
        ends: list[tuple[CurlFlight, HttpEnd]] = []
        queued = 1
        while queued:
            queued, done, failed = self._multi.info_read()
            for easy in done:
                self._take(easy, ends, None)
            for easy, code, message in failed:
                self._take(easy, ends, (code, message))
        for flight, end in ends:
            flight.finish(end)

    def _take(self, easy: pycurl.Curl, ends: list[tuple[CurlFlight, HttpEnd]], failure: tuple[int, str] | None) -> None:
        found = self._out.get(easy)
        if found is None:
            return
        exchange, flight = found
        end = exchange.reply() if failure is None else exchange.fault(failure[0], failure[1], self._timeouts)
        self._multi.remove_handle(easy)
        if exchange.stale:
            # Not a byte has left, so this is no second sending; the stale connection is closed, another is taken.
            exchange.stale = False
            self._multi.add_handle(easy)
            return
        del self._out[easy]
        ends.append((flight, end))
        exchange.release()

    def _visit(self, now_s: float) -> bool:
        late: list[tuple[CurlFlight, HttpFault]] = []
        for exchange, flight in list(self._out.values()):
            fault = exchange.overdue(now_s, self._timeouts)
            if fault is not None:
                self.withdraw(exchange, flight)
                late.append((flight, fault))
        for flight, fault in late:
            flight.finish(fault)
        return bool(self._out)


NOT_SENT = unreachable("this client was closed before the request was sent")
