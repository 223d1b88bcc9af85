"""The rows of a batch into files, in row order, streamed: memory does not grow with their number.

One pass writes the output and the file of rows without success and counts both (`gather`). Files appear whole or not
at all; of the two, neither appears unless both could be written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from batchwright.core import row_map
from batchwright.core.errors import UsageError
from batchwright.core.object_urls import ObjectURL
from batchwright.core.rows import RowView
from batchwright.ports.batches import BatchStatus
from batchwright.ports.row_files import FileUnusable
from batchwright.runner.arrow_extra import need_pyarrow
from batchwright.runner.compression import Compression, split_name
from batchwright.runner.destination_file import NoReaderYet, ObjectSink, Sink, descriptor_of, open_sink
from batchwright.runner.earlier_file import EarlierFile, look
from batchwright.runner.figures import plural
from batchwright.runner.gather import Gathered, gathering
from batchwright.runner.interrupts import Interrupted
from batchwright.runner.report import Written
from batchwright.runner.request import Delivery
from batchwright.runner.row_files import LocalFiles
from batchwright.runner.seams import Seams
from batchwright.wire.output_lines import TABLES, TYPED, OutputFormat, line_writer

_OF_SUFFIX = {
    ".csv": OutputFormat.CSV,
    ".parquet": OutputFormat.PARQUET,
    ".pq": OutputFormat.PARQUET,
    ".arrow": OutputFormat.ARROW,
    ".ipc": OutputFormat.ARROW,
    ".feather": OutputFormat.FEATHER,
}
TABLE_SUFFIXES = frozenset(_OF_SUFFIX)
NOT_WRITTEN = {".xlsx", ".xls", ".ods", ".tsv", ".bz2", ".xz", ".zip"}
"""Suffixes that promise a form which is not written: a file whose name lies is worse than an error."""


PIPE_LOOK_S = 0.2
"""Between two looks whether a named pipe has a reader."""


def format_of(delivery: Delivery) -> OutputFormat:
    """What was asked for, else by the output's suffix. Raises UsageError for a form that is not written."""
    names = [form.value for form in OutputFormat]
    if delivery.output_format:
        if delivery.output_format not in names:
            raise UsageError(f"--format {delivery.output_format}: expected one of {', '.join(names)}")
        found = OutputFormat(delivery.output_format)
    else:
        suffix = form_of_name(delivery.output)
        if suffix in NOT_WRITTEN:
            raise UsageError(
                f"-o {delivery.output}: {suffix} is not written; use .jsonl, .csv or .parquet, or give --format"
            )
        found = _OF_SUFFIX.get(suffix, OutputFormat.INFRAI)
    if found in TYPED:
        _check_typed(delivery.output, found)
    return found


def _check_typed(output: Path | ObjectURL | None, form: OutputFormat) -> None:
    need_pyarrow(f"{form.value} as the form of the answers")
    if output is not None and split_name(output.name)[1] is not Compression.NONE:
        plain = split_name(output.name)[0]
        raise UsageError(
            f"-o {output}: {form.value} is read from its end and compressed inside, so it is not compressed as a "
            f"whole; name it {plain}"
        )


class _RowsOut(Protocol):
    """What makes a file's bytes of rows."""

    head: bytes

    def rows(self, views: Sequence[RowView]) -> bytes: ...

    def end(self) -> bytes: ...


class _Lines:
    def __init__(self, form: OutputFormat, status: BatchStatus) -> None:
        self.head, self._line = line_writer(form, status.batch_id, status.spec)

    def rows(self, views: Sequence[RowView]) -> bytes:
        line = self._line
        return b"".join([line(view) for view in views])

    def end(self) -> bytes:
        return b""


def _rows_out(form: OutputFormat, status: BatchStatus) -> _RowsOut:
    if form not in TYPED:
        return _Lines(form, status)
    from batchwright.runner.arrow_output import TypedRows

    return TypedRows(form, status)


def form_of_name(path: Path | ObjectURL | None) -> str:
    """`.csv` of `answers.csv.gz`; empty for standard output."""
    return "" if path is None else Path(split_name(path.name)[0]).suffix.lower()


