"""The database as the auditor reads it: by plain SQL (parameters as `?`), past every line of the product."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import psycopg

from world.laws import Broken, Law


class Database(Protocol):
    def execute(self, sql: str, parameters: tuple[Any, ...] = ..., /) -> Any:
        """A cursor with its rows."""

    def changes(self) -> int:
        """Another number where something may have been written."""

    def new_blobs(self) -> list[tuple[str, bytes]]:
        """Key and bytes of those that came since it was last asked, in the order in which they were written. Raises
        Broken for one whose object is not there whole."""

    def bytes_of(self, row: BlobRow, /) -> bytes:
        """Of a blob. Raises Broken."""


BLOB_ROW = "data, object, object_size, object_offset, size"
BlobRow = tuple[bytes, str, int, int, int]


class Outside:
    """Objects that hold bytes of blobs, as their store has them; a world without an object store has none."""

    def __init__(self, objects: Mapping[str, bytes] | None) -> None:
        self._objects = {} if objects is None else objects

    def bytes_of(self, row: BlobRow, /) -> bytes:
        data, object_, object_size, offset, size = row
        if not object_:
            return data
        whole = self._objects.get(object_)
        if whole is None or len(whole) != object_size or offset + size > object_size:
            there = "is not there" if whole is None else f"has {len(whole)} bytes"
            raise Broken(Law.OBJECTS, f"{object_} is named, {size} of its {object_size} bytes at {offset}; it {there}")
        return whole[offset : offset + size]

    def _opened(self, rows: Iterable[tuple[Any, ...]]) -> list[tuple[str, bytes]]:
        """`rows`: the key, then as BLOB_ROW."""
        return [(key, self.bytes_of((*row,))) for key, *row in rows if not key.startswith("gone/")]


class StateFile(Outside):
    def __init__(self, cursor: Any, objects: Mapping[str, bytes] | None = None) -> None:
        super().__init__(objects)
        self._cursor = cursor
        self._blob_row = 0

    def execute(self, sql: str, parameters: tuple[Any, ...] = (), /) -> Any:
        return self._cursor.execute(sql, parameters)

    def changes(self) -> int:
        return int(self._cursor.connection.total_changes)

    def new_blobs(self) -> list[tuple[str, bytes]]:
        new = f"SELECT key, {BLOB_ROW} FROM blob WHERE rowid > ? ORDER BY rowid"
        blobs = self._opened(self.execute(new, (self._blob_row,)).fetchall())
        # A dropped batch's blobs may have been the last ones, whose numbers are then given out again.
        self._blob_row = self.execute("SELECT coalesce(max(rowid), 0) FROM blob").fetchone()[0]
        return blobs


class ServerDatabase(Outside):
    """On a connection of its own, which sees each statement's moment: the world does one thing at a time."""

    def __init__(self, url: str, objects: Mapping[str, bytes] | None = None) -> None:
        super().__init__(objects)
        self.connection = psycopg.connect(url, autocommit=True)
        self._keys: set[str] = set()

    def execute(self, sql: str, parameters: tuple[Any, ...] = (), /) -> Any:
        return self.connection.execute(sql.replace("?", "%s").encode(), parameters)

    def changes(self) -> int:
        return int(self.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()[0])

    def new_blobs(self) -> list[tuple[str, bytes]]:
        # Nothing is vacuumed, so what came later lies further back, and the tables of later days were made later.
        new = f"SELECT key, {BLOB_ROW} FROM blob WHERE NOT (key = ANY(?)) ORDER BY tableoid, ctid"
        blobs = self._opened(self.execute(new, (list(self._keys),)).fetchall())
        self._keys.update(key for key, _ in blobs)
        return blobs
