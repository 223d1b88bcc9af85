"""Typed tables as they are stored: Parquet, Arrow's two IPC forms (Feather is the one with a footer), and data frames
that give themselves as an Arrow stream. Read in record batches, so that memory does not grow with a file.

Several of them, or a frame, become one IPC stream: what is read again and again, joined and digested is then bytes, as
of any other input.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from batchwright.core.errors import InputRefused, UsageError
from batchwright.runner.sniff import InputFormat
from batchwright.wire.arrow_rows import kept_column
from batchwright.wire.arrow_types import BATCH_ID
from batchwright.wire.arrow_values import as_kept

SLICE_ROWS = 500
SLICE_BYTES = 4 * 1024 * 1024
"""Turned into rows at once; of what a column takes, in both bounds."""
PAGE_BYTES = 256 * 1024
"""Read ahead of each Parquet column; without it a row group's whole column would be."""
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
FRAME_ROWS = 4_096
"""In a batch of the stream that a frame becomes, however the frame itself is cut: the same rows give the same bytes."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table that was opened."""

    schema: Any
    batches: Iterator[Any]
    """Record batches in order, none of them beyond SLICE_ROWS and about SLICE_BYTES. Raises InputRefused."""


@contextmanager
def open_table(file: BinaryIO, name: str, form: InputFormat) -> Iterator[Table]:
    """Raises InputRefused for what is damaged, encrypted or of another form. `file` stays open."""
    if form is InputFormat.ARROW_STREAM:
        watched = _Watched(file)
        with told(name):
            reader = pa.ipc.open_stream(watched)
            yield Table(reader.schema, _sliced(told_each(name, lambda: _whole_stream(reader, watched))))
        return
    with _seekable(file) as whole, told(name):
        if form is InputFormat.PARQUET:
            yield _open_parquet(whole, name)
        else:
            found = pa.ipc.open_file(whole)
            numbers = range(found.num_record_batches)
            yield Table(found.schema, _sliced(told_each(name, lambda: map(found.get_batch, numbers))))


def _whole_stream(reader: Any, watched: _Watched) -> Iterator[Any]:
    """pyarrow takes a stream that breaks off between two batches for whole, and passes over what follows its end."""
    yield from reader
    if watched.tail != END_OF_STREAM:
        raise pa.ArrowInvalid("its end is missing")
    if watched.read(1):
        raise pa.ArrowInvalid("something else follows its end")


class _Watched(io.RawIOBase):
    """A file of which the last bytes that were read are known."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.tail = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found = self._file.read(size)
        self.tail = (self.tail + found[-8:])[-8:]
        return found


def _open_parquet(file: BinaryIO, name: str) -> Table:
    found = pq.ParquetFile(file, buffer_size=PAGE_BYTES, pre_buffer=False, page_checksum_verification=True)
    rows, size = found.metadata.num_rows, 0
    for number in range(found.metadata.num_row_groups):
        size += found.metadata.row_group(number).total_byte_size
    at_once = max(1, min(SLICE_ROWS, SLICE_BYTES * rows // max(1, size)))
    batches = told_each(name, lambda: found.iter_batches(batch_size=at_once, use_threads=False))
    return Table(found.schema_arrow, _sliced(batches))


def _sliced(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        at_once = max(1, min(SLICE_ROWS, SLICE_BYTES * batch.num_rows // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, at_once):
            yield batch.slice(start, at_once)


@contextmanager
def _seekable(file: BinaryIO) -> Iterator[BinaryIO]:
    """Parquet is read from its end: of one that was compressed as a whole, a copy."""
    if file.seekable():
        yield file
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        copy.seek(0)
        yield cast(BinaryIO, copy)


@contextmanager
def told(name: str) -> Iterator[None]:
    """What pyarrow raises of a table, in words."""
    try:
        yield
    except pa.ArrowException as error:
        raise InputRefused(_words(name, error)) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise InputRefused(_words(name, error)) from error  # pyarrow's own, which has no number


def told_each(name: str, begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """The same of an iterator, while what it gives is used elsewhere."""
    with told(name):
        found = iter(begin())
    while True:
        with told(name):
            batch = next(found, None)
        if batch is None:
            return
        yield batch


def _words(name: str, error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    if "encrypt" in text.lower() or "decrypt" in text.lower():
        return f"{name} is encrypted, so nothing was sent ({text}); decrypt it first"
    return f"{name} is damaged or cut short, so nothing was sent ({text}); write or copy it again"


# ----------------------------------------------------------------------------------------------- as a stream of bytes


class StreamBytes:
    """An IPC stream as blocks of bytes, one a batch."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self._collected = Collected()
        self._writer = pa.ipc.new_stream(self._collected, schema)

    def add(self, batch: Any) -> bytes:
        self._writer.write_batch(batch)
        return self._collected.take()

    def end(self) -> bytes:
        self._writer.close()
        return self._collected.take()


class Collected(io.RawIOBase):
    """What pyarrow writes into as into a file; taken out as it comes."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._blocks.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        found = b"".join(self._blocks)
        self._blocks.clear()
        return found


def frame_blocks(frame: Any) -> Iterator[bytes]:
    """A frame as an IPC stream. Raises UsageError for one that does not give itself as Arrow data after all, or has
    columns that cannot be kept."""
    try:
        if hasattr(frame, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(frame)
        else:
            batch = pa.record_batch(frame)
            reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
        schema = pa.schema([kept_column(field) for field in reader.schema])
        stream = StreamBytes(schema)
        for piece in _regular(reader, schema):
            yield stream.add(piece)
        yield stream.end()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError(f"the {type(frame).__name__} cannot be read as Arrow data: {error}") from error


def _regular(batches: Iterable[Any], schema: Any) -> Iterator[Any]:
    """The same rows in batches of FRAME_ROWS: how a frame is cut into chunks changes no byte."""
    held: list[Any] = []
    count = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, FRAME_ROWS - count)
            columns = [as_kept(column, field.type) for column, field in zip(piece.columns, schema, strict=True)]
            held.append(pa.RecordBatch.from_arrays(columns, schema=schema))
            start, count = start + piece.num_rows, count + piece.num_rows
            if count == FRAME_ROWS:
                yield pa.concat_batches(held)
                held, count = [], 0
    if held:
        yield pa.concat_batches(held)


# ---------------------------------------------------------------------------------------------- what was written before


@dataclass(frozen=True, slots=True)
class WrittenTable:
    batch_id: bytes
    rows: int


def written_of(path: Path) -> WrittenTable | None:
    """Of a file of answers, whose they are; None for any other table, and for one that cannot be read."""
    try:
        with path.open("rb") as file, told(path.name):
            if file.peek(4).startswith(b"PAR1"):
                found = pq.ParquetFile(file)
                schema, rows = found.schema_arrow, found.metadata.num_rows
            else:
                reader = pa.ipc.open_file(file)
                schema = reader.schema
                rows = sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
    except (InputRefused, OSError):
        return None
    batch_id = (schema.metadata or {}).get(BATCH_ID)
    return None if batch_id is None else WrittenTable(batch_id, rows)
