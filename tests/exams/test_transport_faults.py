"""The exam of every transport, second half: what goes wrong, and that nothing is ever sent twice (`ports.http`)."""

from __future__ import annotations

import asyncio

import pytest

from batchwright.ports.http import FaultCause, Timeouts
from support.raw_server import OK, Peer, breathe, free_port, raw_server
from support.transport_bench import BODY, Ends, TransportBench, answering, examined, fault, reply

ENDINGS = {"closes": Peer.close, "resets": Peer.reset, "half-closes": Peer.half_close}
TLS_ENDINGS = [ending for ending in ENDINGS if ending != "half-closes"]  # TLS knows no half-closed connection
CUT_ANSWERS = {
    "in the head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "behind the head": b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n",
    "in the body": b'HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{"ok"',
    "in a chunk": b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nb\r\n{"ok"',
    "before the last chunk": b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"ok"\r\n',
    "behind a 1xx": b"HTTP/1.1 100 Continue\r\n\r\n",
}


async def sits_on_a_kept_connection(bench: TransportBench, ending: str, certificate: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        if peer.number == 0:
            await peer.send(OK)
            await peer.read_request()
        ENDINGS[ending](peer)
        await peer.wait_gone()

    async with raw_server(script, certificate=certificate) as server:
        reply(await bench.post(server.url(), b"first"))
        end = fault(await bench.post(server.url(), b"second"))
        assert end.cause is FaultCause.NETWORK
        # A third one shows that the server would have taken a second copy of the second, and that it did not come.
        assert fault(await bench.post(server.url(), b"third")).cause is FaultCause.NETWORK
        bodies = [request.rpartition(b"\r\n\r\n")[2] for _, request in server.requests]
        assert bodies == [b"first", b"second", b"third"]
        assert [number for number, _ in server.requests][:2] == [0, 0]


@pytest.mark.parametrize("ending", ENDINGS)
@examined
async def test_a_kept_connection_that_dies_under_a_request(bench: TransportBench, ending: str) -> None:
    """The case that decides whether a transport may be used at all: exactly one copy, and NETWORK."""
    await sits_on_a_kept_connection(bench, ending, "")


@pytest.mark.parametrize("ending", TLS_ENDINGS)
@examined
async def test_a_kept_tls_connection_that_dies_under_a_request(bench: TransportBench, ending: str) -> None:
    await sits_on_a_kept_connection(bench, ending, "localhost")


@pytest.mark.parametrize("ending", ENDINGS)
@examined
async def test_a_new_connection_that_dies_under_a_request(bench: TransportBench, ending: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        ENDINGS[ending](peer)
        await peer.wait_gone()

    async with raw_server(script) as server:
        assert fault(await bench.post(server.url())).cause is FaultCause.NETWORK
        assert len(server.requests) == server.connections == 1


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("where", CUT_ANSWERS)
@examined
async def test_an_answer_that_breaks_off(bench: TransportBench, where: str, ending: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(CUT_ANSWERS[where])
        ENDINGS[ending](peer)
        await peer.wait_gone()

    async with raw_server(script) as server:
        assert fault(await bench.post(server.url())).cause is FaultCause.NETWORK
        assert len(server.requests) == 1


@examined
async def test_a_reset_is_not_the_end_of_an_unframed_body(bench: TransportBench) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n{}")
        await seen.wait()
        peer.reset()

    seen = asyncio.Event()
    async with raw_server(script) as server:
        flight, ends = bench.start(server.url())
        while not server.requests:
            await breathe()
        for _ in range(20):  # the body's bytes are read before the reset arrives
            await breathe()
        seen.set()
        assert fault(await ends.wait()).cause is FaultCause.NETWORK
        flight.abort()


@examined
async def test_a_refused_connection_was_not_sent(bench: TransportBench) -> None:
    port = free_port()
    for url in (f"http://127.0.0.1:{port}/v1", f"https://127.0.0.1:{port}/v1", f"http://localhost:{port}/v1"):
        end = fault(await bench.post(url))
        assert (end.cause, end.detail) == (FaultCause.UNREACHABLE, "connection refused")


@examined
async def test_a_host_that_does_not_exist_was_not_sent(bench: TransportBench) -> None:
    async with bench.impatient(connect_s=2.0):
        assert fault(await bench.post("http://nobody.invalid/v1")).cause is FaultCause.UNREACHABLE


@examined
async def test_refused_many_times_at_once(bench: TransportBench) -> None:
    port = free_port()
    flights = [bench.start(f"http://127.0.0.1:{port}/v1")[1] for _ in range(300)]
    for ends in flights:
        assert fault(await ends.wait()).cause is FaultCause.UNREACHABLE


@pytest.mark.parametrize(
    ("certificate", "detail"),
    [
        ("stranger", "certificate verify failed: "),
        ("expired", "certificate verify failed: certificate has expired"),
        ("other-host", "certificate verify failed: "),
    ],
)
@examined
async def test_a_certificate_that_proves_nothing(bench: TransportBench, certificate: str, detail: str) -> None:
    async with raw_server(answering(OK), certificate=certificate) as server:
        end = fault(await bench.post(server.url(host="localhost")))
        assert end.cause is FaultCause.UNREACHABLE
        assert end.detail.startswith(detail)
        assert server.requests == []


@examined
async def test_a_certificate_for_the_name_is_none_for_an_address(bench: TransportBench) -> None:
    async with raw_server(answering(OK), certificate="other-host") as server:
        assert fault(await bench.post(server.url())).cause is FaultCause.UNREACHABLE


@examined
async def test_no_tls_where_tls_was_expected(bench: TransportBench) -> None:
    async def speaks_http(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await peer.wait_gone()

    async def closes(peer: Peer) -> None:
        peer.close()

    async def resets(peer: Peer) -> None:
        peer.reset()

    for script in (speaks_http, closes, resets):
        async with raw_server(script, scheme="https") as server:
            assert fault(await bench.post(server.url())).cause is FaultCause.UNREACHABLE


@examined
async def test_a_handshake_that_hangs_is_a_connect_timeout(bench: TransportBench) -> None:
    async with bench.impatient(connect_s=0.1), raw_server(Peer.wait_gone, scheme="https") as server:
        end = fault(await bench.post(server.url()))
        assert (end.cause, end.detail) == (FaultCause.UNREACHABLE, "no connection within 0.1 s")


@examined
async def test_no_first_byte(bench: TransportBench) -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_gone()
        gone.set()

    async with bench.impatient(first_byte_s=0.1), raw_server(script) as server:
        end = fault(await bench.post(server.url()))
        assert (end.cause, end.detail) == (FaultCause.TIMEOUT, "no first byte within 0.1 s")
        await gone.wait()
        assert len(server.requests) == 1


@examined
async def test_an_answer_that_never_becomes_whole(bench: TransportBench) -> None:
    """Bytes keep coming, so only the total bounds it."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while not peer.transport.is_closing():
            await peer.send(b"1\r\n\n\r\n")
            await breathe()

    async with bench.impatient(first_byte_s=0.1, total_s=0.3), raw_server(script) as server:
        end = fault(await bench.post(server.url()))
        assert (end.cause, end.detail) == (FaultCause.TIMEOUT, "no whole answer within 0.3 s")
        assert len(server.requests) == 1


@examined
async def test_a_flight_that_is_out_leaves_the_others_their_time(bench: TransportBench) -> None:
    """Deadlines are each flight's own: one hangs on a connection that has just answered another."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(OK)
        await peer.read_request()
        await peer.wait_gone()

    async with bench.impatient(first_byte_s=0.1), raw_server(script) as server:
        reply(await bench.post(server.url()))
        assert fault(await bench.post(server.url())).cause is FaultCause.TIMEOUT
        reply(await bench.post(server.url()))
        assert [number for number, _ in server.requests] == [0, 0, 1]


@pytest.mark.parametrize(
    "stray",
    [
        b"x",
        b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong",
    ],
)
@examined
async def test_bytes_on_an_idle_connection_are_nobodys_answer(bench: TransportBench, stray: bytes) -> None:
    answered, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(OK)
        if peer.number == 0:
            await answered.wait()
            await peer.send(stray)
            strayed.set()
        await peer.wait_gone()
        gone.set()

    strayed = asyncio.Event()
    async with raw_server(script) as server:
        reply(await bench.post(server.url()))
        answered.set()
        await strayed.wait()
        for _ in range(10):  # until the loop has seen what lies on the connection
            await breathe()
        assert reply(await bench.post(server.url())).body == b'{"ok":true}'
        assert [number for number, _ in server.requests] == [0, 1]
        await gone.wait()


@examined
async def test_a_server_that_closes_an_idle_connection(bench: TransportBench) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(OK)
        await go_on.wait()
        peer.close()
        closed.set()

    go_on, closed = asyncio.Event(), asyncio.Event()
    async with raw_server(script) as server:
        reply(await bench.post(server.url()))
        go_on.set()
        await closed.wait()
        for _ in range(10):
            await breathe()
        reply(await bench.post(server.url()))
        assert [number for number, _ in server.requests] == [0, 1]


@examined
async def test_abort_closes_the_connection_and_stays_silent(bench: TransportBench) -> None:
    here, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        if peer.number == 0:
            here.set()
            await peer.wait_gone()
            gone.set()
        else:
            await peer.send(OK)

    async with raw_server(script) as server:
        flight, ends = bench.start(server.url())
        await here.wait()
        bench.withdraw(flight, ends)
        flight.abort()
        await gone.wait()
        reply(await bench.post(server.url()))
        assert server.connections == 2


@examined
async def test_abort_before_the_connection_is_there(bench: TransportBench) -> None:
    async with raw_server(answering(OK)) as server:
        aborted = [bench.start(server.url(), b"aborted") for _ in range(3)]
        for flight, ends in aborted:
            bench.withdraw(flight, ends)
        assert reply(await bench.post(server.url(), b"kept")).status == 200
        assert [request.rpartition(b"\r\n\r\n")[2] for _, request in server.requests] == [b"kept"]


@examined
async def test_abort_after_the_end_harms_nobody(bench: TransportBench) -> None:
    """The connection of the flight that has ended carries another one by then."""
    here, go_on = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(OK)
        await peer.read_request()
        here.set()
        await go_on.wait()
        await peer.send(OK)

    async with raw_server(script) as server:
        flight, ends = bench.start(server.url())
        reply(await ends.wait())
        _, second = bench.start(server.url())
        await here.wait()
        flight.abort()
        go_on.set()
        reply(await second.wait())
        assert server.connections == 1


@examined
async def test_abort_of_a_neighbour_from_inside_on_end(bench: TransportBench) -> None:
    """Both answers are there at once: whichever is told first may silence the other."""
    both = asyncio.Event()
    waiting: list[Peer] = []

    async def script(peer: Peer) -> None:
        await peer.read_request()
        waiting.append(peer)
        if len(waiting) == 2:
            both.set()
        await peer.wait_gone()

    async with raw_server(script) as server:
        target = bench.client.target("POST", server.url(), {})
        told: list[int] = []
        end = asyncio.Event()

        def on_end(number: int) -> None:
            told.append(number)
            flights[1 - number].abort()
            end.set()

        flights = [target.send(BODY, lambda _, number=number: on_end(number)) for number in range(2)]  # type: ignore[misc]
        await both.wait()
        for peer in waiting:
            await peer.send(OK)
        await end.wait()
        for _ in range(20):
            await breathe()
        assert len(told) == 1


@examined
async def test_close_ends_what_is_out(bench: TransportBench) -> None:
    here = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        here.set()
        await peer.wait_gone()

    async with raw_server(script) as server:
        client = bench.open()
        ends, late = Ends(), Ends()
        target = client.target("POST", server.url(), {})
        target.send(BODY, ends)
        await here.wait()
        await client.close()
        assert [fault(end).cause for end in ends.all] == [FaultCause.NETWORK]
        target.send(BODY, late)
        assert late.all == []
        assert fault(await late.wait()).cause is FaultCause.UNREACHABLE
        await client.close()
        assert (len(ends.all), len(late.all), len(server.requests)) == (1, 1, 1)


@examined
async def test_close_before_the_connection_is_there(bench: TransportBench) -> None:
    async with raw_server(Peer.wait_gone, scheme="https") as server:
        client = bench.open(Timeouts())
        ends = Ends()
        client.target("POST", server.url(), {}).send(BODY, ends)
        while not server.connections:
            await breathe()
        await client.close()
        assert [fault(end).cause for end in ends.all] == [FaultCause.UNREACHABLE]


@examined
async def test_a_target_must_be_http(bench: TransportBench) -> None:
    for url in ("", "vendor.test/v1", "ftp://vendor.test/", "http://", "https:///v1", "http://vendor.test:99999/"):
        with pytest.raises(ValueError, match="URL"):
            bench.client.target("POST", url, {})
