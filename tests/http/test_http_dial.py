from __future__ import annotations

import asyncio
import socket

import pytest

from batchwright.http import dial
from batchwright.http.dial import AddressInfo, Dialer
from batchwright.http.request import read_url
from support.raw_server import OK, Peer, breathe, free_port, raw_server
from support.transport_bench import LIMIT_S


def address(port: int, host: str = "127.0.0.1") -> AddressInfo:
    return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))


async def idle(peer: Peer) -> None:
    await peer.send(OK)
    await peer.wait_gone()


class Resolver:
    """A loop's look-up that answers with these addresses and counts how often it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, found: list[AddressInfo]) -> None:
        self.asked = 0
        self._found = found
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self)

    async def __call__(self, *_asked: object, **_how: object) -> list[AddressInfo]:
        self.asked += 1
        return self._found


def dialer() -> Dialer:
    return Dialer(read_url("http://vendor.test/").origin, asyncio.get_running_loop())


def test_one_look_up_serves_many_connections_and_a_failure_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with asyncio.timeout(LIMIT_S), raw_server(idle) as server:
            found = [address(server.port)]
            resolver = Resolver(monkeypatch, found)
            one = dialer()
            for peer in [*await asyncio.gather(*(one.connect() for _ in range(20))), await one.connect()]:
                peer.close()
            assert resolver.asked == 1
            found[:] = [address(free_port())]
            one._kept_until_s = 0.0
            for _ in range(2):
                with pytest.raises(ConnectionRefusedError):
                    await one.connect()
            assert resolver.asked == 3

    asyncio.run(test())


def test_an_address_that_refuses_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with asyncio.timeout(LIMIT_S), raw_server(idle) as server:
            Resolver(monkeypatch, [address(free_port()), address(free_port()), address(server.port)])
            peer = await dialer().connect()
            assert peer.getpeername()[1] == server.port
            peer.close()

    asyncio.run(test())


def test_an_address_that_hangs_is_overtaken_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "STAGGER_S", 0.01)

    async def test() -> None:
        hung: list[socket.socket] = []
        loop = asyncio.get_running_loop()
        connect = loop.sock_connect

        async def hang(peer: socket.socket, where: tuple[str, int]) -> None:
            if where[0] == "192.0.2.1":  # an address for documentation: nobody answers there
                hung.append(peer)
                await asyncio.Event().wait()
            await connect(peer, where)

        monkeypatch.setattr(loop, "sock_connect", hang)
        async with asyncio.timeout(LIMIT_S), raw_server(idle) as server:
            Resolver(monkeypatch, [address(80, "192.0.2.1"), address(server.port)])
            peer = await dialer().connect()
            assert peer.getpeername()[1] == server.port
            peer.close()
            await breathe()
            assert hung[0].fileno() == -1

    asyncio.run(test())


def test_families_take_turns() -> None:
    six: AddressInfo = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 1, 0, 0))
    four = address(1)
    assert dial._interleave([six, six, six, four, four]) == [six, four, six, four, six]
    assert dial._interleave([four]) == [four]
