"""An upload's bytes: written as pieces while they arrive, read back from the first piece on."""

from __future__ import annotations

import asyncio
import threading

import zstandard

from batchwright.engine.writer import Writer
from batchwright.ports.files import Purpose, StoredFile
from batchwright.ports.store import Store

PIECE_BYTES = 4 * 1024 * 1024
"""Before packing: a piece is well below the 8 MiB of a transaction, also where it does not pack at all."""
ZSTD_LEVEL = 1
MS = 1000


class _Codecs(threading.local):
    """zstd contexts may not be shared between threads."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_codecs = _Codecs()


class StoredUpload:
    """Reads the file from its start. Raises NoSuchFile where its bytes are not there any more."""

    def __init__(self, store: Store, file_id: str) -> None:
        self._store, self._file_id = store, file_id
        self._pieces = store.count_pieces(file_id)
        self._next = 0
        self._piece, self._at = b"", 0

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none: the end."""
        if self._at == len(self._piece):
            if self._next == self._pieces:
                return b""
            self._piece, self._at = read_piece(self._store, self._file_id, self._next), 0
            self._next += 1
        data = self._piece[self._at : self._at + size]
        self._at += len(data)
        return data


def read_piece(store: Store, file_id: str, number: int) -> bytes:
    return _codecs.decompress(store.read_piece(file_id, number))


class StoreUpload:
    """Implements `ports.file_batches.Upload`: at most two pieces are in memory."""

    def __init__(self, store: Store, file: StoredFile, *, writer: Writer) -> None:
        """`file` as it was begun: its id and account."""
        self._store, self._writer = store, writer
        self._file = file
        self._buffer = bytearray()
        self._size = self._pieces = 0
        self._done = False

    async def write(self, data: bytes) -> None:
        self._buffer += data
        self._size += len(data)
        while len(self._buffer) >= PIECE_BYTES:
            piece = bytes(self._buffer[:PIECE_BYTES])
            del self._buffer[:PIECE_BYTES]
            await self._add(piece)

    async def finish(self, *, filename: str, expires_s: float) -> StoredFile:
        if self._buffer:
            await self._add(bytes(self._buffer))
            self._buffer.clear()
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
        self._buffer.clear()
        await self._writer.do(lambda: self._store.hide_file(self._file.file_id))

    async def _add(self, piece: bytes) -> None:
        packed = await asyncio.to_thread(_pack, piece)
        await self._writer.do(lambda: self._store.add_piece(self._file.file_id, packed))
        self._pieces += 1


def _pack(piece: bytes) -> bytes:
    return _codecs.compress(piece)
