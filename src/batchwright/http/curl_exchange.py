"""One libcurl handle: set up once for a target, then one exchange after another."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import pycurl  # type: ignore[import-untyped]  # its wheel has stubs but no py.typed

from batchwright.http.answer import (
    BROKEN,
    CLOSED_MIDWAY,
    CLOSED_UNHEARD,
    HEAD_TOO_LARGE,
    plain_reply,
    too_large,
)
from batchwright.http.connection import MAX_IDLE_S
from batchwright.http.deadlines import overdue, silent
from batchwright.http.faults import network, unreachable
from batchwright.http.request import Address, header_lines
from batchwright.http.sockets import KEEP_ALIVE_PROBE_S, KeptSockets
from batchwright.ports.http import MAX_ANSWER_BYTES, MAX_HEAD_BYTES, HttpEnd, HttpFault, Timeouts

UPLOAD_BUFFER_BYTES = 16 * 1024
"""libcurl's own default of 64 KiB a handle is 17 MiB more at 512 in flight."""
KEPT_BODY_BYTES = 64 * 1024
"""A resting handle may hold on to the last body up to this size."""
BLANK_LINES = (b"\r\n", b"\n")


def new_easy(
    method: str,
    address: Address,
    headers: Mapping[str, str],
    *,
    proxy: str,
    trust: tuple[str, str],
    connect_s: float,
) -> Callable[[], pycurl.Curl]:
    """What makes handles for one target. Raises ValueError for a header that cannot be sent, at once."""
    # An empty Expect is libcurl's way to leave it out: no round trip before a body above 1 MiB.
    lines = [line.encode("latin-1") for line in [*header_lines(headers), "expect:"]]
    if "content-type" not in {name.lower() for name in headers}:
        lines.append(b"content-type:")

    def make() -> pycurl.Curl:
        easy = pycurl.Curl()
        for option, value in (
            (pycurl.URL, address.url.encode("ascii")),
            (pycurl.HTTPHEADER, lines),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.NOSIGNAL, 1),
            (pycurl.PROXY, proxy),
            (pycurl.NOPROXY, ""),  # libcurl reads no variable by itself: `proxies` has decided
            (pycurl.CONNECTTIMEOUT_MS, max(1, round(connect_s * 1000))),
            (pycurl.UPLOAD_BUFFERSIZE, UPLOAD_BUFFER_BYTES),
            (pycurl.MAXFILESIZE, MAX_ANSWER_BYTES),
            (pycurl.MAXAGE_CONN, int(MAX_IDLE_S)),
            (pycurl.TCP_KEEPALIVE, 1),
            (pycurl.TCP_KEEPIDLE, KEEP_ALIVE_PROBE_S),
            (pycurl.TCP_KEEPINTVL, KEEP_ALIVE_PROBE_S),
        ):
            easy.setopt(option, value)
        file, folder = trust
        if file:
            easy.setopt(pycurl.CAINFO, file)
            easy.setopt(pycurl.PROXY_CAINFO, file)
        if folder:
            easy.setopt(pycurl.CAPATH, folder)
        if method != "POST":
            easy.setopt(pycurl.CUSTOMREQUEST, method)
        return easy

    return make


