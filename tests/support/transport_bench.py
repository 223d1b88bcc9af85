"""One exam for all transports: a test is an async function of a `TransportBench`, and runs once for each."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest
import uvloop

from batchwright.http.open import open_http_client
from batchwright.ports.http import HttpClient, HttpEnd, HttpFault, HttpFlight, HttpReply, Timeouts
from support.raw_server import CA_FILE, Peer, Script

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}
VARIANTS = [(transport, loop) for transport in ("own", "curl") for loop in LOOPS]
LIMIT_S = 50.0
"""A test that hangs ends so; none comes near it. Below the deadlines of the client, which would end some by itself."""
BODY = b'{"model":"m","messages":[]}'


def reply(end: HttpEnd) -> HttpReply:
    assert isinstance(end, HttpReply), end
    return end


def fault(end: HttpEnd) -> HttpFault:
    assert isinstance(end, HttpFault), end.status
    assert end.detail
    return end


def answering(*answers: bytes) -> Script:
    """A script that answers the requests of a connection with these, in order, and then closes it."""

    async def script(peer: Peer) -> None:
        for answer in answers:
            await peer.read_request()
            await peer.send(answer)

    return script


class Ends:
    """Collects how one flight ended, however often it is told."""

    def __init__(self) -> None:
        self.all: list[HttpEnd] = []
        self._told = asyncio.Event()

    def __call__(self, end: HttpEnd) -> None:
        self.all.append(end)
        self._told.set()

    async def wait(self) -> HttpEnd:
        await self._told.wait()
        return self.all[0]


class TransportBench:
    """A transport under examination."""

    def __init__(self, transport: str) -> None:
        self._transport = transport
        self._sent: list[Ends] = []
        self._withdrawn: list[Ends] = []
        self.client = self.open()

    def open(self, timeouts: Timeouts | None = None, environ: Mapping[str, str] | None = None) -> HttpClient:
        """Another client than `self.client`; close it."""
        return open_http_client(
            timeouts or Timeouts(connect_s=5.0, first_byte_s=60.0, total_s=90.0),
            transport=self._transport,
            environ=environ if environ is not None else {"SSL_CERT_FILE": CA_FILE},
        )

    @contextlib.asynccontextmanager
    async def impatient(
        self, *, connect_s: float = 5.0, first_byte_s: float = 60.0, total_s: float = 90.0
    ) -> AsyncIterator[None]:
        """Within, `self.client` has these timeouts."""
        patient, self.client = (
            self.client,
            self.open(Timeouts(connect_s=connect_s, first_byte_s=first_byte_s, total_s=total_s)),
        )
        try:
            yield
        finally:
            await self.client.close()
            self.client = patient

    def start(self, url: str, body: bytes = BODY, method: str = "POST") -> tuple[HttpFlight, Ends]:
        """A flight and how it will have ended."""
        ends = Ends()
        self._sent.append(ends)
        flight = self.client.target(method, url, {"content-type": "application/json"}).send(body, ends)
        assert not ends.all, "on_end was called from inside send"
        return flight, ends

    def withdraw(self, flight: HttpFlight, ends: Ends) -> None:
        """Aborts it; from here on its `on_end` must stay silent."""
        self._sent.remove(ends)
        self._withdrawn.append(ends)
        flight.abort()

    async def post(self, url: str, body: bytes = BODY) -> HttpEnd:
        return await self.start(url, body)[1].wait()

    def check(self) -> None:
        """Every flight has ended once; those aborted have not ended at all."""
        assert [len(ends.all) for ends in self._sent] == [1] * len(self._sent)
        assert [len(ends.all) for ends in self._withdrawn] == [0] * len(self._withdrawn)


def examined(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Turns an async test of a `TransportBench` (and of what else it is parametrized with) into one that pytest runs
    for every transport, on every loop."""

    async def sit(transport: str, given: dict[str, object]) -> None:
        async with asyncio.timeout(LIMIT_S):
            bench = TransportBench(transport)
            try:
                await test(bench, **given)
            finally:
                await bench.client.close()
            bench.check()

    def run(transport: str, loop: str, **given: object) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(sit(transport, given))

    _, *others = inspect.signature(test).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    wanted = [inspect.Parameter(name, keyword) for name in ("transport", "loop")]
    wanted += [other.replace(kind=keyword) for other in others]
    run.__signature__ = inspect.Signature(wanted)  # type: ignore[attr-defined]  # what pytest reads
    run.__name__ = getattr(test, "__name__", "run")
    run.__doc__ = test.__doc__
    run.__module__ = test.__module__
    return pytest.mark.parametrize(("transport", "loop"), VARIANTS)(run)
