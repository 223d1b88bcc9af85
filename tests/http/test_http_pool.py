"""What only our own transport does: which connection is used, when one is given up, how deadlines are swept."""

from __future__ import annotations

import asyncio
import gzip
import select
import tracemalloc
from collections.abc import Awaitable, Callable

import pytest

from batchwright.http.answer import plain_reply
from batchwright.http.connection import MAX_IDLE_S, Connection, PlainConnection, idle_limit_s
from batchwright.http.deadlines import overdue
from batchwright.http.dial import Dialer
from batchwright.http.own import OwnClient
from batchwright.http.pool import MAX_OPENING
from batchwright.http.sweep import Sweep
from batchwright.ports.http import MAX_ANSWER_BYTES, FaultCause, HttpEnd, HttpReply, Timeouts
from support.raw_server import OK, Peer, breathe, raw_server
from support.transport_bench import BODY, LIMIT_S, LOOPS, Ends, fault, reply


def descriptor_of(connection: Connection) -> int:
    return int(connection._transport.get_extra_info("socket").fileno())


def run(test: Callable[[OwnClient], Awaitable[None]], timeouts: Timeouts | None = None) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_S):
            client = OwnClient(timeouts or Timeouts(), {})
            try:
                await test(client)
            finally:
                await client.close()

    with asyncio.Runner(loop_factory=LOOPS["uvloop"]) as runner:
        runner.run(bounded())


@pytest.mark.parametrize(
    ("value", "limit_s"),
    [
        ("", MAX_IDLE_S),
        ("timeout=5", 4.0),
        ("timeout=5, max=100", 4.0),
        ("max=100,Timeout= 30", 29.0),
        ("timeout=1", 0.5),
        ("timeout=600", MAX_IDLE_S),
        ("timeout=x", MAX_IDLE_S),
        ("timeout=" + 5_000 * "9", MAX_IDLE_S),
        ("timeout", MAX_IDLE_S),
    ],
)
def test_how_long_a_connection_may_rest(value: str, limit_s: float) -> None:
    head = f"HTTP/1.1 200 OK\r\nKeep-Alive: {value}" if value else "HTTP/1.1 200 OK"
    assert idle_limit_s(HttpReply(200, head.encode(), b"")) == limit_s


@pytest.mark.parametrize(
    ("out_s", "heard", "cause"),
    [
        (1.9, False, None),
        (2.0, False, FaultCause.TIMEOUT),
        (2.0, True, None),
        (5.0, True, FaultCause.TIMEOUT),
    ],
)
def test_deadlines(out_s: float, heard: bool, cause: FaultCause | None) -> None:
    fault = overdue(Timeouts(first_byte_s=2.0, total_s=5.0), out_s, heard=heard)
    assert (fault and fault.cause) == cause


