"""Statements of the path that every checkpoint takes: built by SQLAlchemy once, then given to the driver as they are.

A statement that SQLAlchemy executes takes its cache key, its parameters and its result through code which, between two
checkpoints, has left the processor's cache: some 120 us more a statement than the driver alone, measured; a checkpoint
has a dozen. Rows come back as named tuples of the statement's columns.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from sqlalchemy import Connection, Executable
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler

from batchwright.store import dialect

Values: TypeAlias = Mapping[str, object]
StoredRow: TypeAlias = Any
"""A named tuple of a statement's columns."""


class _Text:
    """A statement in the words of one database."""

    def __init__(self, statement: ClauseElement, names: Sequence[str] | None, connection: Connection) -> None:
        compiled = statement.compile(dialect=connection.dialect, column_keys=names)
        self.sql = str(compiled)
        assert isinstance(compiled, SQLCompiler)
        self._order = compiled.positiontup
        # Written into the statement; the others must be given.
        self._fixed = {name: bind.value for name, bind in compiled.binds.items() if not bind.required}
        columns = getattr(statement, "exported_columns", None)
        self.row: Callable[[Iterable[Any]], StoredRow] = _maker(columns.keys()) if columns else tuple

    def bound(self, values: Values) -> Any:
        """As the driver takes them: by place, or by name."""
        if self._order is None:
            return {**self._fixed, **values}
        fixed = self._fixed
        return [values[name] if name in values else fixed[name] for name in self._order]


def _maker(names: Sequence[str]) -> Callable[[Iterable[Any]], StoredRow]:
    row: Any = namedtuple("row", names)  # type: ignore[misc]  # of a statement's own columns
    make: Callable[[Iterable[Any]], StoredRow] = row._make
    return make


class Later:
    """What a statement finds or changes, which may be asked for when others were sent behind it."""

    def __init__(self, connection: Connection, text: _Text, cursor: DBAPICursor) -> None:
        self._connection, self._text, self._cursor = connection, text, cursor
        self._found: list[StoredRow] | None = None

    def changed(self) -> int:
        """How many rows; outside of `together`."""
        return self._cursor.rowcount

    def all(self) -> list[StoredRow]:
        """Waits for the answers to all statements up to this one."""
        if self._found is None:
            with _translated(self._connection, self._text.sql):
                self._found = [self._text.row(row) for row in self._cursor.fetchall()]
            self._cursor.close()
        return self._found


@contextmanager
def together(connection: Connection) -> Iterator[None]:
    """A server is sent the prepared statements within one behind another. It is waited for where what one of them finds
    is asked for, and at the end; how many rows `run` and `run_many` change is not known. Statements that SQLAlchemy
    executes do not belong within: it looks for what they find at once, and sees nothing."""
    if not dialect.is_server(connection):
        yield
        return
    driver: Any = connection.connection.dbapi_connection
    refused: Exception | None = None
    try:
        with driver.pipeline():
            try:
                yield
            except Exception as error:
                # Raised through the driver's own end it would be followed by a warning that everything behind it was
                # refused too; for whoever runs the command that is noise, and some are met and tried again.
                refused = error
    except connection.dialect.loaded_dbapi.Error as error:
        if refused is None:
            raise _as_sqlalchemy_says(connection, "", error) from error
    if refused is not None:
        raise refused


@contextmanager
def _translated(connection: Connection, sql: str) -> Iterator[None]:
    try:
        yield
    except connection.dialect.loaded_dbapi.Error as error:
        raise _as_sqlalchemy_says(connection, sql, error) from error


def _as_sqlalchemy_says(connection: Connection, sql: str, error: Exception) -> Exception:
    # A message is for the log, and the values are requests and answers.
    return DBAPIError.instance(sql, None, error, connection.dialect.loaded_dbapi.Error, hide_parameters=True)


class Prepared:
    def __init__(self, statement: Executable, names: Sequence[str] | None = None) -> None:
        """`names`: for an insert, the columns it is given; else what the statement's parameters are called."""
        assert isinstance(statement, ClauseElement)
        self.statement = statement
        self._names = names
        self._texts: dict[str, _Text] = {}

    def run(self, connection: Connection, values: Values) -> int:
        """How many rows it changed."""
        text = self._text(connection)
        cursor = self._execute(connection, text.sql, text.bound(values))
        changed = cursor.rowcount
        cursor.close()
        return changed

    def run_many(self, connection: Connection, rows: Sequence[Values]) -> int:
        """How many rows it changed, over all of `rows`."""
        cursor = self._execute_many(connection, self._text(connection), rows)
        changed = cursor.rowcount
        cursor.close()
        return changed

    def all(self, connection: Connection, values: Values) -> list[StoredRow]:
        return self.later(connection, values).all()

    def later(self, connection: Connection, values: Values) -> Later:
        text = self._text(connection)
        later = Later(connection, text, self._execute(connection, text.sql, text.bound(values)))
        if not dialect.is_server(connection):
            later.all()
        return later

    def many_later(self, connection: Connection, rows: Sequence[Values]) -> Later:
        """What it changes, over all of `rows`."""
        text = self._text(connection)
        return Later(connection, text, self._execute_many(connection, text, rows))

    def first(self, connection: Connection, values: Values) -> StoredRow | None:
        """The first row; None: there is none."""
        found = self.all(connection, values)
        return found[0] if found else None

    def _text(self, connection: Connection) -> _Text:
        name = connection.dialect.name
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = _Text(self.statement, self._names, connection)
        return text

    def _execute_many(self, connection: Connection, text: _Text, rows: Sequence[Values]) -> DBAPICursor:
        if len(rows) == 1:  # mostly, and a driver's way for many costs more
            return self._execute(connection, text.sql, text.bound(rows[0]))
        return self._execute(connection, text.sql, [text.bound(values) for values in rows], many=True)

    @staticmethod
    def _execute(connection: Connection, sql: str, values: Any, *, many: bool = False) -> DBAPICursor:
        assert connection.in_transaction(), "a prepared statement begins no transaction"
        driver = connection.connection.dbapi_connection
        assert driver is not None
        cursor = driver.cursor()
        try:
            if many:
                cursor.executemany(sql, values)
            else:
                cursor.execute(sql, values)
        except connection.dialect.loaded_dbapi.Error as error:
            cursor.close()
            raise _as_sqlalchemy_says(connection, sql, error) from error
        return cursor
