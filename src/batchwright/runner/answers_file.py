"""A file of answers as rows, in its order, in memory that does not grow: JSONL or CSV, compressed or not."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from batchwright.core.errors import UsageError
from batchwright.core.row_options import MAX_ROW_BYTES
from batchwright.runner.compression import Damaged, split_name
from batchwright.runner.spool import FileInput, opened
from batchwright.wire.answer_lines import AnswerRow, AnswerTable, NoAnswerLine, answer_of_line
from batchwright.wire.line_reader import LongLine, read_lines

MAX_LINE_BYTES = 2 * MAX_ROW_BYTES
"""A line holds the vendor's whole answer beside ours."""
TABLES = {".csv": ",", ".tsv": "\t"}


def is_answers_file(text: str) -> bool:
    """What was typed names a file, not a batch. Raises UsageError for a file that is not there."""
    if text.startswith("@"):
        return False
    if Path(text).is_file():
        return True
    if os.sep in text or Path(text).suffix:  # no id has either
        raise UsageError(f"{text}: there is no such file; expected a file of answers or the id of a batch")
    return False


def read_answers(path: Path) -> Iterator[AnswerRow]:
    """Raises UsageError, naming file and line, for what is no file of answers."""
    try:
        with opened(FileInput(path)) as file:
            suffix = Path(split_name(path.name)[0]).suffix.lower()
            yield from _read_table(path, file, TABLES[suffix]) if suffix in TABLES else _read_lines(path, file)
    except Damaged as error:
        raise UsageError(f"{path}: the compressed data is cut short or damaged ({error.reason})") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read_lines(path: Path, file: BinaryIO) -> Iterator[AnswerRow]:
    place = number = 0
    for lines in read_lines(file, MAX_LINE_BYTES):
        for line in lines:
            number += 1
            if isinstance(line, LongLine):
                raise UsageError(f"{path}: line {number:,} has more than {MAX_LINE_BYTES:,} bytes")
            if not line or line.isspace():
                continue
            try:
                yield answer_of_line(line, place)
            except NoAnswerLine as error:
                raise UsageError(f"{path}: line {number:,}: {error}") from None
            place += 1


def _read_table(path: Path, file: BinaryIO, delimiter: str) -> Iterator[AnswerRow]:
    csv.field_size_limit(sys.maxsize)
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
    try:
        reader = csv.DictReader(text, delimiter=delimiter)
        table = AnswerTable(reader.fieldnames or ())
        for place, fields in enumerate(reader):
            yield table.answer_of(fields, place)
    except NoAnswerLine as error:
        raise UsageError(f"{path}: {error}") from None
    except csv.Error as error:
        raise UsageError(f"{path}: {error}") from None
    finally:
        text.detach()
