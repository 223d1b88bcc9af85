"""The rows of a segment as they were taken in, with their bodies from wherever they lie."""

from __future__ import annotations

from sqlalchemy import Connection

from batchwright.core.records import SegmentInput, SegmentKey
from batchwright.store.blobs import TableBlobs, input_key, piece_key
from batchwright.wire import frames


def read(connection: Connection, key: SegmentKey) -> SegmentInput:
    """With bodies and columns. Raises KeyError if something of it is not there, which is a fault of the store."""
    blobs = TableBlobs(connection)

    def read_piece(file_id: str, number: int) -> bytes:
        return blobs.get(piece_key(file_id, number))

    return frames.unpack_input(blobs.get(input_key(*key)), read_piece)


def read_rows(connection: Connection, key: SegmentKey) -> SegmentInput:
    """With empty bodies and columns: no piece of a file is touched."""
    return frames.unpack_rows(TableBlobs(connection).get(input_key(*key)))
