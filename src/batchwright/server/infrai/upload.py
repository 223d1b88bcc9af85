"""A body of lines on its way in: cut, hashed and decoded as it arrives, so that its size is no matter of memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence

import msgspec
from starlette.requests import Request

from batchwright.core.row_options import RowOptions
from batchwright.core.rows import SourceRow
from batchwright.server.bodies import BodyLimits, stream_body
from batchwright.server.faults import Fault
from batchwright.server.service import Ceilings
from batchwright.wire.infrai_submit import BatchOptions
from batchwright.wire.line_reader import LineCutter, LongLine
from batchwright.wire.rows import RowDecoder

BLOCK_BYTES = 512 * 1024
"""Gathered before a thread is asked to decode: some hundred rows, so that the way there and back costs nothing."""


class Upload:
    """One body. `rows` is read once; after it `digest` tells of all that was asked, options and bytes."""

    def __init__(self, options: BatchOptions, row_options: RowOptions, ceilings: Ceilings) -> None:
        self._ceilings = ceilings
        self._cutter = LineCutter(ceilings.row_bytes)
        self._decoder = RowDecoder(row_options)
        self._hash = hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(options, idempotency_key="")) + b"\n")
        self._lines = self._rows = 0

    async def rows(self, request: Request) -> AsyncIterator[Sequence[SourceRow]]:
        """Raises Fault for a body above a ceiling, too slow, or without a single row; ClientDisconnect."""
        ceilings = self._ceilings
        limits = BodyLimits(
            at_most=ceilings.stream_bytes,
            silent_s=ceilings.stream_silent_s,
            too_large="BATCH_REJECTED",
            whole=False,
        )
        waiting: list[bytes] = []
        waiting_bytes = 0
        async for piece in stream_body(request, limits):
            waiting.append(piece)
            waiting_bytes += len(piece)
            if waiting_bytes >= BLOCK_BYTES:
                yield await asyncio.to_thread(self._take, waiting)
                waiting, waiting_bytes = [], 0
        yield await asyncio.to_thread(self._take, waiting, last=True)
        if not self._rows:
            raise Fault("INVALID_REQUEST", "The body has no lines; expected one request a line.", param="requests")

    def digest(self) -> str:
        return self._hash.hexdigest()

    def _take(self, pieces: list[bytes], *, last: bool = False) -> list[SourceRow]:
        block = b"".join(pieces)
        self._hash.update(block)
        lines = self._cutter.add(block)
        if last:
            lines += self._cutter.rest()
        elif self._cutter.begun_bytes > self._ceilings.row_bytes:  # its end may never come
            lines.append(LongLine(self._cutter.begun_bytes, b""))
        rows = []
        for line in lines:
            self._lines += 1
            if isinstance(line, LongLine):
                raise long_row(f"Line {self._lines}", line.size, self._ceilings.row_bytes)
            if line and not line.isspace():
                rows.append(self._decoder.decode(line, self._lines))
        self._rows += len(rows)
        if self._rows > self._ceilings.rows:
            raise too_many_rows(self._rows, self._ceilings)
        return rows


def too_many_rows(found: int, ceilings: Ceilings) -> Fault:
    return Fault(
        "BATCH_REJECTED",
        f"The batch has {found:,} rows or more; at most {ceilings.rows:,} are allowed.",
        hint="Nothing was kept. Submit it as several batches.",
        param="requests",
    )


def long_row(place: str, found: int, at_most: int) -> Fault:
    """`place`: which row, as a sentence begins with it; `found` and `at_most` are bytes."""
    return Fault(
        "BATCH_REJECTED",
        f"{place} has {found:,} bytes or more; at most {at_most:,} are allowed.",
        hint="Nothing was kept.",
        param="requests",
    )
