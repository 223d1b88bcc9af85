"""What stands already where answers are to be written.

Answers are in the store and can be written again, so a file of them is replaced: the same command, a retry and a resume
write it anew. Anything else cannot be had back, and is replaced only where that was asked for.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from batchwright.runner.arrow_extra import has_pyarrow
from batchwright.runner.compression import Damaged, decompressed, head_of, split_name
from batchwright.runner.sniff import TYPED, format_of
from batchwright.wire.table import DELIMITERS
from batchwright.wire.table_lines import ADDED

HEAD_BYTES = 256 * 1024
"""Of a table's first line: tables have columns by the hundred at most."""
PIECE_BYTES = 1024 * 1024
BEGINS_BYTES = 64
"""Enough of a line to know it for an answer."""
_ANSWER_BEGINS = (b'{"ok":', b'{"id":"batch_req_')
_REQUEST_BEGINS = (b'{"custom_id":', b'{"method":')
"""Of what `--failed` writes; an input may look the same, and is no place for answers."""


@dataclass(frozen=True, slots=True)
class EarlierFile:
    head: bytes = field(repr=False)
    """How it begins, HEAD_BYTES of it."""
    lines: int
    is_table: bool
    """It holds answers, as a table."""
    is_lines: bool
    """It holds answers, one a line. Neither: it was replaced because that was asked for."""
    is_typed: bool = False
    """It is a table with types: `head` is the batch's id, `lines` are its rows."""

    def may_be(self, begins: bytes, lines: int, *, changed: bool) -> bool:
        """Whether it is what a file that begins so, with so many lines, was when it was written before. `changed`: its
        lines may be others by now."""
        if not self.is_table and not self.is_lines:
            return False
        if self.lines != lines:
            return False
        if self.is_typed:
            return self.head == begins
        shared = min(len(self.head), len(begins))
        return changed or self.head[:shared] == begins[:shared]


def holds_anything_else(path: Path, *, requests: bool) -> bool:
    """Whether a regular file is there that is not empty and was not written as answers (or, `requests`, as rows to be
    sent again), or holds a line that was not. Reads all of it, of a table the first line."""
    begins = _REQUEST_BEGINS if requests else _ANSWER_BEGINS
    try:
        with _opened(path) as file:
            head = file.read(HEAD_BYTES)
            if _is_typed(head):
                return requests or _typed(path) is None
            if _is_anything_else(head, requests=requests):
                return True
            if not head.startswith(begins):
                return False
            return any(line and not line.startswith(begins) for line in _line_begins(head, file))
    except (OSError, Damaged):
        return path.is_file() and path.stat().st_size > 0


def _line_begins(head: bytes, file: BinaryIO) -> Iterator[bytes]:
    """The first bytes of each line, of what was read of a file and of the rest."""
    piece, held = head, b""
    while piece:
        *whole, rest = (held + piece).split(b"\n")
        yield from whole
        held = rest[:BEGINS_BYTES]
        piece = file.read(PIECE_BYTES)
    yield held


def begins_anything_else(stored: bytes, name: str, *, requests: bool) -> bool:
    """The same of an object of that name which begins with these bytes."""
    try:
        head = head_of(stored, split_name(name)[1], HEAD_BYTES)
    except Damaged:
        return True
    return _is_anything_else(head, requests=requests)


def _is_anything_else(head: bytes, *, requests: bool) -> bool:
    if requests:
        return bool(head) and not head.startswith(_REQUEST_BEGINS)
    return bool(head) and not head.startswith(_ANSWER_BEGINS) and not _is_table(head)


def look(path: Path) -> EarlierFile | None:
    """None: nothing is there that could be told of. Reads all of it."""
    lines, last = 0, b""
    try:
        with _opened(path) as file:
            if _is_typed(file.peek(HEAD_BYTES)):
                return _typed(path)
            piece = head = file.read(PIECE_BYTES)
            while piece:
                lines, last = lines + piece.count(b"\n"), piece[-1:]
                piece = file.read(PIECE_BYTES)
    except (OSError, Damaged):
        return None
    if not head:
        return None
    lines += last != b"\n"
    return EarlierFile(head[:HEAD_BYTES], lines, is_table=_is_table(head), is_lines=head.startswith(_ANSWER_BEGINS))


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    """Raises OSError for what is no regular file: a pipe would be waited for."""
    if not path.is_file():
        raise FileNotFoundError(path)
    with path.open("rb") as raw, decompressed(raw) as plain:
        yield plain


def _is_typed(head: bytes) -> bool:
    return bool(head) and format_of("", head) in TYPED


def _typed(path: Path) -> EarlierFile | None:
    """None for a table that was not written as answers, or that nobody here can read."""
    if not has_pyarrow():
        return None
    from batchwright.runner.arrow_files import written_of

    found = written_of(path)
    return (
        None if found is None else EarlierFile(found.batch_id, found.rows, is_table=True, is_lines=False, is_typed=True)
    )


def _is_table(head: bytes) -> bool:
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    for delimiter in DELIMITERS:
        names = next(csv.reader([first], delimiter=delimiter, strict=False), [])
        last = names[-len(ADDED) :]
        if len(last) == len(ADDED) and all(
            name == added or name.startswith(f"{added}_") for name, added in zip(last, ADDED, strict=True)
        ):
            return True
    return False
