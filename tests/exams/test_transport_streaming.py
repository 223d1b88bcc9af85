"""The exam of every transport: answers that are handed over as they come."""

from __future__ import annotations

import asyncio

import pytest

from batchwright.ports.http import MAX_ANSWER_BYTES, FaultCause, HttpFlight
from support.raw_server import OK, Peer, raw_server
from support.transport_bench import BODY, Ends, TransportBench, answering, examined, fault, reply

CHUNKED = b"HTTP/1.1 %b\r\ntransfer-encoding: chunked\r\nx-first: 1\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Pieces:
    """Collects what a streamed answer hands over."""

    def __init__(self) -> None:
        self.data = b""
        self.head = b""
        self._come = asyncio.Event()

    def begin(self, head: bytes) -> None:
        assert not self.head
        assert not self.data
        self.head = head

    def __call__(self, piece: bytes) -> None:
        self.data += piece
        self._come.set()

    async def until(self, data: bytes) -> None:
        while self.data != data:
            assert data.startswith(self.data)
            self._come.clear()
            await self._come.wait()


def stream(bench: TransportBench, url: str) -> tuple[HttpFlight, Pieces, Ends]:
    pieces, ends = Pieces(), Ends()
    flight = bench.client.target("GET", url, {}).send(b"", ends, on_piece=pieces, on_head=pieces.begin)
    return flight, pieces, ends


@examined
async def test_pieces_are_handed_over_before_the_answer_has_ended(bench: TransportBench) -> None:
    more = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(CHUNKED % b"200 OK" + chunk(b"one "))
        await more.wait()
        await peer.send(chunk(b"two") + END)
        await peer.read_request()
        await peer.send(OK)

    async with raw_server(script) as server:
        _, pieces, ends = stream(bench, server.url())
        await pieces.until(b"one ")
        assert pieces.head == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-first: 1"
        assert not ends.all
        more.set()
        end = reply(await ends.wait())
        assert (pieces.data, end.status, end.body) == (b"one two", 200, b"")
        assert b"x-first: 1" in end.head
        # The connection goes on, and its next answer is whole again.
        assert reply(await bench.post(server.url())).body == b'{"ok":true}'
        assert [number for number, _ in server.requests] == [0, 0]


@pytest.mark.parametrize("status", [b"404 Not Found", b"503 Unavailable"])
@examined
async def test_a_refusal_is_whole(bench: TransportBench, status: bytes) -> None:
    async with raw_server(answering(CHUNKED % status + chunk(b"no") + END)) as server:
        _, pieces, ends = stream(bench, server.url())
        end = reply(await ends.wait())
        assert (pieces.data, end.status, end.body) == (b"", int(status[:3]), b"no")
        assert pieces.head == b""


@examined
async def test_no_bound_is_on_its_size(bench: TransportBench) -> None:
    size = MAX_ANSWER_BYTES + 70_000
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size
    async with raw_server(answering(head + bytes(size))) as server:
        _, pieces, ends = stream(bench, server.url())
        reply(await ends.wait())
        assert len(pieces.data) == size


@examined
async def test_what_breaks_off_is_no_answer(bench: TransportBench) -> None:
    async with raw_server(answering(CHUNKED % b"200 OK" + chunk(b"one "))) as server:
        _, pieces, ends = stream(bench, server.url())
        assert fault(await ends.wait()).cause is FaultCause.NETWORK
        assert pieces.data == b"one "


@examined
async def test_a_stream_may_take_longer_than_an_answer_but_not_be_silent(bench: TransportBench) -> None:
    """Each piece comes when a good part of the time is over; together they take more than the whole."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(CHUNKED % b"200 OK")
        gone = asyncio.create_task(peer.wait_gone())
        for number in range(4):
            await peer.send(chunk(b"%d" % number))
            await asyncio.wait({gone}, timeout=0.5)
        await gone

    async with bench.impatient(first_byte_s=1.5, total_s=1.5), raw_server(script) as server:
        _, pieces, ends = stream(bench, server.url())
        assert fault(await ends.wait()).cause is FaultCause.TIMEOUT
        assert pieces.data == b"0123"


@examined
async def test_what_is_held_is_not_read(bench: TransportBench) -> None:
    """The server fills the buffers of the system and then waits: nothing piles up here."""
    size = 64 * 1024 * 1024
    block = bytes(256 * 1024)

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size // len(block)):
            await peer.send(block)

    async with raw_server(script) as server:
        held = asyncio.Event()
        seen: list[int] = []
        ends = Ends()

        def on_piece(piece: bytes) -> None:
            seen.append(len(piece))
            if len(seen) == 1:
                flight.hold(True)
                held.set()

        flight = bench.client.target("POST", server.url(), {}).send(BODY, ends, on_piece=on_piece)
        await held.wait()
        async with raw_server(answering(*[OK] * 50)) as other:
            for _ in range(50):  # the loop goes round meanwhile, and would read what may be read
                reply(await bench.post(other.url()))
        assert sum(seen) < size // 4
        assert not ends.all
        flight.hold(False)
        reply(await ends.wait())
        assert sum(seen) == size


@examined
async def test_a_stream_may_be_dropped(bench: TransportBench) -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(CHUNKED % b"200 OK" + chunk(b"one "))
        await peer.wait_gone()
        gone.set()

    async with raw_server(script) as server:
        flight, pieces, ends = stream(bench, server.url())
        await pieces.until(b"one ")
        flight.hold(True)
        flight.abort()
        await gone.wait()
        assert not ends.all
