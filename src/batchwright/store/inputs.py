"""The rows of a segment as they were taken in, with their bodies from wherever they lie."""

from __future__ import annotations

from sqlalchemy import Connection

from batchwright.core.records import SegmentInput, SegmentKey
from batchwright.store import blobs
from batchwright.store.blobs import Span, input_key, piece_key
from batchwright.store.bodies import Reader
from batchwright.wire import frames


def find(connection: Connection, key: SegmentKey, created_at_ms: int) -> bytes | Span:
    """Packed, or where it lies. `created_at_ms`: of the batch, here and below. Raises KeyError if it is not there,
    which is a fault of the store."""
    return blobs.find(connection, input_key(*key, created_at_ms))


def unpack(connection: Connection, found: bytes | Span, reader: Reader) -> SegmentInput:
    """What `find` found, with bodies and columns. Raises Outside; KeyError as `find`."""

    def read_piece(file_id: str, number: int) -> bytes:
        return reader.bytes_of(blobs.find(connection, piece_key(file_id, number)))

    return frames.unpack_input(reader.bytes_of(found), read_piece)


def read_rows(connection: Connection, what: tuple[SegmentKey, int], reader: Reader) -> SegmentInput:
    """With empty bodies and columns: no piece of a file is touched. `what` is (segment, created_at_ms). Raises
    Outside; KeyError as `find`."""
    return frames.unpack_rows(reader.bytes_of(find(connection, *what)))
