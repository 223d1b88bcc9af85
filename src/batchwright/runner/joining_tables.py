"""Several typed tables as one: an IPC stream of the first one's columns, its batches those of each in turn."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import pyarrow as pa  # type: ignore[import-untyped]

from batchwright.core.errors import InputRefused, UsageError
from batchwright.runner.arrow_files import StreamBytes, Table, open_table
from batchwright.runner.blocks import BlocksReader
from batchwright.runner.compression import Damaged, decompressed
from batchwright.runner.joining import COPY_BYTES, Part, PartMark
from batchwright.runner.sniff import TYPED, format_of


def joined_tables(parts: Sequence[Part], marks: list[PartMark]) -> Iterator[bytes]:
    """As `joining.joined`."""
    stream: StreamBytes | None = None
    row = 1
    for part in parts:
        with _opened(part, parts[0]) as table:
            stream = stream or StreamBytes(pa.schema(list(table.schema)))
            marks.append(PartMark(part.name, row, 1))
            for batch in table.batches:
                row += batch.num_rows
                yield stream.add(_like(batch, stream.schema, (part.name, parts[0].name)))
    if stream is not None:
        yield stream.end()


@contextmanager
def _opened(part: Part, first: Part) -> Iterator[Table]:
    whole = (
        part.path.open("rb") if part.path is not None else io.BufferedReader(BlocksReader(part.blocks()), COPY_BYTES)
    )
    try:
        with whole, decompressed(whole) as plain:
            form = format_of(part.name, plain.peek(COPY_BYTES))
            if form not in TYPED:
                raise UsageError(
                    f"{part.name} is {form.name} and {first.name} a typed table: several files are one input, so they "
                    "must be of one kind"
                )
            with open_table(cast(BinaryIO, plain), part.name, form) as table:
                yield table
    except Damaged as error:
        raise InputRefused(f"{part.name}: {error}, so nothing was sent") from error


def _like(batch: Any, schema: Any, names: tuple[str, str]) -> Any:
    """With the first table's columns in their order; of another type only where no value changes by it."""
    if batch.schema.equals(schema):
        return batch
    own, first = batch.schema.names, schema.names
    if sorted(own) != sorted(first):
        differ = sorted(set(own) ^ set(first))
        raise InputRefused(f"{names[0]} has other columns than {names[1]}: {', '.join(differ)[:200]}")
    try:
        return pa.RecordBatch.from_arrays(
            [batch.column(field.name).cast(field.type) for field in schema], schema=schema
        )
    except (pa.ArrowException, KeyError) as error:
        raise InputRefused(f"{names[0]} has columns of other types than {names[1]}: {error}") from error
