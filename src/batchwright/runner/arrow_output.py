"""Answers as a typed table: Parquet, or Arrow's IPC file (Feather is the same, compressed).

Rows are gathered until a row group is full, so that memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from batchwright.core.rows import RowView
from batchwright.ports.batches import BatchStatus
from batchwright.runner.arrow_files import Collected
from batchwright.wire.arrow_lines import ADDED, ArrowLines, has_embeddings
from batchwright.wire.output_lines import OutputFormat

GROUP_ROWS = 20_000
GROUP_BYTES = 8 * 1024 * 1024
"""A row group ends at either bound: enough for a reader to skip by, and all that is held of a file. An IPC file's
record batches are cut the same way."""
FEW_VALUES = ("finish_reason", "flag", "error_kind", "error_code", "vendor", "answer_model")
"""Added columns that say the same again and again, and are written as a dictionary."""


class TypedRows:
    """Writes one file; what it returns are the file's next bytes."""

    def __init__(self, form: OutputFormat, status: BatchStatus) -> None:
        self._form, self._status = form, status
        self._lines: ArrowLines | None = None
        self._writer: Any = None
        self._collected = Collected()
        self._held: list[Any] = []
        self._held_rows = self._held_bytes = 0

    head = b""

    def rows(self, views: Sequence[RowView]) -> bytes:
        lines = self._lines or self._begin(views)
        for some in _pieces(views):
            batch = lines.batch(some)
            self._held.append(batch)
            self._held_rows += batch.num_rows
            self._held_bytes += batch.nbytes
            if self._held_rows >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
                self._write_group()
        return self._collected.take()

    def end(self) -> bytes:
        if self._writer is None:
            self._begin(())
        self._write_group()
        self._writer.close()
        return self._collected.take()

    def _begin(self, views: Sequence[RowView]) -> ArrowLines:
        """A file has one schema, known from its first rows."""
        spec = self._status.spec
        embeddings = has_embeddings(spec, views)
        self._lines = ArrowLines(self._status.batch_id, spec, embeddings=embeddings)
        self._writer = _writer(self._form, self._collected, self._lines.schema)
        return self._lines

    def _write_group(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held)
        self._held, self._held_rows, self._held_bytes = [], 0, 0
        if self._form is OutputFormat.PARQUET:
            self._writer.write_table(table, row_group_size=table.num_rows)
        else:
            self._writer.write_table(table.combine_chunks())


def _pieces(views: Sequence[RowView]) -> Iterator[Sequence[RowView]]:
    """Neighbours of a group's bytes together: a column of large answers has room for 2 GiB in one batch."""
    begin = size = 0
    for position, view in enumerate(views):
        size += len(view.input.columns) + (len(view.record.body) if view.record is not None else 0)
        if size > GROUP_BYTES and position > begin:
            yield views[begin:position]
            begin, size = position, 0
    yield views[begin:]


def _writer(form: OutputFormat, out: Any, schema: Any) -> Any:
    if form is OutputFormat.PARQUET:
        few = [name for name in schema.names if name in FEW_VALUES and name in ADDED]
        return pq.ParquetWriter(out, schema, compression="zstd", use_dictionary=few)
    compression = "lz4" if form is OutputFormat.FEATHER else None
    return pa.ipc.new_file(out, schema, options=pa.ipc.IpcWriteOptions(compression=compression))
