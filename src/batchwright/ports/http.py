"""Outbound HTTP: one callback seam. Start a flight; be told once how it ended.

What every transport promises (tests/exams/test_transport.py):

- It never sends a request twice by itself, whatever happened to the connection. No redirects.
- `on_end` is called exactly once for each `send`, on the loop's thread, never from inside `send`; after `abort` it is
  not called at all.
- UNREACHABLE means that not one byte of the request left: refused, no such host, failed handshake, connect timeout.
  Every other fault may have been read by the vendor: NETWORK (dropped, reset, half-closed, broken framing), TIMEOUT
  (first byte or total), TOO_LARGE (the answer passed `MAX_ANSWER_BYTES`).
- Waiting for a free connection does not count towards any timeout: the pool grows to what is asked of it.
- With `on_piece` the body of a 2xx answer is streamed: it is handed over as it comes, whatever its size, and the reply
  that ends it has none. Its time counts anew with each piece: TIMEOUT when nothing came for as long as a first byte may
  take. `hold` bounds what piles up. Any other answer is whole, as always.
- Bodies may come chunked, with a length, or to the end of the connection; 1xx answers are skipped; leading blank
  lines in a body are part of the body.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec


class FaultCause(StrEnum):
    UNREACHABLE = "unreachable"
    NETWORK = "network"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"


class HttpReply(msgspec.Struct, gc=False):
    """An answer, whole. `head` is the raw status line and header lines; `wire` reads it only when it is needed."""

    status: int
    head: bytes
    body: bytes


class HttpFault(msgspec.Struct, gc=False):
    """No answer. `detail` is a short sentence of ours ("connection refused"), never a vendor's text."""

    cause: FaultCause
    detail: str


HttpEnd = HttpReply | HttpFault


class HttpFlight(Protocol):
    def abort(self) -> None:
        """Drops the request; its connection is closed. Harmless after the end. Not to be called by `on_piece`."""

    def hold(self, held: bool) -> None:
        """Of a streamed answer: while it is held no more of it is read, but for what has been, and its time stands
        still. Harmless when it has ended."""


class HttpTarget(Protocol):
    """A URL with fixed headers: everything of a request that does not change from row to row, encoded once."""

    def send(
        self,
        body: bytes,
        on_end: Callable[[HttpEnd], None],
        *,
        on_piece: Callable[[bytes], None] | None = None,
        on_head: Callable[[bytes], None] | None = None,
    ) -> HttpFlight:
        """Begins one request. Raises nothing for what the other side does: that is the end `on_end` is told.
        With `on_piece` too, `on_head` is told the head (as `HttpReply.head`) of an answer that is streamed, before its
        first piece. Neither may raise."""


class HttpClient(Protocol):
    def target(self, method: str, url: str, headers: Mapping[str, str]) -> HttpTarget:
        """Raises ValueError for a URL that is not http or https with a host."""

    async def close(self) -> None:
        """Closes idle connections; flights still out end as NETWORK."""


Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""A host's addresses as texts, from (host, port); a host that is an address gives itself. Raises OSError for none."""


class PinnedClient(Protocol):
    """A client for places that strangers name: it looks nothing up and goes through no proxy. What was judged is where
    it goes, whatever the name leads to by then."""

    def target(self, method: str, url: str, headers: Mapping[str, str], *, addresses: Sequence[str]) -> HttpTarget:
        """Connects to one of these; the URL's host stands in the Host header and in the certificate. Raises ValueError
        for a URL or a header that cannot be sent."""

    async def close(self) -> None:
        """As `HttpClient.close`."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, each from the moment its phase begins: dialling with its handshake; the request written."""

    connect_s: float = 10.0
    first_byte_s: float = 600.0
    total_s: float = 900.0


MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""An answer above this is cut off and counted as billed."""
MAX_HEAD_BYTES = 64 * 1024
"""Status line and headers together."""