class Exchange:
    __slots__ = (
        "_addresses",
        "_body_bytes",
        "_free",
        "_kept",
        "_lines",
        "_now",
        "_on_head",
        "_on_piece",
        "_pieces",
        "_sent_s",
        "easy",
        "held",
        "sent",
        "stale",
    )

    def __init__(self, easy: pycurl.Curl, free: list[Exchange], *, kept: KeptSockets, now: Callable[[], float]) -> None:
        self.easy = easy
        self.sent = False
        """What decides between UNREACHABLE and all other faults."""
        self.stale = False
        """The connection chosen had news and was closed before anything was sent: it is no end, just no connection."""
        self._addresses: tuple[object, ...] = ()
        self._free = free
        self._kept = kept
        self._now = now
        self._sent_s = 0.0
        self._body_bytes = 0
        self._lines: list[bytes] = []
        self._pieces: list[bytes] = []
        self._on_piece: Callable[[bytes], None] | None = None
        self._on_head: Callable[[bytes], None] | None = None
        self.held = False
        easy.setopt(pycurl.HEADERFUNCTION, self._lines.append)
        easy.setopt(pycurl.WRITEFUNCTION, self._pieces.append)
        easy.setopt(pycurl.PREREQFUNCTION, self._before_sending)

    def prepare(
        self, body: bytes, on_piece: Callable[[bytes], None] | None, on_head: Callable[[bytes], None] | None
    ) -> None:
        if (on_piece is None) != (self._on_piece is None):
            self.easy.setopt(pycurl.WRITEFUNCTION, self._pieces.append if on_piece is None else self._streamed)
            self.easy.setopt(pycurl.MAXFILESIZE, MAX_ANSWER_BYTES if on_piece is None else 0)
        self._on_piece = on_piece
        self._on_head = on_head
        self.sent = self.stale = self.held = False
        self._lines.clear()
        self._pieces.clear()
        self._body_bytes = len(body)
        self.easy.setopt(pycurl.POSTFIELDS, body)

    def release(self) -> None:
        """The handle is out of libcurl's hands and may serve the next request."""
        if self._body_bytes > KEPT_BODY_BYTES:
            self.easy.setopt(pycurl.POSTFIELDS, b"")
        self._lines.clear()
        self._pieces.clear()
        self._free.append(self)

    def hold(self, held: bool) -> None:
        """Stops or goes on reading a streamed answer."""
        if held == self.held:
            return
        self.held = held
        self._sent_s = self._now()
        self.easy.pause(pycurl.PAUSE_RECV if held else pycurl.PAUSE_CONT)

    def _streamed(self, piece: bytes) -> None:
        self._sent_s = self._now()  # its time counts from the last piece
        if self._on_piece is not None and _last_status(self._lines)[:1] == b"2":
            on_head, self._on_head = self._on_head, None
            if on_head is not None:
                on_head(_final_head(self._lines))
            self._on_piece(piece)
        else:
            self._pieces.append(piece)

    def overdue(self, now_s: float, timeouts: Timeouts) -> HttpFault | None:
        """What the exchange ends with now, if its time is up. (libcurl itself bounds the time to connect.)"""
        if not self.sent or self.held:
            return None
        if self._on_piece is not None:
            return silent(timeouts, now_s - self._sent_s)
        return overdue(timeouts, now_s - self._sent_s, heard=bool(self._lines))

    def reply(self) -> HttpEnd:
        """What libcurl calls a success; to be asked before the handle leaves the multi handle."""
        head = _final_head(self._lines)
        if len(head) > MAX_HEAD_BYTES:
            return HEAD_TOO_LARGE
        status = self.easy.getinfo(pycurl.RESPONSE_CODE)
        if status < 200 or not head:
            return BROKEN
        descriptor = self.easy.getinfo(pycurl.ACTIVESOCKET)
        if descriptor >= 0:
            self._kept.keep(self._addresses, descriptor)
        return plain_reply(status, head, self._pieces)

    def fault(self, code: int, message: str, timeouts: Timeouts) -> HttpFault:
        """What libcurl calls a failure. Its message goes no further unless it is about certificates."""
        if not self.sent:
            return unreachable(self._why_unsent(code, message, timeouts))
        match code:
            case pycurl.E_FILESIZE_EXCEEDED:
                return too_large(MAX_ANSWER_BYTES)
            case pycurl.E_ABORTED_BY_CALLBACK | pycurl.E_GOT_NOTHING:
                return CLOSED_UNHEARD
            case pycurl.E_PARTIAL_FILE:
                return CLOSED_MIDWAY
            case pycurl.E_RECV_ERROR | pycurl.E_SEND_ERROR:
                # The handle keeps an error number of earlier exchanges, so it is only used to word the sentence.
                errno = self.easy.getinfo(pycurl.OS_ERRNO)
                return network(os.strerror(errno).lower() if errno else "connection closed")
            case _:
                return BROKEN

    def _why_unsent(self, code: int, message: str, timeouts: Timeouts) -> str:
        match code:
            case pycurl.E_OPERATION_TIMEDOUT:
                return f"no connection within {timeouts.connect_s:g} s"
            case pycurl.E_COULDNT_RESOLVE_HOST:
                return "host name not resolved"
            case pycurl.E_COULDNT_RESOLVE_PROXY:
                return "the proxy's host name was not resolved"
            case pycurl.E_COULDNT_CONNECT:
                errno = self.easy.getinfo(pycurl.OS_ERRNO)
                return os.strerror(errno).lower() if errno else "no connection"
            case pycurl.E_SSL_CACERT:
                return f"certificate verify failed: {message.rpartition(': ')[2]}"
            case pycurl.E_SSL_CONNECT_ERROR:
                return "TLS handshake failed"
            case _:
                return f"no connection (libcurl error {code})"

    def _before_sending(self, *addresses: object) -> int:
        """Called when a connection is there and the request is about to leave on it.

        libcurl itself looks at a kept connection once a second at most: what came since would be read as the answer.
        """
        self.stale = not self.sent and self._kept.is_stale(addresses)
        if self.sent or self.stale:
            return int(pycurl.PREREQFUNC_ABORT)
        self.sent = True
        self._addresses = addresses
        self._sent_s = self._now()
        self._lines.clear()  # of a proxy's answer to CONNECT
        return int(pycurl.PREREQFUNC_OK)


def _last_status(lines: list[bytes]) -> bytes:
    """Of the answer whose body comes: 1xx answers have none. Asked of the lines: libcurl must not be asked now."""
    for line in reversed(lines):
        if line.startswith(b"HTTP/"):
            return line.partition(b" ")[2][:3]
    return b""


def _final_head(lines: list[bytes]) -> bytes:
    """The head of the answer itself: without 1xx heads before and trailers behind it."""
    start = 0
    for position, line in enumerate(lines):
        if line in BLANK_LINES:
            if lines[start].split(b" ", 2)[1:2][0][:1] != b"1":
                return b"".join(lines[start:position]).rstrip(b"\r\n")
            start = position + 1
    return b""
