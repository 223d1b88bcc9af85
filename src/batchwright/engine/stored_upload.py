"""An upload's bytes: written as pieces while they arrive; read back as they came, or as passages of whole lines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from batchwright.core.records import Pieces
from batchwright.engine.intake import WRITE_BYTES
from batchwright.engine.piece_cutter import PieceCutter
from batchwright.engine.writer import Writer
from batchwright.ports.files import Purpose, StoredFile
from batchwright.ports.store import Store
from batchwright.wire.file_bodies import FileLine
from batchwright.wire.frames import pack_piece, unpack_piece
from batchwright.wire.line_reader import KEPT_BYTES, LongLine

MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Lines of a file that stand in pieces which no other line is in: as many as one segment can have."""

    pieces: Pieces
    packed_bytes: int
    """Of these pieces."""
    lines: list[FileLine | LongLine]
    """Without their line ends; blank ones too."""


def read_text(store: Store, file_id: str) -> Iterator[bytes]:
    """The file's bytes, a piece at a time. Raises NoSuchFile where they are not there any more."""
    for number in range(store.count_pieces(file_id)):
        yield unpack_piece(store.read_piece(file_id, number))


def read_passages(store: Store, file_id: str, max_line_bytes: int) -> Iterator[Passage]:
    """All of them in order. A line above the limit is read past, not kept. Raises NoSuchFile as `read_text`."""
    pieces = store.count_pieces(file_id)
    first = size = packed_bytes = 0
    held: list[bytes] = []
    for number in range(pieces):
        packed = store.read_piece(file_id, number)
        text = unpack_piece(packed)
        if size <= max_line_bytes:
            held.append(text)
        size += len(text)
        packed_bytes += len(packed)
        if not text.endswith(b"\n") and number + 1 < pieces:
            continue
        whole = held[0] if len(held) == 1 else b"".join(held)
        if len(whole) == size:
            lines = _lines(whole, max_line_bytes)
        else:
            lines = [LongLine(size - text.endswith(b"\n"), whole[:KEPT_BYTES])]
        yield Passage(pieces=Pieces(file_id, first, number + 1 - first), packed_bytes=packed_bytes, lines=lines)
        first, size, packed_bytes, held = number + 1, 0, 0, []


def _lines(text: bytes, max_line_bytes: int) -> list[FileLine | LongLine]:
    found: list[FileLine | LongLine] = []
    start = 0
    for line in text.removesuffix(b"\n").split(b"\n"):
        short = len(line) <= max_line_bytes
        found.append(FileLine(start, line) if short else LongLine(len(line), line[:KEPT_BYTES]))
        start += len(line) + 1
    return found


class StoreUpload:
    """Implements `ports.file_batches.Upload`. In memory are a piece that arrives, one that is packed, and packed ones
    for one transaction: together at most four times the 4 MiB of a piece."""

    def __init__(self, store: Store, file: StoredFile, *, writer: Writer) -> None:
        """`file` as it was begun: its id and account."""
        self._store, self._writer = store, writer
        self._file = file
        self._cutter = PieceCutter()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._size = self._pieces = 0
        self._done = False

    async def write(self, data: bytes) -> None:
        self._size += len(data)
        await self._add(self._cutter.add(data))

    async def finish(self, *, filename: str, expires_s: float) -> StoredFile:
        await self._add(self._cutter.rest())
        await self._write()
        done = StoredFile(
            file_id=self._file.file_id,
            account=self._file.account,
            purpose=Purpose.BATCH,
            filename=filename,
            size=self._size,
            pieces=self._pieces,
            created_at_ms=self._file.created_at_ms,
            expires_at_ms=self._file.created_at_ms + int(expires_s * MS) if expires_s else 0,
        )
        await self._writer.do(lambda: self._store.finish_file(done))
        self._done = True
        return done

    async def drop(self) -> None:
        if self._done:
            return
        self._waiting.clear()
        await self._writer.do(lambda: self._store.hide_file(self._file.file_id))

    async def _add(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            packed = await asyncio.to_thread(pack_piece, piece)
            self._pieces += 1
            self._waiting.append(packed)
            self._waiting_bytes += len(packed)
            if self._waiting_bytes >= WRITE_BYTES:
                await self._write()

    async def _write(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if waiting:
            await self._writer.do(lambda: self._store.add_pieces(self._file.file_id, waiting))