async def export(status: BatchStatus, delivery: Delivery, seams: Seams) -> tuple[Gathered, Written]:
    """Writes what `delivery` asks for. Raises OSError where a file cannot be written, Interrupted at an interrupt that
    comes meanwhile; no file is changed then."""
    gathered = gathering(status)
    seen = seams.interrupts.count
    failed_rows = 0
    form = format_of(delivery)
    writer = _rows_out(form, status)
    texts_of = _texts_of(delivery, status)
    earlier = await asyncio.to_thread(_earlier, delivery.output)
    if delivery.output is None:
        seams.display.close()  # a picture that vanishes later would take with it what is written after it
    with ExitStack() as opened:
        out = await _open(delivery.output, opened, seams)
        failed = await _open(delivery.failed_output, opened, seams) if delivery.failed_output is not None else None
        out.write(writer.head)
        begins, lines = writer.head, writer.head.count(b"\n")
        async for views in seams.batches.rows(status.batch_id, texts_of=texts_of):
            if seams.interrupts.count > seen:
                raise Interrupted
            gathered.add(views)
            written = writer.rows(views)
            out.write(written)
            if earlier is not None:
                lines += written.count(b"\n")
                if len(begins) < len(earlier.head):
                    begins += written
            if failed is not None:
                for request in _request_lines(views):
                    failed_rows += 1
                    failed.write(request)
            if delivery.output is not None:
                seams.display.writing(gathered.rows, status.total)
        out.write(writer.end())
        await asyncio.to_thread(_commit, [out] if failed is None else [out, failed])
    if form in TYPED:
        begins, lines = status.batch_id.encode(), gathered.rows
    if earlier is not None and not earlier.may_be(begins, lines, changed=bool(status.round)):
        seams.display.say(_replaced_text(earlier, delivery, (gathered.rows, status.batch_id)))
    return gathered, Written(
        output=delivery.output, rows=gathered.rows, failed_output=delivery.failed_output, failed_rows=failed_rows
    )


def _earlier(output: Path | ObjectURL | None) -> EarlierFile | None:
    """What is replaced. A stream that is open already is written on: nothing of it is."""
    return look(output) if isinstance(output, Path) and descriptor_of(output) is None else None


def _replaced_text(earlier: EarlierFile, delivery: Delivery, what: tuple[int, str]) -> str:
    """`what` was written: (rows, of this batch)."""
    rows, batch_id = what
    now = f"and now holds the {plural(rows, 'row')} of {batch_id}"
    if not earlier.is_table and not earlier.is_lines:
        return f"{delivery.output} held {plural(earlier.lines, 'line')} that were no answers, {now}. Those are gone."
    return (
        f"{delivery.output} held {plural(earlier.lines, 'line')} of other answers, {now}. If their batch is still "
        "here (`batchwright list`), `export` writes them again; if it was deleted, they are gone."
    )


def _texts_of(delivery: Delivery, status: BatchStatus) -> frozenset[int] | None:
    """Which rows' bodies and columns are written: the others need not be unpacked."""
    if format_of(delivery) in TABLES and status.spec.csv_columns:
        return None
    return row_map.NOT_SUCCESS_BYTES if delivery.failed_output is not None else frozenset()


def _request_lines(views: Sequence[RowView]) -> Iterator[bytes]:
    """Rows without success as input lines, one at a time, since their pictures come into them. Rows that were refused
    when they came in are none, and left out; so are those whose pictures are gone."""
    from batchwright.wire.openai_lines import request_line

    files = LocalFiles()
    for view in views:
        if row_map.is_success(view.byte):
            continue
        line = request_line(view)
        if line is not None and view.input.files:
            with suppress(FileUnusable):
                yield files.filled(replace(view.input, body=line))
        elif line is not None:
            yield line


async def _open(path: Path | ObjectURL | None, opened: ExitStack, seams: Seams) -> Sink:
    seen, told = seams.interrupts.count, False
    while True:
        try:
            sink = _object_sink(path, seams) if isinstance(path, ObjectURL) else open_sink(path)
        except NoReaderYet:
            if not told:
                told = True
                seams.display.say(f"Waiting for somebody to read from {path}.")
            with suppress(TimeoutError):
                await asyncio.wait_for(seams.interrupts.wait(seen), PIPE_LOOK_S)
            if seams.interrupts.count > seen:
                raise Interrupted from None
            continue
        opened.callback(sink.abandon)
        return sink


def _object_sink(url: ObjectURL, seams: Seams) -> Sink:
    if seams.objects is None:
        raise UsageError(f"{url}: objects cannot be written here; expected the path of a file")
    return ObjectSink(url, seams.objects().write(url))


def _commit(sinks: Sequence[Sink]) -> None:
    for sink in sinks:
        sink.prepare()
    for sink in sinks:
        sink.commit()
