"""A database of a server as a store: its tables, who may open it, what is told of what goes wrong, wake-ups."""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from batchwright.core.errors import StoreAway, StoreError
from batchwright.core.failures import FailureKind
from batchwright.ports.store import Store
from batchwright.store import postgres as database
from batchwright.store.connections import Connections
from batchwright.store.migrations import HEAD
from batchwright.store.migrations.run import upgrade
from batchwright.store.open import connect, look_at_database, open_store, shown_url, upgrade_store
from batchwright.store.schema import alembic_version, metadata
from support.postgres import PostgresServer
from support.store_drive import Worker, new_segment, submit

LOOKS = 1_000
SECRET = "hunter2"


@pytest.fixture
def empty(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.empty_database()
    yield url
    postgres.drop(url)


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as found:
        yield found


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def stamped(url: str, revision: str) -> None:
    execute(url, f"UPDATE alembic_version SET version_num = '{revision}'")


def until(condition: object) -> None:
    assert callable(condition)
    for _ in range(LOOKS):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came true")


# ------------------------------------------------------------------------------------------------------------- schema

COLUMNS = """
    SELECT table_name, column_name, data_type, collation_name, column_default, is_nullable, is_identity
    FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version' ORDER BY 1, 2
"""
INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version' ORDER BY 1"
CONSTRAINTS = """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> 'alembic_version' ORDER BY 1, 2
"""
STORAGE = "SELECT attstorage::text FROM pg_attribute WHERE attrelid = 'blob'::regclass AND attname = 'data'"


def schema(connection: Connection) -> list[list[tuple[object, ...]]]:
    """Without the tables of days, of which each database has its own."""
    return [
        [tuple(row) for row in connection.exec_driver_sql(query) if not re.search(r"\bblob_[0-9]", str(row))]
        for query in (COLUMNS, INDEXES, CONSTRAINTS, STORAGE)
    ]


def is_no_partition(name: str | None, kind: str, parents: object) -> bool:
    return kind != "table" or name is None or not name.startswith("blob_")


def test_migrations_alone_make_the_schema_of_the_metadata(empty: str, url: str) -> None:
    migrated, made = connect(empty), connect(url)
    with migrated.write() as connection:
        upgrade(connection)
    with migrated.read() as old, made.read() as new:
        assert schema(old) == schema(new)
        assert schema(new)[3] == [("e",)]
        context = MigrationContext.configure(old, opts={"include_name": is_no_partition})
        assert compare_metadata(context, metadata) == []
        version = "SELECT version_num FROM alembic_version"
        assert old.exec_driver_sql(version).scalar() == new.exec_driver_sql(version).scalar() == HEAD
    migrated.close()
    made.close()


def test_an_empty_database_gets_its_tables_once_whoever_comes(empty: str) -> None:
    assert look_at_database(empty) == "gets its tables at the first use"
    with ThreadPoolExecutor(4) as pool:
        for store in pool.map(open_store, [empty] * 4):
            store.close()
    assert look_at_database(empty) == "has the tables of this version"
    assert upgrade_store(empty) is False


def test_another_schema_is_refused_in_a_sentence(empty: str) -> None:
    url = empty
    upgrade_store(url)
    stamped(url, "0099")
    for look in (open_store, look_at_database, upgrade_store):
        with pytest.raises(StoreError, match=r"was made by another version of batchwright \(its schema is '0099'"):
            look(url)
    for emptied in (f"UPDATE {alembic_version.name} SET version_num = ''", f"DELETE FROM {alembic_version.name}"):
        execute(url, emptied)
        for look in (open_store, look_at_database, upgrade_store):
            with pytest.raises(StoreError, match=rf"says of no version.*was it emptied.*VALUES \('{HEAD}'\)"):
                look(url)
    execute(url, f"INSERT INTO {alembic_version.name} VALUES ('{HEAD}'), ('0000')")
    for look in (open_store, look_at_database, upgrade_store):
        with pytest.raises(StoreError, match="says of 2 versions that they made its tables"):
            look(url)
    execute(url, f"DELETE FROM {alembic_version.name} WHERE version_num = '0000'")
    assert upgrade_store(url) is False


def test_an_older_one_is_brought_up_to_date_when_a_person_says_so(empty: str) -> None:
    connections = connect(empty)
    with connections.write() as connection:
        upgrade(connection)
        for table in reversed(metadata.sorted_tables):
            table.drop(connection)
        connection.exec_driver_sql("DELETE FROM alembic_version")
    connections.close()
    with pytest.raises(StoreError, match=r"which is older than that of this program.*batchwright db upgrade"):
        open_store(empty)
    assert upgrade_store(empty) is True
    store = open_store(empty)
    submit(store, "batch_a", [new_segment(0)])
    assert Worker(store).run() == 1
    store.close()


def test_somebody_elses_database_is_left_alone(empty: str) -> None:
    execute(empty, "CREATE TABLE theirs (id int)")
    with pytest.raises(StoreError, match=r"is a database, but not one of batchwright.*another schema of it"):
        open_store(empty)


def test_it_may_be_one_schema_of_a_database(empty: str) -> None:
    execute(empty, "CREATE TABLE theirs (id int)", "CREATE SCHEMA ours")
    store = open_store(f"{empty}?options=-csearch_path%3Dours")
    submit(store, "batch_a", [new_segment(0)])
    assert Worker(store).run() == 1
    store.close()


# ---------------------------------------------------------------------------------------------------------- what fails


def test_what_cannot_be_reached_is_named_without_its_password(postgres: PostgresServer) -> None:
    with pytest.raises(StoreError, match=r"cannot be reached.*refused") as raised:
        open_store(f"postgresql://me:{SECRET}@127.0.0.1:1/batches?sslmode=disable")
    assert "postgresql://me@127.0.0.1:1/batches" in str(raised.value)
    assert SECRET not in str(raised.value)
    with pytest.raises(StoreError, match=r"there is no such database. Create it"):
        open_store(postgres.url("nowhere"))
    assert shown_url(f"postgres://a:{SECRET}@h/d?password={SECRET}") == "postgresql://a@h/d"


def test_a_server_that_refuses_a_row_shows_nothing_of_it(url: str) -> None:
    """What people wrote is in the parameters, and in the server's DETAIL."""
    store = open_store(url)
    execute(url, "ALTER TABLE blob ADD CONSTRAINT none CHECK (data = '') NOT VALID")
    try:
        with pytest.raises(IntegrityError, match="violates check constraint") as raised:
            submit(store, "batch_a", [new_segment(0, ids=[SECRET] * 4)])
    finally:
        execute(url, "ALTER TABLE blob DROP CONSTRAINT none")
        store.close()
    shown = "".join(traceback.format_exception(raised.value))
    assert "INSERT INTO blob" in shown, "which statement it was is told"
    for hidden in (SECRET, '{"row":', "Failing row"):
        assert hidden not in shown


def test_only_what_may_pass_is_waited_for(url: str) -> None:
    store = open_store(url)
    states = (("57P01", True), ("53200", True), ("08006", True), ("55P03", True), ("54000", False), ("42501", False))
    for state, passes in states:
        raised = f"RAISE EXCEPTION USING ERRCODE = '{state}'"
        execute(
            url,
            f"CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {raised}; END $$",
            "CREATE OR REPLACE TRIGGER refuses BEFORE INSERT ON batch EXECUTE FUNCTION refuse()",
        )
        with pytest.raises(StoreError) as met:
            submit(store, "batch_a", [new_segment(0)])
        assert isinstance(met.value, StoreAway) is passes, state
    execute(url, "DROP FUNCTION refuse CASCADE")
    store.close()


def test_a_user_or_password_that_is_refused_is_no_server_out_of_reach(
    postgres: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match=r"refuses its user\. Name one") as met:
        open_store(url.replace("//postgres@", "//nobody_here@"))
    assert not isinstance(met.value, StoreAway), "no wait helps"
    with psycopg.connect(url) as connection:
        found = connection.execute("SHOW hba_file").fetchone()
    assert found is not None
    rules = Path(found[0])
    before = rules.read_text()
    execute(url, "CREATE ROLE guest LOGIN PASSWORD 'right'")
    rules.write_text("host all guest 127.0.0.1/32 scram-sha-256\n" + before)
    try:
        execute(url, "SELECT pg_reload_conf()")
        for given in ("", "wrong"):
            monkeypatch.setenv("PGPASSWORD", given)
            with pytest.raises(StoreError, match=r"user or password\. .*PGPASSWORD.*\.pgpass") as refused:
                open_store(url.replace("//postgres@", "//guest@"))
            assert "cannot be reached" not in str(refused.value)
            assert not isinstance(refused.value, StoreAway)
    finally:
        rules.write_text(before)
        execute(url, "SELECT pg_reload_conf()", "DROP ROLE guest")


def test_a_user_who_may_not_is_told_so(postgres: PostgresServer, url: str) -> None:
    execute(url, "CREATE ROLE guest LOGIN")
    try:
        with pytest.raises(StoreError, match="its user may not do that"):
            open_store(url.replace("postgres@", "guest@"))
    finally:
        execute(url, "DROP ROLE guest")


def test_a_closed_store_says_so(url: str) -> None:
    store = open_store(url)
    store.data_version()
    store.close()
    store.close()
    for asked in (store.data_version, store.changes, store.backlog, lambda: store.expire_due(1)):
        with pytest.raises(StoreError, match="has been closed"):
            asked()


def test_connections_that_were_ended_are_made_anew(postgres: PostgresServer, url: str) -> None:
    store = open_store(url)
    submit(store, "batch_a", [new_segment(0)])
    postgres.break_connections(url)
    assert store.get_batch("batch_a").segments == 1
    postgres.break_connections(url)
    assert Worker(store).run() == 1
    store.close()


def test_a_connection_that_breaks_before_its_commit_costs_nothing(postgres: PostgresServer, url: str) -> None:
    store = open_store(url)
    connections: Connections = store._connections  # type: ignore[attr-defined]
    tries = []

    def work(connection: Connection) -> int:
        tries.append(connection.exec_driver_sql("SELECT 1").scalar_one())
        if len(tries) == 1:
            postgres.break_connections(url)
        return int(connection.exec_driver_sql("SELECT 7").scalar_one())

    assert connections.transact(work) == 7
    tries.clear()
    assert connections.look(work) == 7
    assert len(tries) == 2
    store.close()


def test_connections_are_bounded_and_keep_nothing_of_a_session(postgres: PostgresServer, url: str) -> None:
    store = open_store(url)
    submit(store, "batch_a", [new_segment(number) for number in range(30)])
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: Worker(store, f"w{number}").run(), range(16)))
        list(pool.map(lambda _: store.get_batch("batch_a"), range(64)))
    connections: Connections = store._connections  # type: ignore[attr-defined]
    with connections.write() as connection:
        count = connection.exec_driver_sql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        ).scalar_one()
        assert count <= database.WRITERS + database.READERS
        kept = ("FROM pg_prepared_statements", "FROM pg_locks WHERE locktype = 'advisory'")
        assert [connection.exec_driver_sql(f"SELECT count(*) {what}").scalar_one() for what in kept] == [0, 0]
    store.close()


