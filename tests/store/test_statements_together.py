"""Statements that are sent one behind another: what they find and change is known afterwards, and what goes wrong is
told as of one that is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Connection, bindparam, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from batchwright.store.connections import Connections
from batchwright.store.open import connect, open_store
from batchwright.store.prepared import Prepared, together
from batchwright.store.schema import fact
from support.postgres import PostgresServer

ADD = Prepared(insert(fact), ("name", "value"))
CHANGE = Prepared(
    update(fact).where(fact.c.name == bindparam("of_name")).values(value=bindparam("new")).returning(fact.c.value)
)
VALUES = Prepared(select(fact.c.value).where(text("name IN ('a', 'b')")).order_by(fact.c.name))
UNIQUE = "23505"


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connections]:
    with ExitStack() as stack:
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            where = stack.enter_context(server.database())
        else:
            where = str(tmp_path / "state.db")
            open_store(where).close()  # makes the tables
        connections = connect(where)
        stack.callback(connections.close)
        yield connections


def test_what_each_finds_and_changes_is_known_afterwards(database: Connections) -> None:
    with database.write() as connection:
        with together(connection):
            added = ADD.many_later(connection, [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}])
            before = VALUES.later(connection, {})
            changed = CHANGE.later(connection, {"of_name": "b", "new": "3"})
            none = CHANGE.later(connection, {"of_name": "c", "new": "3"})
            after = VALUES.later(connection, {})
        assert added.changed() == 2
        assert [row.value for row in before.all()] == ["1", "2"]
        assert [row.value for row in changed.all()] == ["3"]
        assert none.all() == []
        assert [row.value for row in after.all()] == ["1", "3"]


def test_what_one_finds_may_be_asked_for_on_the_way(database: Connections) -> None:
    with database.write() as connection:
        with together(connection):
            ADD.run(connection, {"name": "a", "value": "1"})
            (found,) = VALUES.all(connection, {})
            CHANGE.run(connection, {"of_name": "a", "new": found.value + "0"})
        assert [row.value for row in VALUES.all(connection, {})] == ["10"]


def test_what_goes_wrong_is_an_error_of_the_database_without_values(
    database: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    """Told once: the driver warns of nothing."""

    def add_twice(connection: Connection) -> None:
        with together(connection):
            ADD.run(connection, {"name": "a", "value": "1"})
            ADD.run(connection, {"name": "a", "value": "a secret"})
            for number in range(200):
                CHANGE.run(connection, {"of_name": "b", "new": str(number)})
            VALUES.later(connection, {}).all()

    with database.write() as connection, pytest.raises(DBAPIError) as raised:
        add_twice(connection)
    assert getattr(raised.value.orig, "sqlstate", UNIQUE) == UNIQUE
    assert "a secret" not in str(raised.value)
    assert not caplog.records


def test_a_statement_of_another_kind_is_refused_there(postgres: PostgresServer) -> None:
    with postgres.database() as url:
        database = connect(url)
        with (
            pytest.raises(AssertionError, match="must be a prepared statement"),
            database.write() as connection,
            together(connection),
        ):
            connection.execute(select(fact))
        database.close()
