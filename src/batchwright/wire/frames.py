"""The stored form of rows, zstd of MessagePack: the records of a part in one frame, a segment's input in two.

A frame is self-contained: a segment's frames can be read without any other part's. Of an input the rows' texts (bodies
and columns) are a frame of their own, behind everything else: who reads results has no use for them, and they are
nearly all of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import msgspec
import zstandard

from batchwright.core.records import Record, SegmentInput

ZSTD_LEVEL = 1
"""A fifth less time than level 3, for a tenth to a fifth more bytes."""
_LENGTH_BYTES = 4
"""Before an input's first frame: how long it is."""


class _Texts(msgspec.Struct, array_like=True, gc=False):
    """An input's second frame. The first is a SegmentInput whose rows have none of this."""

    bodies: list[bytes]
    columns: list[bytes]
    """Empty where no row has any."""


_encoder = msgspec.msgpack.Encoder()
_records = msgspec.msgpack.Decoder(list[Record])
_input = msgspec.msgpack.Decoder(SegmentInput)
_texts = msgspec.msgpack.Decoder(_Texts)


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
    rows = segment.rows
    bare = [msgspec.structs.replace(row, body=b"", columns=b"") for row in rows]
    columns = [row.columns for row in rows]
    texts = _Texts([row.body for row in rows], columns if any(columns) else [])
    head = _codecs.compress(_encoder.encode(SegmentInput(segment.lanes, bare)))
    return len(head).to_bytes(_LENGTH_BYTES, "little") + head + _codecs.compress(_encoder.encode(texts))


def unpack_input(packed: bytes, *, texts: bool = True) -> SegmentInput:
    """Without `texts` every row has an empty body and empty columns, at a third of the cost."""
    texts_at = _LENGTH_BYTES + int.from_bytes(packed[:_LENGTH_BYTES], "little")
    segment = _input.decode(_codecs.decompress(packed[_LENGTH_BYTES:texts_at]))
    if texts:
        found = _texts.decode(_codecs.decompress(packed[texts_at:]))
        for row, body in zip(segment.rows, found.bodies, strict=True):
            row.body = body
        if found.columns:
            for row, columns in zip(segment.rows, found.columns, strict=True):
                row.columns = columns
    return segment
