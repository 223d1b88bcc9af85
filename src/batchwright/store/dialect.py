"""Everything that differs between databases, in one file: drivers, connection settings, upserts, error texts.

SQLite must be 3.51.3 or newer: older ones can corrupt a WAL file when two connections write and checkpoint at once.
The `pysqlite3` wheel carries one; the interpreter's own module is used where that wheel does not exist and it is new
enough.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Insert, Table, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool, StaticPool

from batchwright.core.errors import StoreError

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


def writer_engine(path: Path | None) -> Engine:
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

    engine = create_engine("sqlite://", module=sqlite_module, creator=connect, poolclass=StaticPool)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def reader_engine(path: Path) -> Engine:
    """The engine of a few connections that can only read, each transaction on a snapshot of its own."""
    sqlite_module = load_sqlite()

    def connect() -> Any:
        connection = sqlite_module.connect(
            str(path), timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA query_only = ON")
        return connection

    engine = create_engine(
        "sqlite://", module=sqlite_module, creator=connect, poolclass=QueuePool, pool_size=READERS, max_overflow=64
    )
    event.listen(engine, "begin", _begin_deferred)
    return engine


def _begin_immediate(connection: Connection) -> None:
    # A deferred transaction that turns into a writer later can fail instead of waiting for the other writer.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begin_deferred(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN DEFERRED")


def insert_or_add(table: Table, sums: Sequence[str]) -> Insert:
    """Inserts a row, or adds these columns to the row that has its key."""
    statement = sqlite.insert(table)
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_={name: table.c[name] + statement.excluded[name] for name in sums},
    )


def insert_or_replace(table: Table, columns: Sequence[str]) -> Insert:
    """Inserts a row, or overwrites these columns of the row that has its key."""
    statement = sqlite.insert(table)
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_={name: statement.excluded[name] for name in columns},
    )


def insert_or_keep(table: Table) -> Insert:
    """Inserts a row unless one has its key."""
    return sqlite.insert(table).on_conflict_do_nothing()


def data_version(driver: DBAPIConnection) -> int:
    """Changes whenever another connection commits; must be asked on one and the same connection."""
    cursor = driver.cursor()
    cursor.execute("PRAGMA data_version")
    row = cursor.fetchone()
    cursor.close()
    assert row is not None
    return int(row[0])


def rows_changed(driver: DBAPIConnection) -> int:
    """Rows that this connection has written since it was opened."""
    return int(driver.total_changes)


def give_back_pages(driver: DBAPIConnection) -> None:
    """Returns some free pages to the file system; outside a transaction."""
    cursor = driver.cursor()
    cursor.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
    cursor.fetchall()
    cursor.close()


def table_names(connection: Connection) -> set[str]:
    rows = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {row[0] for row in rows}


_CAUSES: tuple[tuple[str, str], ...] = (
    (
        "disk is full",
        "the disk is full. Free some space there and run the same command again; nothing that was confirmed is lost",
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
    ("is locked", "another process has kept it locked for 30 s. End that process or wait for it, then try again"),
)


def explain(error: Exception, path: str) -> StoreError | None:
    """What a database error means to a person; None for an error that is a fault of ours."""
    cause = str(error.orig) if isinstance(error, DBAPIError) and error.orig is not None else str(error)
    for words, meaning in _CAUSES:
        if words in cause:
            return StoreError(f"The state file {path}: {meaning}.")
    return None