class SetLoop:
    """A loop whose clock the test sets and whose timers the test fires."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.armed: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, _delay_s: float, call: Callable[[], None]) -> SetLoop:
        self.armed.append(call)
        return self

    def cancel(self) -> None:
        self.armed.clear()

    def fire(self, after_s: float) -> None:
        self.now_s += after_s
        self.armed.pop()()


def test_a_process_that_stood_still_charges_nobody() -> None:
    """First the answers that lie there are read, and only then is anybody called too slow."""
    loop, visits = SetLoop(), []
    sweep = Sweep(loop, 1.0, lambda now_s: bool(visits.append(now_s)) or True)  # type: ignore[arg-type,func-returns-value]
    sweep.start()
    loop.fire(1.0)
    loop.fire(60.0)
    loop.fire(1.0)
    assert visits == [101.0, 162.0]


def test_a_sweep_ends_with_nothing_to_do_and_begins_again() -> None:
    loop = SetLoop()
    sweep = Sweep(loop, 1.0, lambda now_s: False)  # type: ignore[arg-type]
    sweep.start()
    sweep.start()
    assert len(loop.armed) == 1
    loop.fire(1.0)
    assert loop.armed == []
    sweep.start()
    assert len(loop.armed) == 1


def test_a_connection_with_unread_news_is_not_used() -> None:
    """The stray bytes lie in the kernel, the loop has had no turn to read them, and a request is about to go out."""

    async def test(client: OwnClient) -> None:
        peers: list[Peer] = []

        async def script(peer: Peer) -> None:
            peers.append(peer)
            await peer.read_request()
            await peer.send(OK)
            await peer.wait_gone()

        async with raw_server(script) as server:
            target = client.target("POST", server.url(), {})
            first, second = Ends(), Ends()
            target.send(BODY, first)
            reply(await first.wait())
            [pool] = client._pools.values()
            [connection] = pool.connections
            # Past the loop, so that it has no turn between the bytes' arrival and the next request.
            peers[0].write_now(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong")
            poll = select.poll()
            poll.register(descriptor_of(connection), select.POLLIN)
            assert poll.poll(10_000)
            target.send(BODY, second)
            assert reply(await second.wait()).body == b'{"ok":true}'
            assert [number for number, _ in server.requests] == [0, 1]

    run(test)


@pytest.mark.parametrize(
    "lines",
    [
        [b"no colon", b"content-length: 2"],
        [b"content-length: 99", b"transfer-encoding: chunked"],
        [b"content-length: 2", b"content-length: 2,", b" 2"],
    ],
)
def test_lines_of_a_head_that_only_our_own_transport_forgives(lines: list[bytes]) -> None:
    async def test(client: OwnClient) -> None:
        body = b"2\r\n{}\r\n0\r\n\r\n" if lines[-1].startswith(b"transfer") else b"{}"
        odd = b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", body])

        async def script(peer: Peer) -> None:
            await peer.read_request()
            await peer.drip(odd)
            await peer.wait_gone()

        async with raw_server(script) as server:
            target = client.target("POST", server.url(), {})
            for _ in range(2):
                ends = Ends()
                target.send(BODY, ends)
                assert reply(await ends.wait()).body == b"{}"
            assert server.connections == 2  # never used again: what was odd once may be odd in the frames too

    run(test)


WRONG = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong"


@pytest.mark.parametrize("waiting", [True, False], ids=["for a free one", "not at all"])
def test_an_answer_too_many_is_not_that_of_the_request_that_follows_at_once(waiting: bool) -> None:
    """The second answer arrives between the reading of the first and the next request, which is written right then."""

    async def test(client: OwnClient) -> None:
        peers: list[Peer] = []
        first, second = Ends(), Ends()

        async def script(peer: Peer) -> None:
            peers.append(peer)
            await peer.read_request()
            if peer.number == 0:
                await peer.send(OK)
                await peer.wait_gone()
            else:
                await peer.send(OK)

        async with raw_server(script) as server:
            target = client.target("POST", server.url(), {})
            end = PlainConnection._end

            def late(connection: Connection, answer: HttpEnd) -> None:
                """What the kernel receives while the first answer is being looked at."""
                if connection.flight is not None and len(server.requests) == 1:
                    peers[0].write_now(WRONG)
                    poll = select.poll()
                    poll.register(descriptor_of(connection), select.POLLIN)
                    assert poll.poll(10_000)
                    if waiting:
                        target.send(BODY, second)
                end(connection, answer)

            def then(answer: HttpEnd) -> None:
                first(answer)
                if not waiting:
                    target.send(BODY, second)

            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(PlainConnection, "_end", late)
                target.send(BODY, then)
                assert reply(await first.wait()).body == b'{"ok":true}'
                assert reply(await second.wait()).body == b'{"ok":true}'
            assert [number for number, _ in server.requests] == [0, 1]

    run(test)


def test_an_idle_connection_is_closed_in_time() -> None:
    async def test(client: OwnClient) -> None:
        gone = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.read_request()
            await peer.send(OK.replace(b"\r\n\r\n", b"\r\nkeep-alive: timeout=0\r\n\r\n"))
            await peer.wait_gone()
            gone.set()

        async with raw_server(script) as server:
            ends = Ends()
            client.target("POST", server.url(), {}).send(BODY, ends)
            reply(await ends.wait())
            await gone.wait()

    run(test, Timeouts(first_byte_s=0.1))


def test_no_connection_is_opened_while_one_rests() -> None:
    """So that a pool that has grown shrinks again: what is not needed grows old at the bottom."""

    async def test(client: OwnClient) -> None:
        both = asyncio.Event()
        peers: list[Peer] = []

        async def script(peer: Peer) -> None:
            await peer.read_request()
            peers.append(peer)
            if len(peers) == 2:
                both.set()
            await both.wait()
            while True:
                await peer.send(OK)
                await peer.read_request()

        async with raw_server(script) as server:
            target = client.target("POST", server.url(), {})
            pair = [Ends(), Ends()]
            for ends in pair:
                target.send(BODY, ends)
            for ends in pair:
                await ends.wait()
            for _ in range(3):
                ends = Ends()
                target.send(BODY, ends)
                await ends.wait()
            assert server.connections == 2

    run(test)


def test_connections_are_opened_a_bounded_number_at_a_time() -> None:
    async def test(client: OwnClient) -> None:
        hold = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.wait_gone()

        # TLS is expected and never comes, so every connection that is begun stays in opening.
        async with raw_server(script, scheme="https") as server:
            target = client.target("POST", server.url(), {})
            flights = [Ends() for _ in range(MAX_OPENING + 50)]
            for ends in flights:
                target.send(BODY, ends)
            while server.connections < MAX_OPENING:
                await breathe()
            for _ in range(50):
                await breathe()
            assert server.connections == MAX_OPENING
            hold.set()
            await client.close()
            assert [len(ends.all) for ends in flights] == [1] * len(flights)

    run(test)


def test_a_gzip_bomb_costs_no_more_memory_than_an_answer_may() -> None:
    size = 8 * MAX_ANSWER_BYTES
    packed = gzip.compress(bytes(size))
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip"
    tracemalloc.start()
    try:
        end = plain_reply(200, head, [packed])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fault(end).cause is FaultCause.TOO_LARGE
    assert peak < 4 * MAX_ANSWER_BYTES


def test_gzip_in_several_members_and_gzip_that_is_content() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    zipped = b"HTTP/1.1 200 OK\r\ncontent-encoding: GZIP"
    assert reply(plain_reply(200, zipped, [packed[:9], packed[9:]])).body == b"one two"
    assert reply(plain_reply(200, b"HTTP/1.1 200 OK\r\ncontent-type: application/gzip", [packed])).body == packed
    assert reply(plain_reply(200, zipped, [b"{}"])).body == b"{}"


@pytest.mark.parametrize("behind", [b"\x00" * 512, b"\r\n", b"\x1f", b"garbage"])
def test_what_follows_the_last_member_of_gzip_costs_no_answer(behind: bytes) -> None:
    zipped = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip"
    assert reply(plain_reply(200, zipped, [gzip.compress(b"whole") + behind])).body == b"whole"
    # A second member that breaks off is no padding: the answer is not whole.
    broken = gzip.compress(b"first ") + gzip.compress(b"second")[:-4]
    assert fault(plain_reply(200, zipped, [broken])).cause is FaultCause.NETWORK


@pytest.mark.parametrize("error", [RuntimeError("File descriptor 9 is used by a transport"), OSError(101, "no route")])
def test_whatever_a_dial_fails_with_ends_the_flight(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def refuse(_: Dialer) -> None:
        raise error

    monkeypatch.setattr(Dialer, "connect", refuse)

    async def test(client: OwnClient) -> None:
        ends = Ends()
        client.target("POST", "http://127.0.0.1:9/v1", {}).send(BODY, ends)
        assert fault(await ends.wait()).cause is FaultCause.UNREACHABLE

    run(test)
