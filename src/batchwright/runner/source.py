"""A rows file (or standard input, or rows from the library) as chunks of checked rows, in memory that does not grow.

JSONL (`.jsonl`, `.ndjson`, `.json`) or one JSON array, CSV (`.csv`), TSV (`.tsv`, `.tab`), Parquet and Arrow, each also
compressed with gzip or zstd (told by its first bytes); any other name is told by its content. Every line (of an array
or a typed table every row) becomes a row, a finding, is blank, or is left out: rows + blank + rows left out = lines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, assert_never

from batchwright.core.batch_spec import Destination
from batchwright.core.errors import Finding, InputRefused, UsageError
from batchwright.core.object_urls import object_url
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import SourceRow
from batchwright.runner.arrow_extra import is_frame, typed_rows
from batchwright.runner.compression import Damaged
from batchwright.runner.custom_ids import MAX_REPEATED, CustomIds, FirstLines, repeat_of
from batchwright.runner.joining import placed
from batchwright.runner.left_out import LeftOutRows
from batchwright.runner.object_inputs import OpenObjects, open_objects_input
from batchwright.runner.row_files import digest_of_files
from batchwright.runner.sniff import TYPED, InputFormat, fields_of_first, format_of, refuse_foreign, refuse_one_object
from batchwright.runner.spool import HEAD_BYTES, Input, files_of, open_input, opened
from batchwright.runner.validation import Collector, ValidationReport, empty, refuse, without_rows
from batchwright.wire.json_text import BOM
from batchwright.wire.line_reader import LongLine, read_lines
from batchwright.wire.problems import Problem
from batchwright.wire.row_elements import BrokenArray, read_elements
from batchwright.wire.rows import KEPT_LINE_BYTES, RowDecoder
from batchwright.wire.table import BadTable, EmptyTable, TableDecoder

ANYWHERE = Destination(vendor="*", base_url="", models=("*",))
"""Takes rows of every model; `*` is no name that a vendor can have."""
CHUNK_ROWS = 500
CHUNK_BYTES = 4 * 1024 * 1024
"""A chunk ends at either bound; a single longer row is a chunk of its own."""


def open_source(
    source: str | Path | Iterable[object],
    options: RowOptions,
    *,
    skip_invalid: bool = False,
    spool_dir: Path | None = None,
    stdin: BinaryIO | None = None,
    objects: OpenObjects | None = None,
) -> Source:
    """Opens an input and looks at its beginning.

    `objects`: where `source` names an object, or a prefix of them, by its URL, what reads it.

    `spool_dir`: where copies of what can be read only once and runs of hashes go; None is the system's temporary
    folder. Raises UsageError (no such file, a folder, no table, a template that names a missing column) and
    InputRefused (empty, one JSON array, a foreign format).
    """
    # Rows of the library are as `spool` writes them: a text that is no JSON is a bad row and no table's header.
    known = None if isinstance(source, str | Path) or is_frame(source) or files_of(source) else InputFormat.JSONL
    found = _open_input(source, spool_dir, stdin, objects)
    try:
        return Source(found, _name_of(source), options, format=known, skip_invalid=skip_invalid, spool_dir=spool_dir)
    except BaseException:
        found.close()
        raise


def _open_input(
    source: str | Path | Iterable[object],
    spool_dir: Path | None,
    stdin: BinaryIO | None,
    objects: OpenObjects | None,
) -> Input:
    url = object_url(source)
    if url is None:
        return open_input(source, spool_dir, stdin if stdin is not None else sys.stdin.buffer)
    if objects is None:
        raise UsageError(f"{url}: objects cannot be read here; expected the path of a file")
    return open_objects_input(url, objects(), spool_dir)


class Source:
    """One input, made by `open_source`. Use it as a context manager; read it once with `chunks` or `validate`.

    `lines`, `rows`, `blank`, `left_out` are final after that reading.
    """

    def __init__(
        self,
        found: Input,
        name: str,
        options: RowOptions,
        *,
        format: InputFormat | None,
        skip_invalid: bool,
        spool_dir: Path | None,
    ) -> None:
        self.name = name
        self.lines = 0
        """Physical lines; of a table its records below the header."""
        self.rows = 0
        self.blank = 0
        self.left_out = LeftOutRows()
        self.columns: tuple[str, ...] = ()
        """A table's columns that are kept; with prompts made of columns also the fields of the first JSONL row."""
        self.delimiter = ""
        """What separates a table's columns, where that is no comma and its name says nothing of it; empty elsewhere."""
        self.marked = False
        """A table begins with a byte-order mark."""
        self.guessed = ""
        """A table's column that is sent because no --prompt says what to ask; empty elsewhere."""
        self.arrow_schema = ""
        """A typed table's columns, as `BatchSpec` keeps them."""
        self._note = ""
        """How a typed table of requests is read."""
        self._input = found
        self._options = options
        self._skip_invalid = skip_invalid
        self._spool_dir = spool_dir
        head = self._read_head()
        refuse_foreign(name, head)
        self.format = format or format_of(name, head)
        if self.format in (InputFormat.JSONL, InputFormat.ARRAY):
            refuse_one_object(name, head)
            decoder = RowDecoder(options)
            self.columns = fields_of_first(head) if options.makes_prompts else ()
            if self.columns:
                decoder.check_select(self.columns)
            if self.columns and not skip_invalid:
                # A template that does not fit the first row fits none: said once, not once a row.
                decoder.find_templates(self.columns)
        elif self.format in TYPED:
            if not head:
                raise empty(name, 0)
            with opened(found) as file, typed_rows(file, self.name, self.format, options) as (_, typed):
                self.columns, self.guessed = typed.columns, typed.guessed
                self.arrow_schema, self._note = typed.kept_text, typed.note
        else:
            with opened(found) as file:
                table = self._open_table(file)
            self.columns, self.guessed = table.columns, table.guessed
            # A table of tabs that is named so becomes a .csv, which is one of commas.
            known = self.format is InputFormat.TSV or table.delimiter == ","
            self.delimiter, self.marked = "" if known else table.delimiter, head.startswith(BOM)

        self.columns = options.select or self.columns

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._input.close()

    @property
    def input_digest(self) -> str:
        """Hex SHA-256 of the input as stored (compressed, if it is). Known before any row is read."""
        return self._input.digest()

    @cached_property
    def files_digest(self) -> str:
        """Of what the rows' pictures are now, known by reading them all; empty where there are none."""
        return digest_of_files(self._pass(None)) if self._options.images is not None else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of how this input is read: a guess, with the way to say it otherwise."""
        if self.format is InputFormat.ARRAY:
            return (f"{self.name} is one JSON array: line 3 stands for its third row.",)
        if self._note:
            return (self._note,)
        if self.guessed in ("", "prompt"):  # a column of that name is no guess
            return ()
        return (
            f"No --prompt given: the column {self.guessed} is sent as it is. To ask otherwise: -t 'Text {{column}}'.",
        )

    def chunks(self) -> Iterator[list[SourceRow]]:
        """The rows in order, at most CHUNK_ROWS and about CHUNK_BYTES at a time.

        From the first row with a finding on, nothing is given out any more; the rest is only read to find the other
        faults, then InputRefused is raised. With `skip_invalid` every row is given out, those with a finding too.
        InputRefused also for an empty input, damaged compressed data, and a file that was changed while it was read.
        """
        if self._skip_invalid:
            yield from self._marked_chunks()
            return
        collector = Collector()
        with CustomIds(self._spool_dir) as ids:
            for rows in self._pass(ids):
                collector.check(rows)
                if not collector.total:
                    yield rows
            self._find_repeated(ids, collector)
        if collector.total:
            raise refuse(self._report(collector))

    def _marked_chunks(self) -> Iterator[list[SourceRow]]:
        """With skip_invalid: repeated ids must be known before the first row is given out, so it is read twice."""
        with CustomIds(self._spool_dir) as ids:
            for _ in self._pass(ids):
                pass
            repeated = self._repeated(ids)
        first = FirstLines(repeated)
        for rows in self._pass(None):
            for row in rows if repeated or self._input.marks else ():
                finding = repeat_of(row, first)
                if finding is not None and row.finding is None:
                    row.finding, row.lane = finding, ""
                    row.row.body = row.row.body[:KEPT_LINE_BYTES]
                if row.finding is not None:
                    row.finding = placed(row.finding, self._input.marks)
            yield rows

    def look(self) -> Iterator[list[SourceRow]]:
        """The rows as `chunks` will give them out, those with a finding too, to be looked at before; reads the whole
        input. Raises InputRefused where it cannot be read."""
        return self._marked_chunks() if self._skip_invalid else self._pass(None)

    def models(self) -> Iterator[set[str]]:
        """The models of the rows that can be sent, as they are named or get one by --model, a chunk at a time; reads
        the whole input. Raises InputRefused where it cannot be read."""
        anywhere = replace(self._options, destinations=(ANYWHERE,), routes={})
        again = Source(
            self._input, self.name, anywhere, format=self.format, skip_invalid=True, spool_dir=self._spool_dir
        )
        for rows in again._pass(None):
            yield {row.row.named_model for row in rows if row.finding is None}

    def validate(self) -> ValidationReport:
        """Reads the whole input and says what is wrong with it and what would be sent; gives out nothing.

        Raises InputRefused only for what cannot be read as one input: empty, damaged, changed meanwhile, joined with
        itself.
        """
        collector = Collector()
        with CustomIds(self._spool_dir) as ids:
            for rows in self._pass(ids):
                collector.add(collector.check(rows))
            self._find_repeated(ids, collector)
        return self._report(collector)

    # -------------------------------------------------------------------------------------------------- one reading

    def _pass(self, ids: CustomIds | None) -> Iterator[list[SourceRow]]:
        """Reads the input once. Sets `lines`, `rows`, `blank` and `left_out` anew."""
        self.lines = self.rows = self.blank = 0
        self.left_out = LeftOutRows()
        try:
            with opened(self._input) as file:
                for chunk in self._chunked(self.left_out.others(self._read(file), self._options)):
                    if ids is not None:
                        ids.add([row.row.custom_id for row in chunk if row.row.custom_id is not None])
                    yield chunk
        except Damaged as error:
            raise self._damaged(f"after line {self.lines:,}", error) from error
        except OSError as error:
            raise InputRefused(f"{self.name}: cannot be read after line {self.lines:,}: {error}") from error
        if self._input.changed():
            raise InputRefused(f"{self.name} was changed while it was read, so nothing was sent; run it again")
        if not self.rows:
            if self.left_out.count:
                raise InputRefused(f"{self.name}: {self.left_out.texts(0)[0]}")
            if self.format is InputFormat.ARRAY:
                raise without_rows(self.name, "is an array without rows")
            if self.format is InputFormat.JSONL:
                raise empty(self.name, self.lines)
            what = "is a table without rows" if self.format in TYPED else "has a header and nothing below it"
            raise without_rows(self.name, what)

    def _chunked(self, found: Iterator[SourceRow]) -> Iterator[list[SourceRow]]:
        """Rows in chunks, as many as --limit allows; counts them."""
        limit = self._options.limit
        pending: list[SourceRow] = []
        size = 0
        for row in found:
            pending.append(row)
            size += len(row.row.body) + len(row.row.columns)
            if len(pending) >= CHUNK_ROWS or size >= CHUNK_BYTES:
                self.rows += len(pending)
                yield pending
                pending, size = [], 0
            if limit and self.rows + len(pending) == limit:
                break
        if pending:
            self.rows += len(pending)
            yield pending

    def _read(self, file: BinaryIO) -> Iterator[SourceRow]:
        match self.format:
            case InputFormat.JSONL:
                return self._read_jsonl(file)
            case InputFormat.ARRAY:
                return self._read_array(file)
            case InputFormat.CSV | InputFormat.TSV:
                return self._read_table(file)
            case InputFormat.PARQUET | InputFormat.ARROW | InputFormat.ARROW_STREAM:
                return self._read_typed(file)
            case _:
                assert_never(self.format)

    def _read_array(self, file: BinaryIO) -> Iterator[SourceRow]:
        decoder = RowDecoder(self._options)
        try:
            for elements in read_elements(file, self._options.max_row_bytes):
                for element in elements:
                    self.lines += 1
                    yield decoder.decode(element, self.lines)
        except BrokenArray as error:
            raise self._refuse_whole(error.row, "json_array", error.message, place="row") from error

    def _read_jsonl(self, file: BinaryIO) -> Iterator[SourceRow]:
        decoder = RowDecoder(self._options)
        for lines in read_lines(file, self._options.max_row_bytes):
            for line in lines:
                self.lines += 1
                if isinstance(line, LongLine):
                    yield self._too_long(decoder, line)
                # A line that begins an object, as nearly all do, is told from a blank one by its first byte.
                elif line[:1] != b"{" and (not line or line.isspace() or line.rstrip() == BOM):
                    self.blank += 1
                else:
                    yield decoder.decode(line, self.lines)

    def _read_table(self, file: BinaryIO) -> Iterator[SourceRow]:
        for row in self._open_table(file):
            self.lines += 1
            if row is None:
                self.blank += 1
            else:
                yield row

    def _read_typed(self, file: BinaryIO) -> Iterator[SourceRow]:
        with typed_rows(file, self.name, self.format, self._options) as (table, rows):
            for batch in table.batches:
                for row in rows.rows(batch, self.lines + 1):
                    self.lines += 1
                    yield row

    def _open_table(self, file: BinaryIO) -> TableDecoder:
        try:
            delimiter = "\t" if self.format is InputFormat.TSV else ""
            return TableDecoder(self._text_lines(file), self._options, delimiter=delimiter)
        except EmptyTable:
            raise empty(self.name, 0) from None
        except BadTable as error:
            raise BadTable(f"{self.name}: {error}") from None

    def _text_lines(self, file: BinaryIO) -> Iterator[str]:
        number = 0
        for lines in read_lines(file, self._options.max_row_bytes):
            for line in lines:
                number += 1
                if isinstance(line, LongLine):
                    problem = _long_line(line, self._options.max_row_bytes)
                    raise self._refuse_whole(number, problem.code, problem.message)
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise self._refuse_whole(
                        number,
                        "invalid_utf8",
                        f"byte 0x{line[error.start]:02x} is not UTF-8, so the table is of another encoding "
                        "(Windows-1252?); convert it first: iconv -f WINDOWS-1252 -t UTF-8",
                    ) from None
                yield (text.removeprefix("\ufeff") if number == 1 else text) + "\n"

    def _too_long(self, decoder: RowDecoder, line: LongLine) -> SourceRow:
        return decoder.refuse(line.head, self.lines, [_long_line(line, self._options.max_row_bytes)])

    def _refuse_whole(self, line: int, code: str, message: str, *, place: str = "line") -> InputRefused:
        finding = Finding(line=line, code=code, message=message)
        return InputRefused(f"{self.name}: {place} {line}: {message}", (finding,))

    def _read_head(self) -> bytes:
        try:
            with opened(self._input) as file:
                return file.read(HEAD_BYTES)
        except Damaged as error:
            raise self._damaged("near its start", error) from error
        except OSError as error:
            raise InputRefused(f"{self.name}: cannot be read: {error}") from error

    def _damaged(self, where: str, error: Damaged) -> InputRefused:
        return InputRefused(
            f"{self.name}: the {error.compression.value} data is cut short or damaged {where}, so nothing was sent "
            f"({error.reason}); copy or compress the file again"
        )

    # ------------------------------------------------------------------------------------------------- repeated ids

    def _repeated(self, ids: CustomIds) -> frozenset[int]:
        repeated = ids.repeated()
        if len(repeated) > MAX_REPEATED:
            raise InputRefused(
                f"{self.name}: more than {MAX_REPEATED:,} custom_ids occur more than once, so nothing was sent; "
                "was the file joined with itself?"
            )
        return repeated

    def _find_repeated(self, ids: CustomIds, collector: Collector) -> None:
        """Reads the input again if there are repeated ids, to name the lines."""
        repeated = self._repeated(ids)
        if not repeated:
            return
        first = FirstLines(repeated)
        for rows in self._pass(None):
            for row in rows:
                finding = repeat_of(row, first)
                if finding is not None:
                    collector.repeat(row, finding)

    def _report(self, collector: Collector) -> ValidationReport:
        counted = collector.report(self.name, self._input.marks)
        return replace(
            counted,
            lines=self.lines,
            rows=self.rows,
            blank=self.blank,
            left_out=self.left_out.count,
            columns=self.columns,
        )


def _long_line(line: LongLine, limit: int) -> Problem:
    return Problem("row_too_large", f"the line has {line.size:,} bytes; a row may have at most {limit:,}")


def _name_of(source: str | Path | Iterable[object]) -> str:
    if isinstance(source, str | Path):
        return "standard input" if str(source) == "-" else as_text(Path(source).name)  # of a URL, too
    return "rows"


def as_text(path: str | Path) -> str:
    """A path for people and for the store: what of it is no UTF-8 stands as an escape."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
