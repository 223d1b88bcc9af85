"""What statements differ in between databases: upserts, whose words both have, and what only one of them needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    BindParameter,
    ColumnCollection,
    ColumnElement,
    Connection,
    Insert,
    Select,
    Table,
    bindparam,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import NULLTYPE

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


class OneOf(ColumnElement[bool]):
    """Whether a column of text has one of the values of a parameter, which `many` makes: one statement for any number
    of them."""

    inherit_cache = False
    type = NULLTYPE  # type: ignore[assignment]  # a boolean would be compared with 1, and no index used

    def __init__(self, column: ColumnElement[str], name: str) -> None:
        self.column = column
        # Of no type: the server would take a text for one only when it runs, and find no table of a day before that.
        self.values: BindParameter[Any] = bindparam(name, type_=NULLTYPE)


@compiles(OneOf)
def _by_json(element: OneOf, compiler: SQLCompiler, **more: Any) -> str:
    column, values = compiler.process(element.column, **more), compiler.process(element.values, **more)
    return f"{column} IN (SELECT value FROM json_each({values}))"


@compiles(OneOf, "postgresql")
def _by_array(element: OneOf, compiler: SQLCompiler, **more: Any) -> str:
    column, values = compiler.process(element.column, **more), compiler.process(element.values, **more)
    return f"{column} = ANY (CAST({values} AS text[]))"


def many(connection: Connection, values: Sequence[str]) -> object:
    """The value of a parameter of `OneOf`."""
    return list(values) if is_server(connection) else msgspec.json.encode(values).decode()


def insert_or_add(
    table: Table, sums: Sequence[str], *, rows: tuple[Sequence[str], Select[Any]] | None = None
) -> Insert:
    """Inserts a row, or adds these columns to the row that has its key. `rows`: (columns, what they are taken from) in
    place of values."""
    statement = sqlite.insert(table)
    if rows is not None:
        statement = statement.from_select(*rows)
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


def insert_or_change(
    table: Table, changes: Callable[[ColumnCollection[str, ColumnElement[Any]]], dict[str, Any]]
) -> Insert:
    """Inserts a row, or changes the row that has its key by what `changes` makes of the row that was to be inserted."""
    statement = sqlite.insert(table)
    return statement.ext(_DoUpdate(list(table.primary_key.columns), set_=changes(statement.excluded)))


def _counted(statement: Insert) -> Insert:
    # Its result knows how many rows it wrote, also where the driver forgets that with its cursor.
    return statement.execution_options(preserve_rowcount=True)


def table_names(connection: Connection) -> set[str]:
    """Of the schema that new tables go to."""
    if is_server(connection):
        statement = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema()"
    else:
        statement = "SELECT name FROM sqlite_master WHERE type = 'table'"
    return {row[0] for row in connection.exec_driver_sql(statement)}


def now_ms(connection: Connection, own_ms: int) -> int:
    """By the server's clock, which its clients share; a file has the clock of whoever asks."""
    if not is_server(connection):
        return own_ms
    return int(connection.exec_driver_sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").scalar_one())


def wait_for_turn(connection: Connection, what: str) -> None:
    """Until no other transaction that asked for this turn is under way. For what is rare and short, and has no row yet
    that could be locked; a SQLite transaction that writes is alone anyway."""
    if is_server(connection):
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtextextended(%(what)s, 0))", {"what": what})


def try_turns(connection: Connection, what: Sequence[str]) -> list[str]:
    """Those of these turns that no other transaction has, which are this one's until it ends. Waits for nobody, and
    nobody is kept from anything but from the same turns: who writes what they are about does not ask for them. A
    SQLite transaction that writes is alone anyway."""
    if not what or not is_server(connection):
        return list(what)
    rows = connection.exec_driver_sql(
        "SELECT name FROM unnest(%(what)s::text[]) AS name WHERE pg_try_advisory_xact_lock(hashtextextended(name, 1))",
        {"what": list(what)},
    )
    return [row[0] for row in rows]


def take_as_long_as_needed(connection: Connection) -> None:
    """For this transaction: a change of the tables may take minutes, and others wait for it."""
    if is_server(connection):
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
        driver: Any = connection.connection.dbapi_connection
        driver.silent_s = None


def wake_others(connection: Connection) -> None:
    """Wakes whoever waits for something to do, once this transaction is committed. Only where a batch turns, never with
    each checkpoint: a server lets such commits through one by one. Readers of a SQLite file see every commit."""
    if is_server(connection):
        connection.exec_driver_sql(f"NOTIFY {CHANNEL}")


def is_server(connection: Connection) -> bool:
    """Else a file, which one transaction writes at a time."""
    return connection.dialect.name == "postgresql"
