"""Whatever bytes a server sends and however they are cut: a flight ends exactly once, the cuts never change how, and
nothing is raised into the event loop."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from batchwright.http.connection import PlainConnection
from batchwright.http.flight import OwnFlight
from batchwright.http.pool import Pool
from batchwright.http.request import read_url
from batchwright.http.sweep import Sweep
from batchwright.ports.http import MAX_HEAD_BYTES, FaultCause, HttpEnd, HttpFault, HttpReply, Timeouts

MANY = settings(max_examples=400)


class Wire(asyncio.Transport):
    """A transport that keeps what is written and is closed by `abort` alone."""

    def __init__(self, peer: socket.socket) -> None:
        super().__init__({"socket": peer})
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


class Bench:
    """One connection on a wire of ours, in a loop that never runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, peer: socket.socket) -> None:
        self._sweep = Sweep(loop, 1.0, lambda now_s: False)
        self.pool = Pool(
            read_url("http://vendor.test/").origin, loop=loop, timeouts=Timeouts(), tls=None, sweep=self._sweep
        )
        self.wire = Wire(peer)
        self.connection = PlainConnection(self.pool)
        self.connection.connection_made(self.wire)

    def ask(self) -> list[HttpEnd]:
        ends: list[HttpEnd] = []
        self.connection.begin(OwnFlight(self.pool, b"POST / HTTP/1.1\r\ncontent-length: ", b"{}", ends.append))
        return ends

    def hear(self, pieces: list[bytes]) -> None:
        """A loop hands nothing to a connection that has been aborted."""
        for piece in pieces:
            if piece and not self.wire.closed:
                self.connection.data_received(piece)

    def end(self) -> None:
        if not self.wire.closed:
            self.connection.eof_received()
        self.connection.connection_lost(None)


@pytest.fixture(scope="module")
def ground() -> Iterator[tuple[asyncio.AbstractEventLoop, socket.socket]]:
    loop = asyncio.new_event_loop()
    peer = socket.socket()
    yield loop, peer
    peer.close()
    loop.close()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(marks)]


def hear_all(ground: Any, pieces: list[bytes]) -> HttpEnd:
    """How a flight ends to which these pieces come, and then the connection's end."""
    bench = Bench(*ground)
    ends = bench.ask()
    bench.hear(pieces)
    bench.end()
    assert len(ends) == 1
    return ends[0]


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, HttpReply, bool]:
    """(bytes, what they say, whether the connection may be kept)."""
    status = draw(st.sampled_from([200, 201, 400, 429, 500, 529]))
    plain = draw(st.binary(max_size=200))
    fields = draw(
        st.lists(st.sampled_from([b"x-a: 1", b"X-B:", b"retry-after: \xe9", b"content-type: a/b"]), max_size=4)
    )
    body = plain
    if draw(st.booleans()):
        body = gzip.compress(plain, mtime=0)
        fields.append(b"Content-Encoding: gzip")
    framing = draw(st.sampled_from(["length", "chunked", "end"]))
    if framing == "length":
        fields.append(b"Content-Length: %d" % len(body))
        framed = body
    elif framing == "chunked":
        fields.append(b"transfer-encoding: Chunked")
        pieces = [piece for piece in cut(body, draw(st.lists(st.integers(0, 300), max_size=4))) if piece]
        note = draw(st.sampled_from([b"", b";n=1"]))
        trailer = draw(st.sampled_from([b"", b"x-t: 1\r\n"]))
        framed = (
            b"".join(b"%x%b\r\n%b\r\n" % (len(piece), note, piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"
        )
    else:
        framed = body
    head = b"\r\n".join([b"HTTP/1.1 %d Word" % status, *fields])
    interim = draw(
        st.lists(st.sampled_from([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\na: b\r\n\r\n"]), max_size=2)
    )
    blank = draw(st.sampled_from([b"", b"\r\n", b"\r\n\r\n"]))
    data = blank + b"".join(interim) + head + b"\r\n\r\n" + framed
    return data, HttpReply(status, head, plain), framing != "end"


places = st.lists(st.integers(0, 2000), max_size=12)


@MANY
@given(answer=answers(), where=places)
def test_cuts_do_not_change_a_valid_answer(
    ground: Any, answer: tuple[bytes, HttpReply, bool], where: list[int]
) -> None:
    data, said, _ = answer
    assert hear_all(ground, [data]) == said
    assert hear_all(ground, cut(data, where)) == said
    assert hear_all(ground, [data[place : place + 1] for place in range(len(data))]) == said


@MANY
@given(first=answers(), second=answers(), where=places)
def test_answers_follow_each_other_on_one_connection(
    ground: Any, first: tuple[bytes, HttpReply, bool], second: tuple[bytes, HttpReply, bool], where: list[int]
) -> None:
    bench = Bench(*ground)
    ends = bench.ask()
    bench.hear(cut(first[0], where))
    if not first[2]:
        assert ends == []
        return
    assert ends == [first[1]]
    assert not bench.wire.closed
    later = bench.ask()
    bench.hear(cut(second[0], where))
    bench.end()
    assert (ends, later) == ([first[1]], [second[1]])


@MANY
@given(answer=answers(), short=st.integers(1, 400), where=places)
def test_an_answer_that_breaks_off_is_no_answer(
    ground: Any, answer: tuple[bytes, HttpReply, bool], short: int, where: list[int]
) -> None:
    data, _, framed = answer
    kept = data[: max(0, len(data) - short)]
    end = hear_all(ground, cut(kept, where))
    if framed:
        assert isinstance(end, HttpFault)
        assert end.cause is FaultCause.NETWORK


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid answer, or two, with a few bytes replaced, put in or taken out."""
    data = bytearray(draw(answers())[0] + draw(st.sampled_from([b"", b"\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"x"])))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        width = draw(st.integers(0, 3))
        data[place : place + width] = draw(
            st.one_of(st.binary(max_size=3), st.sampled_from([b"\r\n", b"\n", b":", b"0"]))
        )
    return bytes(data)


@MANY
@given(data=st.one_of(st.binary(max_size=300), damaged()), where=places)
def test_cuts_do_not_change_what_is_made_of_anything_else(ground: Any, data: bytes, where: list[int]) -> None:
    """Of what is no answer the words may differ: the parser may say so, or wait for what does not come."""
    whole = without_words(hear_all(ground, [data]))
    assert without_words(hear_all(ground, cut(data, where))) == whole
    assert without_words(hear_all(ground, [data[place : place + 1] for place in range(len(data))])) == whole


def without_words(end: HttpEnd) -> HttpEnd:
    return structs.replace(end, detail="") if isinstance(end, HttpFault) else end


@pytest.mark.parametrize("excess", [-1, 0, 1])
@pytest.mark.parametrize("interim", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_the_bound_of_a_head_does_not_depend_on_cuts(ground: Any, interim: bytes, excess: int) -> None:
    start = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: "
    room = MAX_HEAD_BYTES - len(start) - len(interim.rstrip())
    data = interim + start + b"y" * (room + excess) + b"\r\n\r\n"
    ends = [
        hear_all(ground, [data]),
        hear_all(ground, [data[:-2], data[-2:]]),
        hear_all(ground, [data[:-1], data[-1:]]),
    ]
    assert ends[0] == ends[1] == ends[2]
    assert isinstance(ends[0], HttpFault) is (excess > 0)
