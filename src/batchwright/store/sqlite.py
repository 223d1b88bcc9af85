"""A state file, as SQLite: one writing connection behind a lock, a few reading ones beside it.

SQLite must be 3.51.3 or newer: older ones can corrupt a WAL file when two connections write and checkpoint at once.
The `pysqlite3` wheel carries one; the interpreter's own module is used where that wheel does not exist and it is new
enough. A database in memory has a single connection, so there readers take the writer's lock; everything else is the
same.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool, StaticPool

from batchwright.core.errors import DiskFull, StoreError

T = TypeVar("T")

OLDEST_SQLITE = (3, 51, 3)
BUSY_TIMEOUT_MS = 30_000
"""Other processes write too; a checkpoint takes milliseconds, a round of 1,000 segments a fraction of a second."""
READERS = 4
WAL_LIMIT_BYTES = 64 * 1024 * 1024
"""What the write-ahead log is cut back to after it was checkpointed."""
VACUUM_PAGES = 2_000
"""Free pages given back to the file system by one sweep: 8 MiB."""


def load_sqlite() -> Any:
    """The DB-API module. Raises StoreError if there is none that is new enough."""
    found = []
    for name in ("pysqlite3.dbapi2", "sqlite3"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            found.append(f"{name} is not installed")
            continue
        if module.sqlite_version_info >= OLDEST_SQLITE:
            return module
        found.append(f"{name} has SQLite {module.sqlite_version}")
    wanted = ".".join(str(part) for part in OLDEST_SQLITE)
    raise StoreError(
        f"The state folder needs SQLite {wanted} or newer (older ones can damage a shared file), but "
        f"{' and '.join(found)}. Install a newer one: pip install pysqlite3"
    )


def _writer_engine(path: Path | None) -> Engine:
    """The engine of the one writing connection; `path` None is a database in memory."""
    sqlite_module = load_sqlite()
    target = ":memory:" if path is None else str(path)

    def connect() -> Any:
        connection = sqlite_module.connect(
            target, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
        )
        # auto_vacuum must come first: it can only be chosen while the file is empty.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        if path is not None:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    engine = create_engine(
        "sqlite://", module=sqlite_module, creator=connect, poolclass=StaticPool, hide_parameters=True
    )
    event.listen(engine, "begin", _begin_immediate)
    return engine


def _reader_engine(path: Path) -> Engine:
    """The engine of a few connections that can only read, each transaction on a snapshot of its own."""
    sqlite_module = load_sqlite()

    def connect() -> Any:
        connection = sqlite_module.connect(
            str(path), timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA query_only = ON")
        return connection

    engine = create_engine(
        "sqlite://",
        module=sqlite_module,
        creator=connect,
        poolclass=QueuePool,
        pool_size=READERS,
        max_overflow=64,
        hide_parameters=True,
    )
    event.listen(engine, "begin", _begin_deferred)
    return engine


def _begin_immediate(connection: Connection) -> None:
    # A deferred transaction that turns into a writer later can fail instead of waiting for the other writer.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begin_deferred(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN DEFERRED")


class SqliteConnections:
    """Implements `store.connections.Connections`; `path` None is a database in memory."""

    upgrades_itself = True
    keeps_days = False

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file = "in memory" if path is None else str(path)
        self._lock = threading.RLock()
        self._driver_error: type[Exception] = load_sqlite().Error
        self._write_engine = _writer_engine(path)
        self._read_engine = None if path is None else _reader_engine(path)
        self._closed = False
        with self._explained():
            self._writer = self._write_engine.connect()
        self._mark = _mark(path)
        self._version = 0
        self._look_lock = threading.Lock()
        self._looker: Connection | None = None

    @property
    def name(self) -> str:
        return f"The state file {self._file}"

    @property
    def elsewhere(self) -> str:
        return "move the file away, or name another folder with BATCHWRIGHT_HOME"

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction on the writing connection: committed when the block ends, rolled back if it raises."""
        with self._lock, self._explained():
            self._check_open()
            with self._writer.begin():
                yield self._writer

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Once: whoever writes has begun as the only writer, so that nothing can be in its way."""
        with self.write() as connection:
            return work(connection)

    def look(self, work: Callable[[Connection], T]) -> T:
        with self.read() as connection:
            return work(connection)

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
            _give_back_pages(self._driver())

    def sweep_days(self, now_ms: int, keep_ended_ms: int) -> int:
        """All bodies are in one table, and go by rows."""
        return 0

    def data_version(self) -> int:
        """Changes when another process has committed. Never waits for a writer: then it answers as the last time."""
        if not self._lock.acquire(blocking=False):
            return self._version
        try:
            with self._explained():
                self._check_open()
                self._version = _data_version(self._driver())
                return self._version
        finally:
            self._lock.release()

    def changes(self) -> int:
        """Another number once anybody has committed, this process too. A state file's never waits for a writer."""
        if self._read_engine is None:
            with self._lock, self._explained():
                return _rows_changed(self._driver())
        with self._look_lock, self._explained():
            self._check_open()
            if self._looker is None:
                # A connection is not told of its own commits: this one makes none.
                self._looker = self._read_engine.connect()
            driver = self._looker.connection.dbapi_connection
            assert driver is not None
            return _data_version(driver)

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
                f"The state file {self._file} is not there any more: it was deleted, moved or replaced while this "
                "command ran. Put it back, then the same command goes on; without it, it begins anew"
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, self._driver_error) as error:
            explained = _explain(error, self._file)
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


def _data_version(driver: DBAPIConnection) -> int:
    """Changes whenever another connection commits; must be asked on one and the same connection."""
    cursor = driver.cursor()
    cursor.execute("PRAGMA data_version")
    row = cursor.fetchone()
    cursor.close()
    assert row is not None
    return int(row[0])


def _rows_changed(driver: DBAPIConnection) -> int:
    """Rows that this connection has written since it was opened."""
    return int(driver.total_changes)


def _give_back_pages(driver: DBAPIConnection) -> None:
    """Returns some free pages to the file system; outside a transaction."""
    cursor = driver.cursor()
    cursor.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
    cursor.fetchall()
    cursor.close()


_FULL = "disk is full"
_CAUSES: tuple[tuple[str, str], ...] = (
    (
        _FULL,
        "the disk is full. Free some space there: what waits for it goes on by itself, and a command that has ended is "
        "run again; nothing that was confirmed is lost",
    ),
    (
        "disk I/O error",
        "reading or writing it failed (disk I/O error). Check the disk, then run the same command again",
    ),
    (
        "readonly database",
        "it cannot be written. Check that the file and its folder belong to you, or name another "
        "folder with BATCHWRIGHT_HOME",
    ),
    (
        "unable to open",
        "it cannot be opened. Check that its folder exists and that you may write there, or name "
        "another folder with BATCHWRIGHT_HOME",
    ),
    (
        "not a database",
        "it is not a database of batchwright. Move that file away, or name another folder with BATCHWRIGHT_HOME",
    ),
    ("malformed", "it is damaged. Restore it from a backup, or move it away to begin anew"),
    (
        "is locked",
        f"another process has kept it locked for {BUSY_TIMEOUT_MS / 1000:g} s. End it or wait for it, then try again",
    ),
)


def _explain(error: Exception, path: str) -> StoreError | None:
    """What a database error means to a person; None for an error that is a fault of ours."""
    cause = str(error.orig) if isinstance(error, DBAPIError) and error.orig is not None else str(error)
    for words, meaning in _CAUSES:
        if words in cause:
            return (DiskFull if words == _FULL else StoreError)(f"The state file {path}: {meaning}.")
    return None