# ------------------------------------------------------------------------------------------------------------ wake-ups


def test_who_waits_is_woken_by_another_process(url: str) -> None:
    waiting, other = open_store(url), open_store(url)
    notices = waiting._connections._notices  # type: ignore[attr-defined]
    until(lambda: notices.looked() > 0)  # it listens
    for happens in (
        lambda: submit(other, "batch_a", [new_segment(0)]),
        lambda: other.request_close("batch_a", FailureKind.CANCELLED, 2_000),
        lambda: other.close_step("batch_a", 2_000),
    ):
        told, version = notices._told, waiting.data_version()
        happens()
        until(lambda told=told: notices._told > told)
        assert waiting.data_version() != version
    waiting.close()
    other.close()


def test_who_is_told_nothing_looks_by_himself(url: str) -> None:
    store = open_store(url)
    version, changes = store.data_version(), store.changes()
    until(lambda: store.changes() != changes)
    until(lambda: store.data_version() != version)
    store.close()


def test_the_listening_connection_comes_back(postgres: PostgresServer, url: str) -> None:
    waiting, other = open_store(url), open_store(url)
    notices = waiting._connections._notices  # type: ignore[attr-defined]
    until(lambda: notices.looked() > 0)
    postgres.break_connections(url)
    names = iter(range(LOOKS))

    def is_told() -> bool:
        told = notices._told
        submit(other, f"batch_{next(names)}", [new_segment(0)])
        threading.Event().wait(0.05)
        return bool(notices._told > told)

    until(is_told)
    waiting.close()
    other.close()


def test_moments_are_the_servers(url: str) -> None:
    store: Store = open_store(url)
    assert store.now_ms(7) > 1_700_000_000_000
    store.close()
    here = open_store(":memory:")
    assert here.now_ms(7) == 7
    here.close()
