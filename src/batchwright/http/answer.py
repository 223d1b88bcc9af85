"""One answer at a time out of a connection's bytes: llhttp finds the frames, this keeps the pieces and the bounds.

    state      bytes arrive                                    the connection ends
    head       collected until the blank line; a 1xx head is   NETWORK
               dropped and the next one collected
    refused    llhttp stumbled over a line of the head: it is  NETWORK
               collected whole and read once more, mended
               (`head_mending`); the reply stands, but the
               connection is not used again
    body       collected, up to the bound                      a reply, if neither a length nor chunks framed it;
                                                               else NETWORK
    whole      anything but blank lines: the reply stands,     (the reply stands)
               the connection is not used again

How the bytes were cut into pieces never changes the end. After an end that leaves `reusable` true the reader stands
at the head of the next answer; after any other it must be thrown away with its connection.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from batchwright.http.head_mending import may_be_mended, mended
from batchwright.ports.http import MAX_ANSWER_BYTES, MAX_HEAD_BYTES, FaultCause, HttpEnd, HttpFault, HttpReply
from batchwright.wire.http_head import header

HEAD_END = b"\r\n\r\n"
GZIP_MAGIC = b"\x1f\x8b"
BROKEN = HttpFault(cause=FaultCause.NETWORK, detail="the answer is not valid HTTP/1.1")
HEAD_TOO_LARGE = HttpFault(cause=FaultCause.NETWORK, detail=f"the answer's head is above {MAX_HEAD_BYTES} bytes")
BROKEN_GZIP = HttpFault(cause=FaultCause.NETWORK, detail="the answer's gzip encoding is broken")
CLOSED_UNHEARD = HttpFault(cause=FaultCause.NETWORK, detail="the connection was closed before an answer")
CLOSED_MIDWAY = HttpFault(cause=FaultCause.NETWORK, detail="the connection was closed in the middle of the answer")


class AnswerReader:
    """Feed it what arrives; it says when the answer has ended and then what it was."""

    __slots__ = (
        "_complete",
        "_fault",
        "_head",
        "_head_bytes",
        "_max_bytes",
        "_mended",
        "_parser",
        "_pieces",
        "_raw",
        "_refused",
        "_size",
        "_status",
        "on_head",
        "on_piece",
        "reusable",
    )

    def __init__(self, max_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._max_bytes = max_bytes
        self._parser = self._new_parser()
        self._refused = False
        """llhttp has refused a line of this head, the rest of which has not come yet."""
        self._mended = False
        self._raw: bytes | bytearray = b""
        """What came before the end of the head; kept as it came, because the parser is not asked for headers."""
        self._head_bytes = 0
        """Size of the 1xx heads that were dropped."""
        self._head = b""
        self._status = 0
        """0 until the head is whole."""
        self._pieces: list[bytes] = []
        self._size = 0
        self._complete = False
        self._fault: HttpFault | None = None
        self.on_piece: Callable[[bytes], None] | None = None
        """Set: the body of a 2xx goes there, and no bound is on its size."""
        self.on_head: Callable[[bytes], None] | None = None
        """Set: told the head of a 2xx, before the first piece of its body."""
        self.reusable = True

    def _new_parser(self) -> HttpResponseParser:
        parser = HttpResponseParser(self)
        # A control character in some header's value must not cost a paid answer: nobody here reads that header.
        parser.set_dangerous_leniencies(lenient_headers=True)
        return parser

    @property
    def heard(self) -> bool:
        """Whether a byte of the present answer has come."""
        return self._status != 0 or len(self._raw) > 0

    def feed(self, data: bytes) -> bool:
        """True: the answer has ended, `take` says how. Never raises for what a server can send."""
        if self._status == 0:
            if self._raw:
                if type(self._raw) is bytes:
                    self._raw = bytearray(self._raw)
                self._raw += data
            else:
                self._raw = data
        if self._refused:
            self._read_mended()
        else:
            try:
                self._parser.feed_data(data)
            except (HttpParserError, HttpParserUpgrade):
                self._stumbled()
        if self._size > self._max_bytes:
            self._fault = too_large(self._max_bytes)
        elif self._status == 0 and self._head_bytes + len(self._raw) - len(HEAD_END) >= MAX_HEAD_BYTES:
            # What is here may end with all but one byte of the blank line, which does not count.
            self._fault = self._fault or HEAD_TOO_LARGE
        return self._complete or self._fault is not None

    def _stumbled(self) -> None:
        """llhttp takes no more of this answer."""
        self.reusable = False
        if self._complete or self._fault is not None:
            return
        if self._status or self._mended or not may_be_mended(self._raw):
            self._fault = BROKEN
            return
        self._refused = True
        self._read_mended()

    def _read_mended(self) -> None:
        """The second reading, with a new parser, once the refused head is whole."""
        raw = mended(bytes(self._raw))
        if raw is None:
            return
        behind = len(raw) - raw.find(HEAD_END) - len(HEAD_END)
        if self._head_bytes + len(self._raw) - behind - len(HEAD_END) > MAX_HEAD_BYTES:
            self._fault = HEAD_TOO_LARGE
            return
        self._refused = False
        self._mended = True
        self._parser = self._new_parser()
        self._raw = raw
        try:
            self._parser.feed_data(raw)
        except (HttpParserError, HttpParserUpgrade):
            self._stumbled()

    def feed_end(self) -> HttpEnd:
        """The connection has ended in order: what that makes of the answer."""
        self.reusable = False
        framed = header(self._head, "content-length") or header(self._head, "transfer-encoding")
        if self._status and framed is None:
            return self._read_reply()
        return CLOSED_MIDWAY if self.heard else CLOSED_UNHEARD

    def take(self) -> HttpEnd:
        """How the answer ended, once `feed` has said that it did; makes room for the next one."""
        if self._fault is not None:
            self.reusable = False
            return self._fault
        end = self._read_reply()
        self._raw = self._head = b""
        self._head_bytes = self._status = self._size = 0
        self._pieces = []
        self._complete = False
        return end

    def _read_reply(self) -> HttpEnd:
        return plain_reply(self._status, self._head, self._pieces)

    # What llhttp calls. They must not raise, and must not end the answer: `feed` does, once they are through.

    def on_message_begin(self) -> None:
        if self._complete:
            self.reusable = False

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        raw = self._raw
        start = 0
        while raw[start] in HEAD_END:  # blank lines before the status line are allowed
            start += 1
        end = raw.find(HEAD_END, start)
        self._head_bytes += end
        if end < 0 or self._head_bytes > MAX_HEAD_BYTES:
            self._fault = BROKEN if end < 0 else HEAD_TOO_LARGE
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._raw = raw[end + len(HEAD_END) :]
            return
        self._status = status
        self._head = bytes(raw[start:end])
        self._raw = b""
        if self.on_head is not None and status <= 299:
            self.on_head(self._head)

    def on_body(self, piece: bytes) -> None:
        if self._complete:
            return
        if self.on_piece is not None and 200 <= self._status <= 299:
            self.on_piece(piece)
            return
        self._size += len(piece)
        if self._size <= self._max_bytes:
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        if self._status == 0 or self._complete:
            return
        self._complete = True
        if not self._parser.should_keep_alive():
            self.reusable = False


def too_large(max_bytes: int) -> HttpFault:
    return HttpFault(cause=FaultCause.TOO_LARGE, detail=f"the answer is above {max_bytes} bytes")


def plain_reply(status: int, head: bytes, pieces: list[bytes]) -> HttpEnd:
    """A reply of a body in pieces, unpacked if a server sent gzip although `identity` was asked for."""
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    # The first bytes are asked before the header: nearly all answers are spared the search.
    if body[:2] == GZIP_MAGIC and (header(head, "content-encoding") or "").lower() in ("gzip", "x-gzip"):
        unzipped = _gunzip(body)
        if isinstance(unzipped, HttpFault):
            return unzipped
        body = unzipped
    return HttpReply(status, head, body)


def _gunzip(body: bytes) -> bytes | HttpFault:
    """The plain bytes of all members, bounded as an answer is. What follows the last one and is none is left out, as
    gzip itself does: padding behind a whole answer must not cost it."""
    plain = bytearray()
    while body[:2] == GZIP_MAGIC:
        member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            plain += member.decompress(body, MAX_ANSWER_BYTES + 1 - len(plain))
        except zlib.error:
            return BROKEN_GZIP
        if len(plain) > MAX_ANSWER_BYTES:
            return too_large(MAX_ANSWER_BYTES)
        if not member.eof:
            return BROKEN_GZIP
        body = member.unused_data
    return bytes(plain)
