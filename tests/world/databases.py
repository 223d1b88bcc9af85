"""The database as the auditor reads it: by plain SQL (parameters as `?`), past every line of the product."""

from __future__ import annotations

from typing import Any, Protocol

import psycopg


class Database(Protocol):
    def execute(self, sql: str, parameters: tuple[Any, ...] = ..., /) -> Any:
        """A cursor with its rows."""

    def changes(self) -> int:
        """Another number where something may have been written."""

    def new_blobs(self) -> list[tuple[str, bytes]]:
        """Key and bytes of those that came since it was last asked, in the order in which they were written."""


class StateFile:
    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self._blob_row = 0

    def execute(self, sql: str, parameters: tuple[Any, ...] = (), /) -> Any:
        return self._cursor.execute(sql, parameters)

    def changes(self) -> int:
        return int(self._cursor.connection.total_changes)

    def new_blobs(self) -> list[tuple[str, bytes]]:
        found = self.execute("SELECT rowid, key, data FROM blob WHERE rowid > ? ORDER BY rowid", (self._blob_row,))
        blobs = [row[1:] for row in found.fetchall()]
        # A dropped batch's blobs may have been the last ones, whose numbers are then given out again.
        self._blob_row = self.execute("SELECT coalesce(max(rowid), 0) FROM blob").fetchone()[0]
        return blobs


class ServerDatabase:
    """On a connection of its own, which sees each statement's moment: the world does one thing at a time."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self._keys: set[str] = set()

    def execute(self, sql: str, parameters: tuple[Any, ...] = (), /) -> Any:
        return self.connection.execute(sql.replace("?", "%s").encode(), parameters)

    def changes(self) -> int:
        return int(self.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()[0])

    def new_blobs(self) -> list[tuple[str, bytes]]:
        # Nothing is vacuumed, so what came later lies further back, and the tables of later days were made later.
        new = "SELECT key, data FROM blob WHERE NOT (key = ANY(?)) ORDER BY tableoid, ctid"
        found = self.execute(new, (list(self._keys),))
        blobs = found.fetchall()
        self._keys.update(key for key, _ in blobs)
        return list(blobs)
