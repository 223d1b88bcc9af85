"""Request bodies, read as they arrive and never past their ceiling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request

from batchwright.server.faults import Fault

SLOW_S = 60.0
"""A body of which nothing arrives for so long is given up."""


async def read_body(request: Request, at_most: int) -> bytes:
    """The whole body. Raises Fault: BODY_TOO_LARGE before it is read where its length is said, else as soon as it is
    passed; REQUEST_TIMEOUT; UNSUPPORTED_MEDIA_TYPE for a compressed one."""
    pieces = [piece async for piece in stream_body(request, at_most)]
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def stream_body(request: Request, at_most: int) -> AsyncIterator[bytes]:
    """The body in pieces, as `read_body`."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Fault(
            "UNSUPPORTED_MEDIA_TYPE", f"Content-Encoding {encoding[:40]!r} is not understood; send the body as it is."
        )
    said = request.headers.get("content-length", "")
    if said.isdigit() and int(said) > at_most:
        raise too_large(int(said), at_most)
    size = 0
    pieces = request.stream().__aiter__()
    while True:
        try:
            async with asyncio.timeout(SLOW_S):
                piece = await anext(pieces, b"")
        except TimeoutError:
            raise Fault(
                "REQUEST_TIMEOUT",
                f"Nothing of the body arrived for {SLOW_S:g} s; {size:,} bytes had.",
                retry_after_s=1.0,
            ) from None
        if not piece:
            return
        size += len(piece)
        if size > at_most:
            raise too_large(size, at_most)
        yield piece


def too_large(found: int, at_most: int) -> Fault:
    return Fault(
        "BODY_TOO_LARGE",
        f"The body has {found:,} bytes or more; at most {at_most:,} are allowed.",
        hint="Nothing was kept. Send it in several parts.",
    )
