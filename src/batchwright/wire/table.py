"""A table (CSV) on its way in: records -> `SourceRow`s, the table's own columns kept beside each.

The header names the columns. The prompt is the `--prompt` template or the template file, else the first column there
is of `prompt`, `question`, `input` and `text`. The only column with a meaning of its own is `custom_id` (not `id`:
those repeat, and a label must not). No column ever becomes a field of the body: a table of cars has a column `model`.

The delimiter is the one of comma, semicolon and tab that the header has most of, outside quotes.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import replace

from batchwright.core.column_names import listed
from batchwright.core.errors import UsageError
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import SourceRow
from batchwright.wire.problems import Problem
from batchwright.wire.row_shapes import MAX_CUSTOM_ID_CHARS
from batchwright.wire.rows import RowDecoder

PROMPT_COLUMNS = ("prompt", "question", "input", "text")
CUSTOM_ID = "custom_id"
MAX_COLUMNS = 2_000
"""Far above any table a person made; a header above it is not one."""

DELIMITERS = (",", ";", "\t")


class BadTable(UsageError):
    """The file as a whole is no table that can be read; the message says why."""


class EmptyTable(BadTable):
    """There is not even a header."""


class TableDecoder:
    """Reads one table. `lines` are its lines with their ends, decoded, a byte-order mark already removed.

    The header is read at once: BadTable if there is none or it does not name each column once, UsageError if a
    template names a column that is not there. Iterating gives each record; None stands for a blank line.
    """

    def __init__(self, lines: Iterable[str], options: RowOptions, *, delimiter: str = "") -> None:
        csv.field_size_limit(max(csv.field_size_limit(), options.max_row_bytes))
        source = iter(lines)
        first = ""
        self._skipped = 0
        """Physical lines before what the CSV reader was given: blank ones above the header."""
        for first in source:
            if first.strip():
                break
            self._skipped += 1
        if not first.strip():
            raise EmptyTable("the table is empty: a header with the columns' names is expected in its first line")
        self.delimiter = delimiter or _find_delimiter(first)
        self._text = ""
        """The physical line that the CSV reader was given last."""
        self._reader = csv.reader(self._given(first, source), delimiter=self.delimiter, strict=True)
        try:
            header = next(self._reader)
        except csv.Error as error:
            raise BadTable(f"the header cannot be read as CSV: {error}") from error
        self.columns: tuple[str, ...] = check_names(header)
        self.guessed = "" if options.makes_prompts else _default_column(self.columns)
        """The column that is sent because no --prompt says otherwise; empty where one does."""
        self._options = replace(options, prompt=f"{{{self.guessed}}}") if self.guessed else options
        self.decoder = RowDecoder(self._options)
        self.decoder.check_columns(self.columns)
        self._id_column = self.columns.index(CUSTOM_ID) if CUSTOM_ID in self.columns else -1

    def __iter__(self) -> Iterator[SourceRow | None]:
        reader = self._reader
        while True:
            line = self._skipped + reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield self._broken(line, error)
                continue
            yield self._decode(fields, line) if fields else None

    def _given(self, first: str, rest: Iterator[str]) -> Iterator[str]:
        yield first
        for text in rest:
            self._text = text
            yield text

    def _decode(self, fields: list[str], line: int) -> SourceRow:
        if len(fields) != len(self.columns):
            return self._ragged(fields, line)
        custom_id = fields[self._id_column] if self._id_column >= 0 else ""
        columns = dict(zip(self.columns, fields, strict=True))
        return self.decoder.fill_template(columns, line, custom_id or None)

    def _ragged(self, fields: list[str], line: int) -> SourceRow:
        if len(fields) > len(self.columns):
            remedy = "a field that holds the delimiter or a line break must be in double quotes"
        else:
            remedy = "an empty field needs its delimiter too"
        message = (
            f"{len(fields)} field{'s' if len(fields) != 1 else ''}, but the header has {len(self.columns)}; {remedy}"
        )
        return self._refuse_ragged(fields, line, message)

    def _refuse_ragged(self, fields: list[str], line: int, message: str) -> SourceRow:
        # What was read stays where it was read: a field too few is an empty one, and of too many the line has all.
        columns = dict.fromkeys(self.columns, "") | dict(zip(self.columns, fields, strict=False))
        # An id in the first column is right whatever went wrong in a later one; elsewhere it may be another's field.
        custom_id = fields[0][:MAX_CUSTOM_ID_CHARS] or None if self._id_column == 0 and fields else None
        problems = [Problem("ragged_row", message)]
        return self.decoder.refuse(
            self._joined(fields), line, problems, custom_id=custom_id, columns=self.decoder.kept(columns)
        )

    def _broken(self, line: int, error: csv.Error) -> SourceRow:
        limit = self._options.max_row_bytes
        if "field larger" in str(error):
            message = f"a field above the limit of {limit:,} bytes a row; is a closing quote missing?"
            return self.decoder.refuse(b"", line, [Problem("row_too_large", message)])
        return self._refuse_ragged(self._read_leniently(line), line, f"cannot be read as CSV: {error}")

    def _read_leniently(self, line: int) -> list[str]:
        """The fields of the broken record that began at this line, as far as they can be told; none where it went on
        over several lines (a quote that was never closed takes in others' lines)."""
        if self._skipped + self._reader.line_num != line:
            return []
        return next(csv.reader([self._text], delimiter=self.delimiter), [])

    def _joined(self, fields: list[str]) -> bytes:
        return self.delimiter.join(fields).encode("utf-8")


def _find_delimiter(header: str) -> str:
    outside = "".join(header.split('"')[::2])
    return max(DELIMITERS, key=outside.count)


def check_names(header: list[str]) -> tuple[str, ...]:
    """A table's columns. Raises BadTable unless each has a name of its own."""
    if len(header) > MAX_COLUMNS:
        raise BadTable(f"the header has {len(header):,} columns; at most {MAX_COLUMNS:,} are allowed")
    empty = [position for position, name in enumerate(header, start=1) if not name.strip()]
    if empty:
        raise BadTable(f"column {empty[0]} of the header has no name; each column needs one (header: {header[:20]})")
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise BadTable(f"the header names the column '{name}' twice; each column needs a name of its own")
        seen.add(name)
    return tuple(header)


def _default_column(columns: tuple[str, ...]) -> str:
    for name in PROMPT_COLUMNS:
        if name in columns:
            return name
    raise BadTable(
        f"read as a table, whose first line names its columns; none is called {', '.join(PROMPT_COLUMNS)}, so say what "
        f"to ask: "
        f"--prompt 'One word sentiment: {{{columns[-1]}}}'. The columns are: {listed(columns, '{{{}}}')}"
    )
