"""Migrations lead to the schema that a new file is made with, and a new file never imports Alembic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from batchwright.store.migrations import HEAD, REVISIONS
from batchwright.store.migrations.run import config, upgrade
from batchwright.store.open import open_store
from batchwright.store.schema import metadata
from batchwright.store.sqlite import SqliteConnections
from support.store_drive import Worker, new_segment, submit


def schema(connection: Connection) -> dict[str, str]:
    """Each table's and index's own words, without the spaces between them."""
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {name: "".join(sql.split()) for name, sql in rows if not name.startswith(("sqlite_", "alembic_"))}


def test_the_scripts_are_the_revisions_that_are_named() -> None:
    scripts = ScriptDirectory.from_config(config())
    found = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(found)) == REVISIONS
    assert scripts.get_heads() == [HEAD]


def test_migrations_alone_make_the_schema_of_the_metadata(tmp_path: Path) -> None:
    migrated = SqliteConnections(tmp_path / "migrated.db")
    with migrated.write() as connection:
        upgrade(connection)
    open_store(tmp_path / "made.db").close()
    made = SqliteConnections(tmp_path / "made.db")
    with migrated.read() as old, made.read() as new:
        assert schema(old) == schema(new)
        assert compare_metadata(MigrationContext.configure(old), metadata) == []
        version = "SELECT version_num FROM alembic_version"
        assert old.exec_driver_sql(version).scalar() == new.exec_driver_sql(version).scalar() == HEAD
    migrated.close()
    made.close()


def test_a_migrated_file_works(tmp_path: Path) -> None:
    connections = SqliteConnections(tmp_path / "state.db")
    with connections.write() as connection:
        upgrade(connection)
    connections.close()
    store = open_store(tmp_path / "state.db")
    submit(store, "batch_a", [new_segment(0)])
    Worker(store).run()
    assert store.check("batch_a") == []
    store.close()


def test_a_file_before_the_first_revision_is_migrated_at_open(tmp_path: Path) -> None:
    connections = SqliteConnections(tmp_path / "state.db")
    with connections.write() as connection:
        upgrade(connection)
        for table in reversed(metadata.sorted_tables):
            table.drop(connection)
        connection.exec_driver_sql("DELETE FROM alembic_version")
    connections.close()
    store = open_store(tmp_path / "state.db")
    submit(store, "batch_a", [new_segment(0)])
    assert Worker(store).run() == 1
    store.close()


def test_a_new_file_is_made_without_alembic(tmp_path: Path) -> None:
    code = (
        "import sys; from batchwright.store.open import open_store; open_store(sys.argv[1]).close(); "
        "open_store(sys.argv[1]).close(); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "state.db")], check=False).returncode == 0
