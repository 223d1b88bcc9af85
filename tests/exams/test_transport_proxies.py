"""The exam of the transport behind a proxy: the same promises, through a tunnel and without one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from batchwright.core.errors import UsageError
from batchwright.http.open import open_http_client
from batchwright.ports.http import FaultCause, HttpClient, HttpEnd, Timeouts
from support.raw_server import CA_FILE, OK, Peer, Script, free_port, raw_server
from support.transport_bench import BODY, LIMIT_S, LOOPS, Ends, answering, fault, reply

TIMEOUTS = Timeouts(connect_s=5.0, first_byte_s=60.0, total_s=90.0)
VENDOR = "https://vendor.test/v1/chat/completions"


def opened(environ: dict[str, str], transport: str = "auto") -> HttpClient:
    return open_http_client(TIMEOUTS, transport=transport, environ={"SSL_CERT_FILE": CA_FILE, **environ})


async def post(client: HttpClient, url: str, body: bytes = BODY) -> HttpEnd:
    ends = Ends()
    client.target("POST", url, {}).send(body, ends)
    end = await ends.wait()
    assert len(ends.all) == 1
    return end


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test()

    with asyncio.Runner(loop_factory=LOOPS["uvloop"]) as runner:
        runner.run(bounded())


def tunnel(port: int, asked: list[bytes]) -> Script:
    """A proxy that lets everybody through to one server."""

    async def script(peer: Peer) -> None:
        asked.append(await peer.read_head())
        await peer.send(b"HTTP/1.1 200 Connection established\r\nx-proxy: 1\r\n\r\n")
        await peer.relay(port)

    return script


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_https_goes_through_a_tunnel(variable: str) -> None:
    async def test() -> None:
        asked: list[bytes] = []
        async with (
            raw_server(answering(OK, OK), certificate="localhost") as vendor,
            raw_server(tunnel(vendor.port, asked)) as proxy,
        ):
            client = opened({variable: f"http://127.0.0.1:{proxy.port}"})
            for _ in range(2):
                answer = reply(await post(client, VENDOR))
                assert answer.body == b'{"ok":true}'
                assert b"x-proxy" not in answer.head
            await client.close()
            assert [head.split(b"\r\n")[0] for head in asked] == [b"CONNECT vendor.test:443 HTTP/1.1"]
            assert [number for number, _ in vendor.requests] == [0, 0]

    run(test)


def test_http_is_handed_to_the_proxy_whole() -> None:
    async def test() -> None:
        async with raw_server(answering(OK)) as proxy:
            client = opened({"http_proxy": f"127.0.0.1:{proxy.port}"})
            reply(await post(client, "http://vendor.test/v1"))
            await client.close()
            [(_, request)] = proxy.requests
            assert request.startswith(b"POST http://vendor.test/v1 HTTP/1.1\r\n")

    run(test)


@pytest.mark.parametrize("ending", [Peer.close, Peer.reset])
def test_a_kept_connection_in_a_tunnel_dies_under_a_request(ending: Callable[[Peer], None]) -> None:
    async def vendor_script(peer: Peer) -> None:
        await peer.read_request()
        if peer.number == 0:
            await peer.send(OK)
            await peer.read_request()
        ending(peer)

    async def test() -> None:
        async with (
            raw_server(vendor_script, certificate="localhost") as vendor,
            raw_server(tunnel(vendor.port, [])) as proxy,
        ):
            client = opened({"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}"})
            reply(await post(client, VENDOR, b"first"))
            assert fault(await post(client, VENDOR, b"second")).cause is FaultCause.NETWORK
            await client.close()
            assert [request.rpartition(b"\r\n\r\n")[2] for _, request in vendor.requests] == [b"first", b"second"]

    run(test)


@pytest.mark.parametrize("status", [b"403 Forbidden", b"407 Proxy Authentication Required", b"502 Bad Gateway"])
def test_a_proxy_that_refuses_the_tunnel_has_sent_nothing(status: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n\r\n")

    async def test() -> None:
        async with raw_server(script) as proxy:
            client = opened({"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}"})
            assert fault(await post(client, VENDOR)).cause is FaultCause.UNREACHABLE
            await client.close()

    run(test)


def test_a_proxy_that_is_not_there() -> None:
    async def test() -> None:
        for proxy in (f"http://127.0.0.1:{free_port()}", "http://nobody.invalid:3128"):
            client = opened({"ALL_PROXY": proxy})
            assert fault(await post(client, VENDOR)).cause is FaultCause.UNREACHABLE
            assert fault(await post(client, "http://vendor.test/")).cause is FaultCause.UNREACHABLE
            await client.close()

    run(test)


@pytest.mark.parametrize("transport", ["auto", "own", "curl"])
def test_this_machine_is_reached_without_the_proxy(transport: str) -> None:
    async def test() -> None:
        async with raw_server(answering(OK)) as vendor:
            client = opened({"ALL_PROXY": f"http://127.0.0.1:{free_port()}"}, transport)
            reply(await post(client, vendor.url()))
            await client.close()

    run(test)


def test_libcurl_does_not_read_proxy_variables_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that counts is the one handed in."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")

    async def test() -> None:
        async with raw_server(answering(OK)) as vendor:
            client = opened({}, "curl")
            reply(await post(client, vendor.url()))
            await client.close()

    run(test)


def test_the_own_transport_refuses_what_needs_a_proxy() -> None:
    async def test() -> None:
        client = opened({"HTTPS_PROXY": "http://proxy.test:3128"}, "own")
        with pytest.raises(UsageError, match=r"vendor\.test is reached through a proxy"):
            client.target("POST", VENDOR, {})
        client.target("POST", "http://vendor.test/", {})
        await client.close()

    run(test)


def test_an_unknown_transport_is_named() -> None:
    with pytest.raises(UsageError, match=r"'requests'.*auto, own, curl"):
        open_http_client(TIMEOUTS, transport="requests", environ={})
