"""The two ways of watching libcurl's sockets must do the same; this machine would only ever choose one of them."""

from __future__ import annotations

import asyncio

import pytest

from batchwright.http import curl
from batchwright.http.curl_watch import LoopWatch, watch_sockets
from batchwright.ports.http import FaultCause, Timeouts
from support.raw_server import Peer, free_port, raw_server
from support.transport_bench import LIMIT_S, LOOPS, Ends, fault, reply


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("watch", [watch_sockets, LoopWatch])
def test_many_requests_large_and_small(monkeypatch: pytest.MonkeyPatch, watch: object, loop: str) -> None:
    monkeypatch.setattr(curl, "watch_sockets", watch)
    bodies = [b"%d" % number * (1 if number % 2 else 200_000) for number in range(40)]

    async def script(peer: Peer) -> None:
        while True:
            body = await peer.read_request()
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    async def test() -> None:
        async with asyncio.timeout(LIMIT_S), raw_server(script) as server:
            client = curl.CurlClient(Timeouts(), {})
            target = client.target("POST", server.url(), {})
            for _ in range(2):
                flights = [Ends() for _ in bodies]
                for body, ends in zip(bodies, flights, strict=True):
                    target.send(body, ends)
                assert [reply(await ends.wait()).body for ends in flights] == bodies
            refused = Ends()
            client.target("POST", f"http://127.0.0.1:{free_port()}/", {}).send(b"", refused)
            assert fault(await refused.wait()).cause is FaultCause.UNREACHABLE
            await client.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(test())
