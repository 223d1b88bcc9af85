"""One call on its way through: what the transport brings goes on to whoever waits for it, and is read beside it."""

from __future__ import annotations

from collections.abc import Callable

from batchwright.ports.http import MAX_ANSWER_BYTES, HttpEnd, HttpFault, HttpReply
from batchwright.ports.vendor import Answer, CallListener
from batchwright.vendors.event_streams import Stream, StreamReader
from batchwright.vendors.key_hiding import HIDDEN, KeyFilter, KeyHider
from batchwright.vendors.late_answer import internal_answer
from batchwright.wire.call_headers import status_of
from batchwright.wire.http_head import header

EVENT_STREAM = "text/event-stream"


class Relay:
    """Hears the transport (`ports.http`), tells a `CallListener`."""

    def __init__(
        self,
        listener: CallListener,
        *,
        read: Callable[[HttpEnd], Answer],
        read_stream: Callable[[HttpEnd, Stream], Answer],
        hider: KeyHider,
    ) -> None:
        """`read` reads an answer that is whole, `read_stream` the end of one that was streamed."""
        self._listener = listener
        self._read = read
        self._read_stream = read_stream
        self._hider = hider
        self._head = b""
        """Of an answer that is streamed; empty: none has begun."""
        self._filter = KeyFilter(hider)
        self._events: StreamReader | None = None
        self._pieces: list[bytes] = []
        """Of an answer that is no event stream although one was asked for: it is read once it is whole."""
        self._size = 0
        self._ended = False

    def begin(self, head: bytes) -> None:
        self._head = head
        if EVENT_STREAM in (header(head, "content-type") or "").lower():
            self._events = StreamReader()
        self._listener.begin(self._clean(head))

    def take(self, piece: bytes) -> None:
        if self._ended:
            return
        if self._events is not None:
            self._events.feed(piece)
        elif self._size <= MAX_ANSWER_BYTES:
            self._size += len(piece)
            self._pieces.append(piece)
        shown = self._filter.feed(piece)
        if self._events is not None and self._events.done:
            # Callers close the stream at this event, and some vendors do not end it after it.
            self._finish(HttpReply(status_of(self._head), self._head, b""), last=shown)
        elif shown:
            self._listener.take(shown)

    def end(self, end: HttpEnd) -> None:
        if not self._ended:
            self._finish(end, last=b"")

    def _finish(self, end: HttpEnd, *, last: bytes) -> None:
        self._ended = True
        streamed = bool(self._head)
        try:
            answer = self._stream_answer(end) if streamed else self._read(end)
        except Exception as error:
            answer = internal_answer(error)
        if streamed:
            last += self._filter.end()
        reply = None
        if not streamed and isinstance(end, HttpReply):
            refused = answer.kind is not None or self._hider.plain in end.body
            reply = HttpReply(end.status, self._clean(end.head), self._hider.body(end.body) if refused else end.body)
        self._listener.end(answer, reply, last)

    def _stream_answer(self, end: HttpEnd) -> Answer:
        if self._events is not None:
            return self._read_stream(end, self._events.end())
        if isinstance(end, HttpFault) or self._size > MAX_ANSWER_BYTES:
            return self._read(end)
        return self._read(HttpReply(end.status, self._head, b"".join(self._pieces)))

    def _clean(self, head: bytes) -> bytes:
        return head.replace(self._hider.plain, HIDDEN.encode()) if self._hider.plain else head
