"""The stored form of rows, zstd of MessagePack: the records of a part in one frame, a segment's input in two.

A frame is self-contained: a segment's frames can be read without any other part's. Of an input the rows' texts (bodies
and columns) are a frame of their own, behind everything else: who reads results has no use for them, and they are
nearly all of it. The rows of an uploaded file have in their place where in the file they lie (`wire.file_bodies`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
import zstandard

from batchwright.core.errors import BodyLost
from batchwright.core.records import Record, SegmentInput
from batchwright.wire.file_bodies import FileBodies, read_bodies

T = TypeVar("T")

ZSTD_LEVEL = 1
"""A fifth less time than level 3, for a tenth to a fifth more bytes."""
_LENGTH_BYTES = 4
"""Before an input's first frame: how long it is."""


ReadPiece = Callable[[str, int], bytes]
"""(file_id, number) -> that piece, packed."""


class _Texts(msgspec.Struct, array_like=True, tag=True, gc=False):
    """An input's second frame, where it is no FileBodies. The first is a SegmentInput whose rows have no texts."""

    bodies: list[bytes]
    columns: list[bytes]
    """Empty where no row has any."""


_encoder = msgspec.msgpack.Encoder()
_records = msgspec.msgpack.Decoder(list[Record])
_input = msgspec.msgpack.Decoder(SegmentInput)
_texts = msgspec.msgpack.Decoder(_Texts | FileBodies)


class _Codecs(threading.local):
    """zstd contexts may not be shared between threads, and cost more than a small frame to make."""

    def __init__(self) -> None:
        # With a checksum, 4 bytes: what was changed where it lies must not pass for what a vendor answered.
        self.compress = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_codecs = _Codecs()


def pack_records(records: Sequence[Record]) -> bytes:
    return _codecs.compress(_encoder.encode(records))


def unpack_records(frame: bytes) -> list[Record]:
    """Raises BodyLost, as all that opens frames does."""
    return _told(lambda: _records.decode(_codecs.decompress(frame)))


def last_records(frames: Iterable[bytes]) -> dict[int, Record]:
    """Of frames in (round, epoch, seq) order, the last record of each row that has one."""
    return {record.row: record for frame in frames for record in unpack_records(frame)}


def unpacked_size(frame: bytes) -> int:
    """How large a frame is when it is opened, from its head."""
    return _told(lambda: zstandard.frame_content_size(frame))


def pack_piece(text: bytes) -> bytes:
    """A piece of an uploaded file: its bytes alone, so that the file is its pieces, joined."""
    return _codecs.compress(text)


def unpack_piece(packed: bytes) -> bytes:
    return _told(lambda: _codecs.decompress(packed))


def pack_input(segment: SegmentInput) -> bytes:
    rows = segment.rows
    columns = [row.columns for row in rows]
    return _pack(segment, _Texts([row.body for row in rows], columns if any(columns) else []))


def pack_input_of_file(segment: SegmentInput, bodies: FileBodies) -> bytes:
    """`bodies` says where the rows' bodies lie; they have no columns."""
    return _pack(segment, bodies)


def _pack(segment: SegmentInput, texts: _Texts | FileBodies) -> bytes:
    bare = [msgspec.structs.replace(row, body=b"", columns=b"") for row in segment.rows]
    head = _codecs.compress(_encoder.encode(SegmentInput(segment.lanes, bare)))
    return len(head).to_bytes(_LENGTH_BYTES, "little") + head + _codecs.compress(_encoder.encode(texts))


def unpack_rows(packed: bytes) -> SegmentInput:
    """With empty bodies and columns, at a third of the cost."""
    return _told(lambda: _input.decode(_codecs.decompress(packed[_LENGTH_BYTES : _texts_at(packed)])))


def unpack_input(packed: bytes, read_piece: ReadPiece) -> SegmentInput:
    """`read_piece` is asked where the bodies lie in a file; what it raises comes through."""
    segment = unpack_rows(packed)
    texts = _told(lambda: _texts.decode(_codecs.decompress(packed[_texts_at(packed) :])))
    if isinstance(texts, FileBodies):
        file_id, first = texts.pieces.file_id, texts.pieces.first
        pieces = [unpack_piece(read_piece(file_id, first + number)) for number in range(texts.pieces.count)]
        bodies = read_bodies(texts, pieces[0] if len(pieces) == 1 else b"".join(pieces))
    else:
        bodies = texts.bodies
    for row, body in zip(segment.rows, bodies, strict=True):
        row.body = body
    if isinstance(texts, _Texts) and texts.columns:
        for row, columns in zip(segment.rows, texts.columns, strict=True):
            row.columns = columns
    return segment


def _texts_at(packed: bytes) -> int:
    return _LENGTH_BYTES + int.from_bytes(packed[:_LENGTH_BYTES], "little")


def _told(opened: Callable[[], T]) -> T:
    try:
        return opened()
    except (zstandard.ZstdError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BodyLost(
            f"Stored rows or answers of a batch are damaged ({error}). Were they changed where they lie, in the "
            "database or in its object store? Restore them from a version or a copy."
        ) from error
