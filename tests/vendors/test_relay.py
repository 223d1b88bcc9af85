"""What goes by in pieces is read as if it were whole, however it was cut; and our key goes no further."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.failures import FailureKind
from batchwright.ports.http import FaultCause, HttpEnd, HttpFault, HttpReply
from batchwright.ports.vendor import Answer
from batchwright.vendors.classify import classify, classify_stream
from batchwright.vendors.event_streams import StreamReader, read
from batchwright.vendors.key_hiding import HIDDEN, KeyFilter, KeyHider
from batchwright.vendors.profiles import build_profile
from batchwright.vendors.relay import Relay

KEY = "sk-abcabcabd-0123456789"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-request-id: " + KEY.encode()
CHUNK = b'data: {"choices":[{"delta":{"content":"hi"}}]}\r\n\r\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
COMPLETED = (
    b'event: response.completed\ndata: {"type":"response.completed","response":{"status":"completed","error":null,'
    b'"usage":{"input_tokens":5,"output_tokens":3,"total_tokens":8}}}\n\n'
)

cuts = st.lists(st.integers(min_value=1, max_value=40), max_size=60)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [piece for piece in [*pieces, data] if piece]


class Listener:
    def __init__(self) -> None:
        self.head = b""
        self.taken: list[bytes] = []
        self.ends: list[tuple[Answer, HttpReply | None, bytes]] = []

    def begin(self, head: bytes) -> None:
        self.head = head

    def take(self, piece: bytes) -> None:
        assert not self.ends
        self.taken.append(piece)

    def end(self, answer: Answer, reply: HttpReply | None, last: bytes) -> None:
        self.ends.append((answer, reply, last))

    @property
    def body(self) -> bytes:
        return b"".join(self.taken) + self.ends[0][2]


def relay_to(listener: Listener, endpoint: str = "/chat/completions") -> Relay:
    profile = build_profile("simulated")
    return Relay(
        listener,
        read=lambda end: classify(end, profile, endpoint=endpoint, now_ms=0),
        read_stream=lambda end, stream: classify_stream(end, stream, profile, 0),
        hider=KeyHider(KEY),
    )


def stream(pieces: list[bytes], end: HttpEnd) -> Listener:
    listener = Listener()
    relay = relay_to(listener)
    relay.begin(HEAD)
    for piece in pieces:
        relay.take(piece)
    relay.end(end)
    assert len(listener.ends) == 1
    return listener


@given(sizes=cuts)
def test_a_stream_is_read_however_it_is_cut(sizes: list[int]) -> None:
    data = CHUNK + CHUNK + USAGE + DONE
    listener = stream(cut(data, sizes), HttpReply(200, HEAD, b""))
    answer, reply, _ = listener.ends[0]
    assert listener.body == data
    assert (answer.kind, answer.prompt_tokens, answer.completion_tokens, reply) == (None, 7, 2, None)


@given(sizes=cuts, before=st.sampled_from([b"", b"sk-", KEY[:-1].encode(), b"sk-abcabc"]))
def test_the_key_is_hidden_however_it_is_cut(sizes: list[int], before: bytes) -> None:
    data = before + KEY.encode() + b" and " + KEY.encode() * 2 + KEY[:9].encode()
    found = KeyFilter(KeyHider(KEY))
    shown = b"".join(found.feed(piece) for piece in cut(data, sizes)) + found.end()
    assert shown == data.replace(KEY.encode(), HIDDEN.encode())


def test_a_key_that_is_no_secret_hides_nothing() -> None:
    found = KeyFilter(KeyHider("none"))
    assert found.feed(b"there is none") + found.end() == b"there is none"


@given(sizes=cuts)
def test_usage_of_responses_is_read(sizes: list[int]) -> None:
    reader = StreamReader()
    for piece in cut(b"event: response.created\n" + CHUNK + COMPLETED, sizes):
        reader.feed(piece)
    found = reader.end()
    assert found.usage is not None
    assert (found.usage.input_tokens, found.usage.output_tokens, found.error) == (5, 3, None)
    assert msgspec.json.encode(read(COMPLETED)) == msgspec.json.encode(found)


def test_the_end_is_where_the_stream_says_so() -> None:
    """Callers go away at that event; and some vendors keep the connection open after it."""
    listener = Listener()
    relay = relay_to(listener)
    relay.begin(HEAD)
    relay.take(CHUNK + USAGE)
    assert not listener.ends
    relay.take(DONE)
    answer, _, last = listener.ends[0]
    assert (answer.kind, answer.prompt_tokens, last) == (None, 7, DONE)
    relay.take(b": more\n\n")
    relay.end(HttpFault(FaultCause.NETWORK, "closed"))
    assert len(listener.ends) == 1


def test_what_breaks_off_has_no_end() -> None:
    answer, reply, _ = stream([CHUNK], HttpFault(FaultCause.NETWORK, "closed")).ends[0]
    assert (answer.kind, answer.http_status, reply) == (FailureKind.NETWORK, 0, None)


def test_an_error_in_a_stream_is_read() -> None:
    said = b'data: {"error":{"message":"gone","code":"insufficient_quota"}}\n\n'
    answer, _, _ = stream([CHUNK, said], HttpReply(200, HEAD, b"")).ends[0]
    assert (answer.kind, answer.message) == (FailureKind.QUOTA_EXHAUSTED, "gone")


def test_an_answer_that_is_whole_although_a_stream_was_asked_for_is_read() -> None:
    listener = Listener()
    relay = relay_to(listener)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json"
    body = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":4}}'
    relay.begin(head)
    for piece in cut(body, [20, 20]):
        relay.take(piece)
    relay.end(HttpReply(200, head, b""))
    assert (listener.ends[0][0].kind, listener.ends[0][0].prompt_tokens, listener.body) == (None, 4, body)


def test_heads_and_refusals_hold_no_key() -> None:
    listener = Listener()
    relay = relay_to(listener)
    body = b'{"error":{"message":"' + KEY.replace("-", "\\u002d").encode() + b'"}}'
    relay.end(HttpReply(401, HEAD, body))
    _, reply, _ = listener.ends[0]
    assert reply is not None
    assert KEY not in str(msgspec.json.decode(reply.body))
    assert KEY.encode() not in reply.head
