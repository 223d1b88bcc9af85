"""What statements differ in between databases: upserts, whose words both have, and what only one of them needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Insert, Table
from sqlalchemy.dialects import sqlite

CHANNEL = "batchwright"
"""Where a PostgreSQL server passes wake-ups on."""


class _DoUpdate(sqlite.dml.OnConflictDoUpdate):
    """SQLite's clause, whose words PostgreSQL has too; its compiler asks for the name of a constraint besides. (The
    other way round each start would import PostgreSQL's dialect, which costs more than a small run.)"""

    inherit_cache = True
    constraint_target = None


class _DoNothing(sqlite.dml.OnConflictDoNothing):
    inherit_cache = True
    constraint_target = None


def insert_or_add(table: Table, sums: Sequence[str]) -> Insert:
    """Inserts a row, or adds these columns to the row that has its key."""
    statement = sqlite.insert(table)
    sets = {name: table.c[name] + statement.excluded[name] for name in sums}
    return statement.ext(_DoUpdate(list(table.primary_key.columns), set_=sets))


def insert_or_replace(table: Table, columns: Sequence[str], *, only_if: ColumnElement[bool] | None = None) -> Insert:
    """Inserts a row, or overwrites these columns of the row that has its key if that is so; else changes nothing."""
    statement = sqlite.insert(table)
    sets = {name: statement.excluded[name] for name in columns}
    return _counted(statement.ext(_DoUpdate(list(table.primary_key.columns), set_=sets, where=only_if)))


def insert_or_keep(table: Table) -> Insert:
    """Inserts a row unless one has its key."""
    return _counted(sqlite.insert(table).ext(_DoNothing()))


def _counted(statement: Insert) -> Insert:
    # Its result knows how many rows it wrote, also where the driver forgets that with its cursor.
    return statement.execution_options(preserve_rowcount=True)


def table_names(connection: Connection) -> set[str]:
    """Of the schema that new tables go to."""
    if _has_other_writers(connection):
        statement = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema()"
    else:
        statement = "SELECT name FROM sqlite_master WHERE type = 'table'"
    return {row[0] for row in connection.exec_driver_sql(statement)}


def now_ms(connection: Connection, own_ms: int) -> int:
    """By the server's clock, which its clients share; a file has the clock of whoever asks."""
    if not _has_other_writers(connection):
        return own_ms
    return int(connection.exec_driver_sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").scalar_one())


def wait_for_turn(connection: Connection, what: str) -> None:
    """Until no other transaction that asked for this turn is under way. For what is rare and short, and has no row yet
    that could be locked; a SQLite transaction that writes is alone anyway."""
    if _has_other_writers(connection):
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtextextended(%(what)s, 0))", {"what": what})


def take_as_long_as_needed(connection: Connection) -> None:
    """For this transaction: a change of the tables may take minutes, and others wait for it."""
    if _has_other_writers(connection):
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
        driver: Any = connection.connection.dbapi_connection
        driver.silent_s = None


def wake_others(connection: Connection) -> None:
    """Wakes whoever waits for something to do, once this transaction is committed. Only where a batch turns, never with
    each checkpoint: a server lets such commits through one by one. Readers of a SQLite file see every commit."""
    if _has_other_writers(connection):
        connection.exec_driver_sql(f"NOTIFY {CHANNEL}")


def _has_other_writers(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"
