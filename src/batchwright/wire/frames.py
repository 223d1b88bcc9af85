"""The stored form of rows: a segment's input and the records of a part, each one zstd frame of MessagePack.

Level 3 costs the same as 1 here and compresses better. A frame is self-contained: a segment's frames can be read
without any other part's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import msgspec
import zstandard

from batchwright.core.records import Record, SegmentInput

ZSTD_LEVEL = 3

_encoder = msgspec.msgpack.Encoder()
_records = msgspec.msgpack.Decoder(list[Record])
_input = msgspec.msgpack.Decoder(SegmentInput)


class _Codecs(threading.local):
    """zstd contexts may not be shared between threads, and cost more than a small frame to make."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_codecs = _Codecs()


def pack_records(records: Sequence[Record]) -> bytes:
    return _codecs.compress(_encoder.encode(records))


def unpack_records(frame: bytes) -> list[Record]:
    return _records.decode(_codecs.decompress(frame))


def last_records(frames: Iterable[bytes]) -> dict[int, Record]:
    """Of frames in (round, epoch, seq) order, the last record of each row that has one."""
    return {record.row: record for frame in frames for record in unpack_records(frame)}


def unpacked_size(frame: bytes) -> int:
    """How large a frame is when it is opened, from its head."""
    return zstandard.frame_content_size(frame)


def pack_input(segment: SegmentInput) -> bytes:
    return _codecs.compress(_encoder.encode(segment))


def unpack_input(frame: bytes) -> SegmentInput:
    return _input.decode(_codecs.decompress(frame))
