"""Which earlier answer each row of an input gets, found on disk, in memory that does not grow with either side.

The input's requests go in first, by their hashes and in order. Then earlier rows are offered: an answer goes to the
first row with the same request that has none yet, so that equal rows take equal ones one to one and in order, and an
answer goes to one row (where rows shared one, each of them has it). What is kept of answers is those that were given to
a row.

A table in a temporary file, which is gone with this object and is no state: a process that dies begins anew.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from batchwright.core.records import Record
from batchwright.runner.spool import copying
from batchwright.wire.frames import pack_records, unpack_records

CACHE_KIB = 16 * 1024
"""Of the table's pages, in memory."""

_MAKE = """
CREATE TABLE request (row INTEGER PRIMARY KEY, hash BLOB, at INTEGER, size INTEGER);
CREATE TABLE given (batch TEXT, row INTEGER, PRIMARY KEY (batch, row)) WITHOUT ROWID;
CREATE TABLE without_answer (hash BLOB PRIMARY KEY, rows INTEGER NOT NULL) WITHOUT ROWID;
"""
_INDEX = "CREATE INDEX open_request ON request (hash) WHERE at IS NULL"
_FIND = "SELECT row FROM request WHERE hash = ? AND at IS NULL ORDER BY row LIMIT 1"
_GIVE = "UPDATE request SET at = ?, size = ? WHERE row = ?"
_NOTE = "INSERT OR IGNORE INTO given VALUES (?, ?)"
_LACK = "INSERT INTO without_answer VALUES (?, 1) ON CONFLICT (hash) DO UPDATE SET rows = rows + 1"
_AGAIN = """
SELECT coalesce(sum(min(rows, open)), 0), coalesce(sum(rows - min(rows, open)), 0)
FROM (SELECT rows, (SELECT count(*) FROM request AS r WHERE r.hash = w.hash AND r.at IS NULL) AS open
      FROM without_answer AS w)
"""
_ANSWERS = "SELECT row, hash, at, size FROM request WHERE at IS NOT NULL ORDER BY row"


@dataclass(frozen=True, slots=True)
class Given:
    """An earlier answer and the row that gets it."""

    row: int
    """Its position among all rows of the input."""
    hash: bytes
    record: Record


class Matching:
    """`add` all rows, `seal`, then `give` and `lack`; then `answers`. From one thread at a time."""

    def __init__(self) -> None:
        """Raises StoreError where the temporary folder cannot be written to, as all methods do."""
        self._rows = self._open = self._size = 0
        self._table = open_table(_MAKE)
        with told():
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._table.close()
        self._file.close()

    @property
    def open(self) -> int:
        """Rows that can be sent and have no answer yet."""
        return self._open

    def add(self, hashes: Iterable[bytes | None]) -> None:
        """The next rows of the input; None: one that is not to be sent, and gets nothing."""
        rows = [(self._rows + position, found) for position, found in enumerate(hashes)]
        self._rows += len(rows)
        self._open += sum(found is not None for _, found in rows)
        with told():
            self._table.executemany("INSERT INTO request (row, hash) VALUES (?, ?)", rows)

    def seal(self) -> None:
        """All rows are there."""
        with told():
            self._table.execute(_INDEX)

    def give(self, hash: bytes, record: Record) -> bool:
        """The answer of an earlier row; false: no row asks for it, or all that do have one, or that very answer was
        given to a row already, from where it was taken over."""
        with told():
            found = self._table.execute(_FIND, (hash,)).fetchone()
            if found is None or not self._table.execute(_NOTE, (record.reused, record.reused_row)).rowcount:
                return False
            packed = pack_records([record])
            self._file.write(packed)
            self._table.execute(_GIVE, (self._size, len(packed), found[0]))
        self._size += len(packed)
        self._open -= 1
        return True

    def lack(self, hash: bytes) -> None:
        """An earlier row that has no answer to give."""
        with told():
            self._table.execute(_LACK, (hash,))

    def lacking(self) -> tuple[int, int]:
        """(rows without an answer that are among those that `lack` told of, those of them that are in the input no
        more)."""
        with told():
            again, gone = self._table.execute(_AGAIN).fetchone()
        return again, gone

    def answers(self) -> Iterator[Given]:
        """In the order of the rows."""
        with told():
            self._file.flush()
            found = self._table.execute(_ANSWERS)
        while True:
            with told():
                row = found.fetchone()
                if row is None:
                    return
                number, hash_, at, size = row
                self._file.seek(at)
                packed = self._file.read(size)
            (record,) = unpack_records(packed)
            yield Given(number, hash_, record)


def open_table(make: str) -> sqlite3.Connection:
    """An empty table in a file of the temporary folder without a name: nobody else sees it, and no kill leaves it
    behind. It is filled in one transaction that nobody ends. Raises StoreError."""
    with told():
        table = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        table.executescript(f"PRAGMA journal_mode = OFF; PRAGMA cache_size = -{CACHE_KIB}; {make}")
        table.execute("BEGIN")
        return table


@contextmanager
def told() -> Iterator[None]:
    """Raises StoreError for what the table or the files cannot hold."""
    with copying(None):
        try:
            yield
        except sqlite3.OperationalError as error:  # the disk is full
            raise OSError(str(error)) from error
