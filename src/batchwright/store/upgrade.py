"""Which schema a database has, and bringing it to the present one.

A new one is made from the metadata and stamped; Alembic is imported only for an older one, because its import costs
more than a small run. A state file is brought up to date by whoever opens it. A server's database is not: processes of
the older version may be at work on it, so that a person says when (`batchwright db upgrade`).
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from batchwright.core.errors import StoreError
from batchwright.store import dialect
from batchwright.store.connections import Connections
from batchwright.store.migrations import HEAD, REVISIONS
from batchwright.store.schema import alembic_version, metadata

TURN = "batchwright schema"


def prepare_schema(connections: Connections) -> None:
    """Makes, checks or upgrades the schema. Raises StoreError for one of a version that is not known here, for one that
    is not ours, and for an older one that is not to be upgraded without being asked."""
    with connections.read() as connection:
        present = _checked(connection, connections)
    if present != HEAD:
        upgrade(connections)


def upgrade(connections: Connections) -> bool:
    """Makes the schema or brings it up to date; False: it is the present one already. Raises StoreError as above."""

    def make(connection: Connection) -> bool:
        dialect.take_as_long_as_needed(connection)
        # Asked again in its turn: another process may have made or upgraded it meanwhile.
        dialect.wait_for_turn(connection, TURN)
        present = _revision(connection, connections)
        if present is None:
            metadata.create_all(connection)
            alembic_version.create(connection)
            connection.execute(alembic_version.insert(), {"version_num": HEAD})
        elif present != HEAD:
            migrate(connection)
        return present != HEAD

    return connections.transact(make)


def is_present(connections: Connections) -> bool:
    """Whether it has the present schema; False: it gets it at the first use. Raises StoreError as `prepare_schema`."""
    with connections.read() as connection:
        return _checked(connection, connections) == HEAD


def _checked(connection: Connection, connections: Connections) -> str | None:
    """As `_revision`, where that is one to go on from. Raises StoreError."""
    present = _revision(connection, connections)
    if present is not None and present != HEAD and not connections.upgrades_itself:
        raise StoreError(
            f"{connections.name} has the schema {present or 'of no version'!r}, which is older than that of this "
            f"program, {HEAD!r}. End the processes of the older version, then run `batchwright db upgrade`."
        )
    return present


def migrate(connection: Connection) -> None:
    """Runs the migrations that the database lacks, all in the connection's transaction."""
    from batchwright.store.migrations.run import upgrade as run

    run(connection)


def _revision(connection: Connection, connections: Connections) -> str | None:
    """Its revision: None for a new one, empty for one that no migration has come to."""
    tables = dialect.table_names(connection)
    if not tables:
        return None
    if alembic_version.name not in tables:
        raise StoreError(
            f"{connections.name} is a database, but not one of batchwright. To begin anew, {connections.elsewhere}."
        )
    versions = connection.execute(select(alembic_version.c.version_num)).scalars().all()
    if len(versions) > 1:
        raise StoreError(
            f"{connections.name} says of {len(versions)} versions that they made its tables ({', '.join(versions)}, in "
            f"its table {alembic_version.name}); expected one. Delete the rows of the others."
        )
    found = versions[0] if versions else ""
    if not found and not metadata.tables.keys().isdisjoint(tables):
        raise StoreError(
            f"{connections.name} has tables, and its table {alembic_version.name} says of no version whose they are: "
            "was it emptied? Restore its row from a copy, or put in the version that made the tables (of this program: "
            f"INSERT INTO {alembic_version.name} VALUES ('{HEAD}')). To begin anew, {connections.elsewhere}."
        )
    if found and found not in REVISIONS:
        raise StoreError(
            f"{connections.name} was made by another version of batchwright (its schema is {found!r}, that of this "
            f"program is {HEAD!r}). Use that version for its batches; or, to begin anew, {connections.elsewhere}."
        )
    return found
