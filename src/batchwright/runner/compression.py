"""Compressed inputs and outputs: gzip and zstd. An input is told by its first bytes, an output by its name."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, Protocol, assert_never, cast

import zstandard

from batchwright.runner.blocks import BlocksReader
from batchwright.wire.line_reader import Readable

BUFFER_BYTES = 256 * 1024
FED_BYTES = 1024
"""Of zstd's bytes, handed over at once: four of them can stand for 128 KiB, so that 32 MiB come of it at worst."""
GZIP_LEVEL = 6
ZSTD_LEVEL = 3
"""Each library's own default."""


class Compression(Enum):
    NONE = ""
    GZIP = "gzip"
    ZSTD = "zstd"


_SUFFIXES = {".gz": Compression.GZIP, ".zst": Compression.ZSTD}
_MAGIC = {b"\x1f\x8b": Compression.GZIP, b"\x28\xb5\x2f\xfd": Compression.ZSTD}
MAGIC_BYTES = 4
_OF_GZIP = 16
"""As zlib wants to be told of gzip's header."""


class Damaged(Exception):
    """Compressed data that is cut short, or followed by something else, or not what it should be."""

    def __init__(self, compression: Compression, reason: str) -> None:
        super().__init__(f"the {compression.value} data is cut short or damaged ({reason})")
        self.compression = compression
        self.reason = reason


class Out(Protocol):
    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> object: ...


class Squeezer(Protocol):
    def write(self, data: bytes, /) -> object: ...

    def close(self) -> None:
        """Ends the data; what it is written to stays open."""


def split_name(name: str) -> tuple[str, Compression]:
    """`rows.csv.gz` is `rows.csv`, compressed with gzip."""
    for suffix, found in _SUFFIXES.items():
        if name.lower().endswith(suffix):
            return name[: -len(suffix)], found
    return name, Compression.NONE


def _of_bytes(head: bytes) -> Compression:
    return next((found for magic, found in _MAGIC.items() if head.startswith(magic)), Compression.NONE)


def squeezed_into(out: Out, compression: Compression) -> Squeezer | None:
    """What compresses into `out`; None for no compression. No name and no time go in: the same bytes give the same."""
    match compression:
        case Compression.NONE:
            return None
        case Compression.GZIP:
            return gzip.GzipFile(filename="", mode="wb", fileobj=out, compresslevel=GZIP_LEVEL, mtime=0)
        case Compression.ZSTD:
            compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
            return cast(Squeezer, compressor.stream_writer(cast(Any, out), closefd=False))
        case _:
            assert_never(compression)


@contextmanager
def decompressed(raw: io.BufferedReader[Any]) -> Iterator[io.BufferedReader[Any]]:
    """The plain bytes, decompressed if they begin as gzip or zstd does, whatever they are called. Reading them raises
    Damaged. `raw` stays open."""
    unpacked: io.RawIOBase
    match found := _of_bytes(raw.peek(MAGIC_BYTES)[:MAGIC_BYTES]):
        case Compression.NONE:
            yield raw
            return
        case Compression.GZIP:
            unpacked = _Gzip(raw)
        case Compression.ZSTD:
            unpacked = BlocksReader(_zstd_blocks(raw))
        case _:
            assert_never(found)
    with io.BufferedReader(unpacked, BUFFER_BYTES) as plain:
        yield plain


def head_of(stored: bytes, compression: Compression, most: int) -> bytes:
    """The first plain bytes of data that begins so, and is called so. Raises Damaged for what is not of that kind."""
    if compression is Compression.NONE or not stored:
        return stored[:most]
    if _of_bytes(stored) is not compression:
        raise Damaged(compression, "it does not begin so")
    if compression is Compression.GZIP:
        return _head_of_gzip(stored, most)
    found = b""
    try:
        for block in _zstd_blocks(io.BytesIO(stored)):
            found += block
            if len(found) >= most:
                break
    except Damaged:
        if not found:
            raise  # else what we have of the data ends here
    return found[:most]


def _head_of_gzip(stored: bytes, most: int) -> bytes:
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | _OF_GZIP)
    try:
        found = unpacking.decompress(stored, most)
    except zlib.error as error:
        raise Damaged(Compression.GZIP, str(error)) from error
    if not found and not unpacking.eof:
        raise Damaged(Compression.GZIP, "its first bytes are missing")
    return found


class _Gzip(io.RawIOBase):
    def __init__(self, raw: io.BufferedReader[Any]) -> None:
        self._file = gzip.GzipFile(fileobj=raw)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._file.readinto(buffer)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            # The library calls what follows the end of the data "not a gzipped file", as if the whole were none.
            surplus = str(error).startswith("Not a gzipped file")
            reason = "something else follows the compressed data" if surplus else str(error)
            raise Damaged(Compression.GZIP, reason) from error


def _zstd_blocks(raw: Readable) -> Iterator[bytes]:
    """Frame after frame. The library's own reader takes data that is cut short for whole."""
    frame: Any = None
    fed = b""
    while fed := fed or raw.read(FED_BYTES):
        if frame is None:
            frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            plain = frame.decompress(fed)
        except zstandard.ZstdError as error:
            raise Damaged(Compression.ZSTD, str(error)) from error
        fed = b""
        if frame.eof:
            fed, frame = frame.unused_data, None
        yield plain
    if frame is not None:
        raise Damaged(Compression.ZSTD, "its last frame has no end")
