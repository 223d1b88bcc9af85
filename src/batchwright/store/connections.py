"""Who may talk to the database: one writing connection behind a lock, a few reading ones beside it.

A database in memory has a single connection, so there readers take the writer's lock; everything else is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError

from batchwright.core.errors import StoreError
from batchwright.store import dialect


class Connections:
    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._name = "in memory" if path is None else str(path)
        self._lock = threading.RLock()
        self._write_engine = dialect.writer_engine(path)
        self._read_engine = None if path is None else dialect.reader_engine(path)
        self._closed = False
        with self._explained():
            self._writer = self._write_engine.connect()
        self._mark = _mark(path)
        self._version = 0
        self._look_lock = threading.Lock()
        self._looker: Connection | None = None

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction on the writing connection: committed when the block ends, rolled back if it raises."""
        with self._lock, self._explained():
            self._check_open()
            with self._writer.begin():
                yield self._writer

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One transaction that sees one moment and blocks no writer."""
        if self._read_engine is None:
            with self.write() as connection:
                yield connection
            return
        with self._explained():
            self._check_open()
            with self._read_engine.connect() as connection, connection.begin():
                yield connection

    def give_back_pages(self) -> None:
        """Returns some pages that deleted blobs have left to the file system."""
        with self._lock, self._explained():
            self._check_open()
            dialect.give_back_pages(self._driver())

    def data_version(self) -> int:
        """Changes when another process has committed. Never waits for a writer: then it answers as the last time."""
        if not self._lock.acquire(blocking=False):
            return self._version
        try:
            self._check_open()
            self._version = dialect.data_version(self._driver())
            return self._version
        finally:
            self._lock.release()

    def changes(self) -> int:
        """Another number once anybody has committed, this process too. Never waits for a writer."""
        if self._read_engine is None:
            with self._lock:
                return dialect.rows_changed(self._driver())
        with self._look_lock, self._explained():
            self._check_open()
            if self._looker is None:
                # A connection is not told of its own commits: this one makes none.
                self._looker = self._read_engine.connect()
            driver = self._looker.connection.dbapi_connection
            assert driver is not None
            return dialect.data_version(driver)

    def _driver(self) -> DBAPIConnection:
        driver = self._writer.connection.dbapi_connection
        assert driver is not None
        return driver

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._looker is not None:
                self._looker.close()
            if self._read_engine is not None:
                self._read_engine.dispose()
            self._writer.close()
            self._write_engine.dispose()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("The store has been closed.")
        if _mark(self._path) != self._mark:
            # What is open goes on without a name: it would take answers that nobody finds again, and a new reader
            # would begin an empty file under the name.
            raise StoreError(
                f"The state file {self._name} is not there any more: it was deleted, moved or replaced while this "
                "command ran. Put it back, then the same command goes on; without it, it begins anew"
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            explained = dialect.explain(error, self._name)
            if explained is None:
                raise
            raise explained from error


def _mark(path: Path | None) -> tuple[int, int] | None:
    """Which file it is, whatever is written to it; None: there is none under this name."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
