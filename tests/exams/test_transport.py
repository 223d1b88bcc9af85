"""The exam of every transport, first half: what answers look like (`ports.http`)."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from batchwright.ports.http import (
    MAX_ANSWER_BYTES,
    MAX_HEAD_BYTES,
    FaultCause,
    HttpEnd,
)
from batchwright.wire.http_head import header
from support.raw_server import OK, Peer, breathe, raw_server
from support.transport_bench import BODY, Ends, TransportBench, answering, examined, fault, reply


async def ask(bench: TransportBench, answer: bytes) -> HttpEnd:
    """How one request ends that is answered so; the server closes behind it."""
    async with raw_server(answering(answer)) as server:
        end = await bench.post(server.url())
        assert len(server.requests) == 1
        return end


@examined
async def test_a_plain_answer_comes_whole(bench: TransportBench) -> None:
    answer = reply(await ask(bench, OK))
    assert (answer.status, answer.body) == (200, b'{"ok":true}')
    assert answer.head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert not answer.head.endswith(b"\r\n")
    assert header(answer.head, "Content-Type") == "application/json"


@examined
async def test_the_request_is_what_was_asked_and_nothing_else(bench: TransportBench) -> None:
    async with raw_server(answering(OK)) as server:
        ends = Ends()
        target = bench.client.target(
            "post", server.url("/v1/ü?a=b c".replace(" ", "%20")), {"Authorization": "Bearer k"}
        )
        target.send(BODY, ends)
        await ends.wait()
    [(_, request)] = server.requests
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    names = [line.partition(":")[0].lower() for line in lines[1:]]
    assert lines[0] == "POST /v1/%C3%BC?a=b%20c HTTP/1.1"
    assert f"127.0.0.1:{server.port}" in [line.partition(": ")[2] for line in lines if line.lower().startswith("host:")]
    assert sorted(names) == ["accept", "accept-encoding", "authorization", "content-length", "host", "user-agent"]
    assert "accept-encoding: identity" in lines
    assert body == BODY


@examined
async def test_a_get_has_no_body(bench: TransportBench) -> None:
    async with raw_server(answering(OK)) as server:
        assert reply(await bench.start(server.url("/v1/models"), b"", "GET")[1].wait()).body == b'{"ok":true}'
    [(_, request)] = server.requests
    assert request.startswith(b"GET /v1/models HTTP/1.1\r\n")
    assert request.endswith(b"\r\n\r\n")


@examined
async def test_a_post_may_be_empty(bench: TransportBench) -> None:
    """Also on a connection that has carried a body before."""

    async with raw_server(answering(OK, OK)) as server:
        target = bench.client.target("POST", server.url(), {})
        for body in (BODY, b""):
            ends = Ends()
            target.send(body, ends)
            reply(await ends.wait())
    assert [request.partition(b"\r\n\r\n")[2] for _, request in server.requests] == [BODY, b""]
    assert b"content-length: 0\r\n" in server.requests[1][1].lower()


@examined
async def test_a_connection_is_kept_and_used_again(bench: TransportBench) -> None:
    async with raw_server(answering(OK, OK, OK)) as server:
        for _ in range(3):
            reply(await bench.post(server.url()))
        assert [number for number, _ in server.requests] == [0, 0, 0]


@examined
async def test_a_large_request_arrives_whole(bench: TransportBench) -> None:
    body = bytes(range(256)) * 16384
    async with raw_server(answering(OK)) as server:
        reply(await bench.post(server.url(), body))
        [(_, request)] = server.requests
        assert request.partition(b"\r\n\r\n")[2] == body


@examined
async def test_chunks_of_odd_sizes(bench: TransportBench) -> None:
    chunks = b"".join(
        b"%x;note=1\r\n%b\r\n" % (len(piece), piece) for piece in (b"\n", b'{"a"', b":" + b" " * 300, b"1}")
    )
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-First: 1\r\n\r\n"
    answer = reply(await ask(bench, head + chunks + b"0\r\nx-trailer: 1\r\n\r\n"))
    assert answer.body == b'\n{"a":' + b" " * 300 + b"1}"
    assert header(answer.head, "x-first") == "1"
    assert header(answer.head, "x-trailer") is None


@examined
async def test_blank_lines_before_the_json_belong_to_the_body(bench: TransportBench) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(5):
            await peer.send(b"1\r\n\n\r\n")
            await breathe()
        await peer.send(b"2\r\n{}\r\n0\r\n\r\n")
        await peer.read_request()
        await peer.send(OK)

    async with raw_server(script) as server:
        assert reply(await bench.post(server.url())).body == b"\n\n\n\n\n{}"
        assert reply(await bench.post(server.url())).body == b'{"ok":true}'
        assert server.connections == 1


@examined
async def test_a_body_to_the_end_of_the_connection(bench: TransportBench) -> None:
    assert reply(await ask(bench, b"HTTP/1.1 200 OK\r\n\r\n{}")).body == b"{}"
    assert reply(await ask(bench, b"HTTP/1.0 200 OK\r\n\r\n")).body == b""


@examined
async def test_interim_answers_are_skipped(bench: TransportBench) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    answer = reply(await ask(bench, interim + OK))
    assert answer.head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert header(answer.head, "link") is None
    assert answer.body == b'{"ok":true}'


@examined
async def test_every_status_is_an_answer_and_no_redirect_is_followed(bench: TransportBench) -> None:
    for status in (201, 204, 301, 307, 400, 401, 404, 408, 413, 429, 500, 503, 529):
        body = b"" if status == 204 else b"{}"
        length = b"" if status == 204 else b"content-length: 2\r\n"
        answer = reply(await ask(bench, b"HTTP/1.1 %d X\r\nlocation: /other\r\n%b\r\n%b" % (status, length, body)))
        assert (answer.status, answer.body) == (status, body)


@examined
async def test_an_answer_that_drips_is_still_one_answer(bench: TransportBench) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.drip(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)

    async with raw_server(script) as server:
        assert reply(await bench.post(server.url())).body == b'{"ok":true}'


@examined
async def test_connection_close_is_honoured(bench: TransportBench) -> None:
    """Whoever uses such a connection again loses a request that was never read."""
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(closing)
        await peer.wait_gone()

    async with raw_server(script) as server:
        for _ in range(2):
            reply(await bench.post(server.url()))
        assert [number for number, _ in server.requests] == [0, 1]


@examined
async def test_what_follows_an_answer_is_never_part_of_the_next(bench: TransportBench) -> None:
    """A content-length that is too short: the rest must not be read as anybody's answer."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(OK + (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong" if peer.number == 0 else b""))
        await peer.read_request()
        await peer.send(OK)

    async with raw_server(script) as server:
        assert reply(await bench.post(server.url())).body == b'{"ok":true}'
        assert reply(await bench.post(server.url())).body == b'{"ok":true}'
        assert [number for number, _ in server.requests] == [0, 1]


