"""Request bodies, read as they arrive and never past their ceiling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.requests import Request

from batchwright.server.faults import Fault

SLOW_S = 60.0
"""A body of which nothing arrives for so long is given up."""
SLOWEST_BYTES_PER_S = 1_000
"""A whole body that arrives slower than this, after the first SLOW_S, holds memory for nothing and is given up."""
JSON_TYPES = frozenset({"", "application/json", "text/json"})
LINES_TYPES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    at_most: int
    """Bytes."""
    silent_s: float = SLOW_S
    too_large: str = "BODY_TOO_LARGE"
    """The code of the fault."""
    whole: bool = True
    """It is kept in memory until its end, and so may not be slow; one that is taken in as it comes may."""


async def read_body(request: Request, limits: BodyLimits | int) -> bytes:
    """The whole body; `limits` may be the ceiling alone. Raises Fault: the ceiling's code before it is read where its
    length is said, else as soon as it is passed; REQUEST_TIMEOUT; UNSUPPORTED_MEDIA_TYPE for a compressed one."""
    if isinstance(limits, int):
        limits = BodyLimits(at_most=limits)
    pieces = [piece async for piece in stream_body(request, limits)]
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def read_json(request: Request, limits: BodyLimits | int) -> bytes:
    """As `read_body`, of a body that has to be JSON where there is one."""
    body = await read_body(request, limits)
    if body and not is_json(media_type(request)):
        raise wrong_type(media_type(request), "application/json")
    return body


async def stream_body(request: Request, limits: BodyLimits) -> AsyncIterator[bytes]:
    """The body in pieces, as `read_body`."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Fault(
            "UNSUPPORTED_MEDIA_TYPE", f"Content-Encoding {encoding[:40]!r} is not understood; send the body as it is."
        )
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > limits.at_most:
        raise too_large(int(said), limits)
    size = 0
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    pieces = request.stream().__aiter__()
    while True:
        try:
            async with asyncio.timeout(limits.silent_s):
                piece = await anext(pieces, b"")
        except TimeoutError:
            raise _slow(f"Nothing of the body arrived for {limits.silent_s:g} s; {size:,} bytes had.") from None
        if not piece:
            return
        size += len(piece)
        if size > limits.at_most:
            raise too_large(size, limits)
        if limits.whole and size < SLOWEST_BYTES_PER_S * (loop.time() - started_s - SLOW_S):
            raise _slow(f"The body arrives too slowly: {size:,} bytes in {loop.time() - started_s:.0f} s.")
        yield piece


def media_type(request: Request) -> str:
    """The body's content type without its parameters, in small letters; empty: not said."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    return media in JSON_TYPES or (media.startswith("application/") and media.endswith("+json"))


def wrong_type(media: str, *expected: str) -> Fault:
    return Fault(
        "UNSUPPORTED_MEDIA_TYPE",
        f"Content-Type {media[:60]!r} is not taken here; expected {' or '.join(expected)}.",
        hint=f"Send the header `Content-Type: {expected[0]}`.",
    )


def _slow(message: str) -> Fault:
    return Fault("REQUEST_TIMEOUT", message, hint="Nothing was kept.", retry_after_s=1.0)


def too_large(found: int, limits: BodyLimits) -> Fault:
    return Fault(
        limits.too_large,
        f"The body has {found:,} bytes or more; at most {limits.at_most:,} are allowed.",
        hint="Nothing was kept. Send it in several parts.",
    )
