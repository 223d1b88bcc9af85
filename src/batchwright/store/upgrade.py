"""Which schema a file has, and bringing it to the present one.

A new file is made from the metadata and stamped; Alembic is imported only for an older one, because its import costs
more than a small run.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from batchwright.core.errors import StoreError
from batchwright.store import dialect
from batchwright.store.connections import Connections
from batchwright.store.migrations import HEAD, REVISIONS
from batchwright.store.schema import alembic_version, metadata


def prepare_schema(connections: Connections, name: str) -> None:
    """Makes, checks or upgrades the schema. Raises StoreError for a file of a version that is not known here, or one
    that is not ours."""
    with connections.read() as connection:
        present = _revision(connection, name)
    if present == HEAD:
        return
    with connections.write() as connection:
        # Asked again under the lock: another process may have made or upgraded the file meanwhile.
        present = _revision(connection, name)
        if present is None:
            metadata.create_all(connection)
            alembic_version.create(connection)
            connection.execute(alembic_version.insert(), {"version_num": HEAD})
        elif present != HEAD:
            migrate(connection)


def is_present(connections: Connections, name: str) -> bool:
    """Whether the file has the present schema; False for an empty one too. Raises StoreError as `prepare_schema`."""
    with connections.read() as connection:
        return _revision(connection, name) == HEAD


def migrate(connection: Connection) -> None:
    """Runs the migrations that the file lacks, all in the connection's transaction."""
    from batchwright.store.migrations.run import upgrade

    upgrade(connection)


def _revision(connection: Connection, name: str) -> str | None:
    """The file's revision: None for a new file, empty for one that no migration has come to."""
    tables = dialect.table_names(connection)
    if not tables:
        return None
    if alembic_version.name not in tables:
        raise StoreError(
            f"The state file {name} is a database, but not one of batchwright. Move that file away, or name another "
            f"folder with BATCHWRIGHT_HOME."
        )
    found = connection.execute(select(alembic_version.c.version_num)).scalar_one_or_none() or ""
    if found and found not in REVISIONS:
        raise StoreError(
            f"The state file {name} was made by another version of batchwright (its schema is {found!r}, that of this "
            f"program is {HEAD!r}). Use that version for its batches; or move the file away, or name another folder "
            f"with BATCHWRIGHT_HOME, to begin anew."
        )
    return found