@examined
async def test_the_largest_answer_that_is_allowed(bench: TransportBench) -> None:
    body = b"x" * MAX_ANSWER_BYTES
    answer = reply(await ask(bench, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)))
    assert len(answer.body) == MAX_ANSWER_BYTES


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@examined
async def test_a_larger_answer_is_cut_off(bench: TransportBench, framing: str) -> None:
    size = 20_000_000
    head = {
        "length": b"content-length: %d\r\n\r\n" % size,
        "chunked": b"transfer-encoding: chunked\r\n\r\n%x\r\n" % size,
        "close": b"\r\n",
    }[framing]

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\n" + head + b"x" * size)
        await peer.wait_gone()

    async with raw_server(script) as server:
        assert fault(await bench.post(server.url())).cause is FaultCause.TOO_LARGE
        assert len(server.requests) == 1


@examined
async def test_a_head_has_a_bound(bench: TransportBench) -> None:
    fill = b"x-fill: %b\r\n" % (b"y" * 1000)
    small = reply(await ask(bench, OK.replace(b"\r\n\r\n", b"\r\n" + fill * 50 + b"\r\n")))
    assert len(small.head) > 50_000
    large = OK.replace(b"\r\n\r\n", b"\r\n" + fill * (MAX_HEAD_BYTES // 1000 + 1) + b"\r\n")
    assert fault(await ask(bench, large)).cause is FaultCause.NETWORK


@examined
async def test_a_head_without_end_is_cut_off(bench: TransportBench) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\n")
        while not peer.transport.is_closing():
            await peer.send(b"x-fill: %b\r\n" % (b"y" * 1000))
            await breathe()

    async with raw_server(script) as server:
        assert fault(await bench.post(server.url())).cause is FaultCause.NETWORK


@examined
async def test_gzip_that_nobody_asked_for_is_unpacked(bench: TransportBench) -> None:
    def packed(body: bytes) -> bytes:
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
        return head + body

    text = b'{"text":"%b"}' % (b"a" * 5000)
    assert reply(await ask(bench, packed(gzip.compress(text)))).body == text
    assert fault(await ask(bench, packed(gzip.compress(text)[:-9]))).cause is FaultCause.NETWORK
    bomb = gzip.compress(b"0" * (MAX_ANSWER_BYTES + 1))
    assert fault(await ask(bench, packed(bomb))).cause is FaultCause.TOO_LARGE


@pytest.mark.parametrize("value", [b"a\x01b", b"caf\xc3\xa9", b"\xff\xfe", b"\x7f", b"", b"tab\tbed"])
@examined
async def test_an_odd_value_in_a_header_that_nobody_reads_costs_no_answer(bench: TransportBench, value: bytes) -> None:
    odd = b"HTTP/1.1 200 OK\r\nx-served-by: " + value + b"\r\ncontent-length: 2\r\n\r\n{}"
    async with raw_server(answering(odd, odd)) as server:
        assert reply(await bench.post(server.url())).body == b"{}"
        assert reply(await bench.post(server.url())).body == b"{}"


@pytest.mark.parametrize(
    "lines",
    [
        [b"x-caf\xc3\xa9: 1", b"content-length: 2"],
        [b"content-length: 2", b"x served by: me"],
        [b"content-length: 2", b": nameless"],
        [b"content-length: 2", b"Content-Length: 2"],
        [b"content-length: 2, 2"],
        [b"content-length: 2", b"x-caf\xc3\xa9: 1", b"content-length: 2", b"x-request-id: kept"],
    ],
)
@examined
async def test_an_odd_line_of_the_head_costs_no_answer(bench: TransportBench, lines: list[bytes]) -> None:
    odd = b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b"{}"])
    async with raw_server(answering(odd, odd)) as server:
        for _ in range(2):
            assert reply(await bench.post(server.url())).body == b"{}"


