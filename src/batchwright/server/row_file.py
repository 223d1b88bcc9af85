"""The rows of a batch as a file that is made while it is sent: no file is kept, and no memory grows with it.

Of a batch that has ended the bytes stand for as long as its `tag` does: a retry or other prices give another one. So a
part of it can be asked for; where its pieces begin is remembered from one whole pass (`FileIndexes`). Of a batch that
runs there are the rows that have ended so far.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from batchwright.core import row_map
from batchwright.core.errors import WrongState
from batchwright.core.rows import RowView
from batchwright.ports.batches import Batches, BatchStatus

REMEMBERED_FILES = 64
"""Indexes kept: one of a million rows has 32 KiB."""
GZIP_LEVEL = 1
"""Rows are alike, so the fastest makes a tenth of them; a higher one would set the pace of the export."""
GZIP_WINDOW = 31
"""zlib's word for its largest window in gzip's own wrapping."""
ENDED = frozenset(byte for byte in range(256) if row_map.is_end(byte))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIndex:
    """Where each piece of a file begins: its first row's request_index, and its first byte."""

    rows: array[int] = field(default_factory=lambda: array("Q"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    length: int
    """Of the whole file, in bytes."""

    def find(self, byte: int) -> tuple[int, int] | None:
        """The piece that holds this byte, as (request_index, offset); None: it is in the head."""
        place = bisect_right(self.offsets, byte) - 1
        return (self.rows[place], self.offsets[place]) if place >= 0 else None


class FileIndexes:
    """Those of the files that were asked for last, by name and tag."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], FileIndex] = OrderedDict()

    def find(self, name: str, tag: str) -> FileIndex | None:
        found = self._kept.get((name, tag))
        if found is not None:
            self._kept.move_to_end((name, tag))
        return found

    def keep(self, name: str, tag: str, index: FileIndex) -> None:
        self._kept[name, tag] = index
        if len(self._kept) > REMEMBERED_FILES:
            self._kept.popitem(last=False)


def tag_of(status: BatchStatus) -> str:
    """Names the bytes of an ended batch's files; empty while it runs. The costs are part of it: other prices change
    lines and neither the round nor the moment it ended."""
    if not status.terminal:
        return ""
    tally = status.tally
    facts = (status.batch_id, status.round, status.settled_at_ms, tally.cost_picousd, tally.unpriced, tally.no_usage)
    return hashlib.blake2s(repr(facts).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFile:
    """For one reading: its writer of lines is not shared."""

    name: str
    batches: Batches
    status: BatchStatus
    tag: str
    """Of `status`, by `tag_of`."""
    head: bytes
    line: Callable[[RowView], bytes]
    texts_of: frozenset[int] | None
    """As in `ports.batches.Batches.rows`."""

    def whole(self, indexes: FileIndexes) -> AsyncGenerator[bytes, None]:
        """All of it. Raises NoSuchBatch or WrongState before its last piece, when the batch was deleted or changed on
        the way: what was read is no file then."""
        return self._checked(self._recorded(indexes))

    def part(self, index: FileIndex, first: int, last: int) -> AsyncGenerator[bytes, None]:
        """From one byte to another, both included. Raises as `whole`."""
        return self._checked(self._cut(index, first, last - first + 1))

    async def measure(self, indexes: FileIndexes) -> FileIndex:
        """Its index; a whole pass over it if none is remembered. Raises as `whole`."""
        found = indexes.find(self.name, self.tag)
        if found is None:
            async for _ in self.whole(indexes):
                pass
            found = indexes.find(self.name, self.tag)
        assert found is not None, "a whole pass over an ended batch leaves its index"
        return found

    async def _recorded(self, indexes: FileIndexes) -> AsyncIterator[bytes]:
        rows, offsets = array("Q"), array("Q")
        length = len(self.head)
        if self.head:
            yield self.head
        async for first_index, piece in ahead(self._pieces(0)):
            rows.append(first_index)
            offsets.append(length)
            length += len(piece)
            yield piece
        if self.tag:
            indexes.keep(self.name, self.tag, FileIndex(rows=rows, offsets=offsets, length=length))

    async def _cut(self, index: FileIndex, first: int, left: int) -> AsyncIterator[bytes]:
        found = index.find(first)
        skip = first
        if found is None:
            yield self.head[first : first + left]
            left -= len(self.head) - first
            skip = 0
        else:
            skip -= found[1]
        if left <= 0:
            return
        async for _, piece in ahead(self._pieces(found[0] if found is not None else 0)):
            yield piece[skip : skip + left]
            left -= len(piece) - skip
            skip = 0
            if left <= 0:
                return

    async def _pieces(self, start: int) -> AsyncIterator[tuple[int, bytes]]:
        """The lines of some rows together, and the request_index of the first."""
        rows = self.batches.rows(self.status.batch_id, start=start, wanted=ENDED, texts_of=self.texts_of)
        async for views in rows:
            yield views[0].request_index, await asyncio.to_thread(self._write, views)

    def _write(self, views: Sequence[RowView]) -> bytes:
        line = self.line
        return b"".join([line(view) for view in views])

    async def _checked(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        held = b""
        async for piece in pieces:
            if held:
                yield held
            held = piece
        now = await self.batches.status(self.status.batch_id)
        if self.tag and tag_of(now) != self.tag:
            raise WrongState(f"{now.batch_id} was changed while it was read")
        if held:
            yield held


async def zipped(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    press = zlib.compressobj(GZIP_LEVEL, wbits=GZIP_WINDOW)
    async for piece in pieces:
        if packed := await asyncio.to_thread(press.compress, piece):
            yield packed
    yield press.flush()


Piece = tuple[int, bytes]


async def ahead(pieces: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
    """The next piece is made while one is sent."""

    async def next_piece() -> Piece | None:
        return await anext(pieces, None)

    coming = asyncio.ensure_future(next_piece())
    try:
        while (piece := await coming) is not None:
            coming = asyncio.ensure_future(next_piece())
            yield piece
    finally:
        coming.cancel()
        await asyncio.wait([coming])
