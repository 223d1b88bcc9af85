"""What stands already where answers are to be written.

Answers are in the store and can be written again, so a file of them is replaced: the same command, a retry and a resume
write it anew. Anything else cannot be had back, and is replaced only where that was asked for.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from batchwright.wire.table_lines import ADDED

HEAD_BYTES = 256 * 1024
"""Of a table's first line: tables have columns by the hundred at most."""
_GZIP = 16
"""As zlib wants to be told of gzip's header."""
PIECE_BYTES = 1024 * 1024
_ANSWER_BEGINS = (b'{"ok":', b'{"id":"batch_req_')
_REQUEST_BEGINS = (b'{"custom_id":', b'{"method":')
"""Of what `--failed` writes; an input may look the same, and is no place for answers."""


@dataclass(frozen=True, slots=True)
class EarlierFile:
    lines: int
    """Of a table the rows have line ends inside of quotes too."""
    is_table: bool
    """It holds answers, as a table."""
    is_lines: bool
    """It holds answers, one a line. Neither: it was replaced because that was asked for."""


def holds_anything_else(path: Path, *, requests: bool) -> bool:
    """Whether a regular file is there that is not empty and was not written as answers (or, `requests`, as rows to be
    sent again)."""
    try:
        with _opened(path) as file:
            head = file.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return path.is_file() and path.stat().st_size > 0
    return _is_anything_else(head, requests=requests)


def begins_anything_else(stored: bytes, *, squeezed: bool, requests: bool) -> bool:
    """The same of an object that begins with these bytes; `squeezed`: its name says that they are gzip."""
    if not squeezed or not stored:
        return _is_anything_else(stored, requests=requests)
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | _GZIP)
    try:
        head = unpacking.decompress(stored, HEAD_BYTES)
    except zlib.error:
        return True
    return _is_anything_else(head, requests=requests) if head else not unpacking.eof


def _is_anything_else(head: bytes, *, requests: bool) -> bool:
    if requests:
        return bool(head) and not head.startswith(_REQUEST_BEGINS)
    return bool(head) and not head.startswith(_ANSWER_BEGINS) and not _is_table(head)


def look(path: Path) -> EarlierFile | None:
    """None: nothing is there that could be told of. Reads all of it."""
    lines, last = 0, b""
    try:
        with _opened(path) as file:
            piece = head = file.read(PIECE_BYTES)
            while piece:
                lines, last = lines + piece.count(b"\n"), piece[-1:]
                piece = file.read(PIECE_BYTES)
    except (OSError, EOFError, zlib.error):
        return None
    if not head:
        return None
    lines += last != b"\n"
    return EarlierFile(lines, is_table=_is_table(head), is_lines=head.startswith(_ANSWER_BEGINS))


def _opened(path: Path) -> BinaryIO:
    """Raises OSError for what is no regular file: a pipe would be waited for."""
    if not path.is_file():
        raise FileNotFoundError(path)
    # Both read bytes; the stubs of gzip say less of it.
    return gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")  # type: ignore[return-value]


def _is_table(head: bytes) -> bool:
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    names = next(csv.reader([first], strict=False), [])
    last = names[-len(ADDED) :]
    return len(last) == len(ADDED) and all(
        name == added or name.startswith(f"{added}_") for name, added in zip(last, ADDED, strict=True)
    )