@examined
async def test_a_head_whose_lines_end_with_a_line_feed_alone_is_read(bench: TransportBench) -> None:
    for odd in (
        b"HTTP/1.1 200 OK\ncontent-length: 4\n\n{}\n\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\n\r\n{}\n\n",
        b"HTTP/1.1 200\nx-a: 1\r\ncontent-length: 4\r\n\n{}\n\n",
    ):
        async with raw_server(answering(odd, odd)) as server:
            for _ in range(2):
                assert reply(await bench.post(server.url())).body == b"{}\n\n"


@examined
async def test_what_is_not_http_is_no_answer(bench: TransportBench) -> None:
    for garbage in (
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"<html>hello</html>",
        b"HTTP/1.1 banana\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nok\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00",
    ):
        assert fault(await ask(bench, garbage)).cause is FaultCause.NETWORK, garbage


@examined
async def test_an_answer_before_the_request_was_read(bench: TransportBench) -> None:
    """A vendor may refuse a large row from its head alone. The rest of the row must not be read as another request."""
    body = b"x" * 30_000_000

    async def script(peer: Peer) -> None:
        if peer.number == 0:
            await peer.read_head()
            await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}")
            await peer.wait_gone()
        else:
            await peer.read_request()
            await peer.send(OK)

    async with raw_server(script) as server:
        assert reply(await bench.post(server.url(), body)).status == 413
        assert reply(await bench.post(server.url())).status == 200
        assert server.requests == [(1, server.requests[0][1])]


@examined
async def test_tls(bench: TransportBench) -> None:
    async with raw_server(answering(OK, OK), certificate="localhost") as server:
        for _ in range(2):
            assert reply(await bench.post(server.url(host="localhost"))).body == b'{"ok":true}'
        assert server.connections == 1


@examined
async def test_tls_to_an_address(bench: TransportBench) -> None:
    async with raw_server(answering(OK), certificate="localhost") as server:
        assert reply(await bench.post(server.url())).body == b'{"ok":true}'


@examined
async def test_a_large_answer_over_tls(bench: TransportBench) -> None:
    body = bytes(range(256)) * 16384
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    async with raw_server(answering(answer), certificate="localhost") as server:
        assert reply(await bench.post(server.url())).body == body


@examined
async def test_600_at_once_all_end_with_their_own_answer(bench: TransportBench) -> None:
    held: list[asyncio.Event] = []
    all_here = asyncio.Event()

    async def script(peer: Peer) -> None:
        body = await peer.read_request()
        release = asyncio.Event()
        held.append(release)
        if len(held) == 600:
            all_here.set()
        await release.wait()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await peer.wait_gone()

    async with raw_server(script) as server:
        target = bench.client.target("POST", server.url(), {})
        flights = [Ends() for _ in range(600)]
        for number, ends in enumerate(flights):
            target.send(b"row %d" % number, ends)
        await all_here.wait()
        for release in held:
            release.set()
        assert [reply(await ends.wait()).body for ends in flights] == [b"row %d" % number for number in range(600)]
        assert [len(ends.all) for ends in flights] == [1] * 600
        assert server.connections == 600


@examined
async def test_sending_from_inside_on_end(bench: TransportBench) -> None:
    """The way a worker sends: the next row goes out on the connection that has just fallen free."""
    done = asyncio.get_running_loop().create_future()
    seen: list[bytes] = []

    async def script(peer: Peer) -> None:
        while True:
            body = await peer.read_request()
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    async with raw_server(script) as server:
        target = bench.client.target("POST", server.url(), {})

        def on_end(end: HttpEnd) -> None:
            seen.append(reply(end).body)
            if len(seen) < 50:
                target.send(b"%d" % len(seen), on_end)
            else:
                done.set_result(None)

        target.send(b"0", on_end)
        await done
        assert seen == [b"%d" % number for number in range(50)]
        assert server.connections == 1
