"""Opening a store: a state file (the folder, who may read it, what kind of disk it is on) or a database of a server."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy import Connection

from batchwright.core.errors import StoreError
from batchwright.ports.blobs import Objects
from batchwright.ports.store import Store
from batchwright.store import batches, blobs, dialect, facts
from batchwright.store.bodies import Bodies
from batchwright.store.connections import Connections
from batchwright.store.sql_store import SqlStore
from batchwright.store.sqlite import SqliteConnections
from batchwright.store.upgrade import is_present, prepare_schema, upgrade

MEMORY = ":memory:"
PRESENT = ("holds batches", "has the tables of this version")
"""What is said of a state file and of a database that can be opened as they are."""
BLOBS, STATE = "blobs", "state"
"""Facts: the URL of the object store, and what names of this store's objects begin with."""
MOUNTS = Path("/proc/mounts")
NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb", "smb2"}
    | {"smb3", "smbfs", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.ceph", "fuse.gcsfuse"}
)
"""SQLite's locks and shared memory do not hold across machines on these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlying:
    """An object store beside the database, and two names that nobody else has: `writer` of this process, `state` of
    this store should it be new there."""

    objects: Objects
    writer: str
    state: str


def open_store(place: Path | str, outlying: Outlying | None = None) -> Store:
    """Opens a state file, made anew where there is none; `:memory:`; or a database by its `postgresql://` URL.

    Raises StoreError for a network file system, a folder that cannot be written, a file that is no database of ours,
    is damaged or was made by a version that is not known here; for a server that cannot be reached or has another
    schema. A state file of an earlier schema is brought up to date, and an empty database is filled.

    `outlying`: larger bodies are put there from now on, and a store that has some there is opened with the same alone;
    StoreError else. It is looked at before a worker begins or a batch or a file is taken in, and the store is tied to
    it with the first body that is put: who only looks on asks it for nothing, and ties nothing.
    """
    connections = connect(place)
    try:
        prepare_schema(connections)
        return SqlStore(connections, _bodies(connections, outlying))
    except BaseException:
        connections.close()
        raise


def _bodies(connections: Connections, outlying: Outlying | None) -> Bodies:
    url, state = connections.look(_where_bodies_are)
    given = outlying.objects.url if outlying is not None else ""
    if url and url != given and connections.look(blobs.any_object):
        found = f"it was opened with {given}" if given else "none was named"
        raise StoreError(
            f"{connections.name} has bodies in the object store {url}, and {found}. Give --blobs {url}, or set "
            "BATCHWRIGHT_BLOBS to it."
        )
    if outlying is None:
        return Bodies(connections)
    objects, new_state = outlying.objects, outlying.state

    def tied_under() -> str:
        there, known = connections.look(_where_bodies_are)
        return known if there == given else ""

    def settle() -> str:
        return tied_under() or connections.transact(partial(_settle_place, url=given, state=new_state))

    under, writer = state or new_state, outlying.writer
    bodies = Bodies(connections, objects, under=under, writer=writer, settle=settle, tied_under=tied_under)
    bodies.is_tied = url == given
    return bodies


def _where_bodies_are(connection: Connection) -> tuple[str, str]:
    return facts.get(connection, BLOBS), facts.get(connection, STATE)


def _settle_place(connection: Connection, *, url: str, state: str) -> str:
    """Says where bodies go from now on; returns what the names of this store's objects begin with there, so that no
    other store with the same URL takes them for its own. A place that nothing has come to yields to another. Raises
    StoreError where another process has begun to put into another."""
    dialect.wait_for_turn(connection, "batchwright facts")
    there, known = _where_bodies_are(connection)
    if there and there != url and blobs.any_object(connection):
        raise StoreError(
            f"Another process has begun to keep the bodies of this store in {there}, not in {url}. End this one, and "
            f"begin it again with --blobs {there}."
        )
    facts.put(connection, BLOBS, url)
    facts.put(connection, STATE, known or state)
    return known or state


def holds_batch(place: Path | str, batch_id: str) -> bool:
    """Whether a batch of that id is there, wherever its bodies lie. Raises StoreError."""
    connections = connect(place)
    try:
        return is_present(connections) and connections.look(partial(batches.find, batch_id=batch_id)) is not None
    finally:
        connections.close()


def upgrade_store(place: Path | str) -> bool:
    """Makes the tables there, or brings them up to date; False: they were."""
    connections = connect(place)
    try:
        return upgrade(connections)
    finally:
        connections.close()


def answers_within_s(url: str) -> float:
    """How long an address of the database is given to answer a new connection. Raises UsageError for a URL that cannot
    be read."""
    from batchwright.store.postgres_driver import connect_timeout_s

    return connect_timeout_s(url)


def connect(place: Path | str) -> Connections:
    """As `open_store` finds it: nothing is looked at or made but the folder of a state file."""
    if is_database_url(place):
        from batchwright.store.postgres import PostgresConnections  # needs a driver that others do without

        return PostgresConnections(str(place), shown=shown_url(str(place)))
    if str(place) == MEMORY:
        return SqliteConnections(None)
    path = Path(place).expanduser().absolute()
    _prepare_folder(path)
    return SqliteConnections(path)


def is_database_url(place: Path | str) -> bool:
    """Whether it names a database of a server, and no file."""
    return isinstance(place, str) and place.startswith(("postgresql://", "postgres://"))


def shown_url(url: str) -> str:
    """A database's URL without its password and its parameters."""
    parts = urlsplit(url)
    user = f"{parts.username}@" if parts.username else ""
    return f"postgresql://{user}{parts.netloc.rpartition('@')[2]}{parts.path}"


def look_at_state(path: Path) -> str:
    """What `open_store` would find there, in a few words; makes nothing and brings nothing up to date. Raises
    StoreError as that does."""
    path = path.expanduser().absolute()
    if path.exists():
        _prepare_folder(path)
        connections = SqliteConnections(path)
        try:
            return PRESENT[0] if is_present(connections) else "is brought up to date at the first use"
        finally:
            connections.close()
    nearest = next(folder for folder in path.parents if folder.exists())
    if kind := network_file_system(nearest):
        raise StoreError(_on_network(nearest, kind))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise StoreError(
            f"The state file {path} cannot be made: {nearest} is no folder that you may write to. Name another folder "
            "with BATCHWRIGHT_HOME."
        )
    return "is made at the first use"


def look_at_database(url: str) -> str:
    """The same of a database: whether it can be reached, and what schema it has."""
    connections = connect(url)
    try:
        return PRESENT[1] if is_present(connections) else "gets its tables at the first use"
    finally:
        connections.close()


def _on_network(folder: Path, kind: str) -> str:
    return (
        f"The state folder {folder} is on a network file system ({kind}), where a database that several processes "
        "share gets damaged. Name a folder on a local disk with BATCHWRIGHT_HOME."
    )


def _prepare_folder(path: Path) -> None:
    """The folder for nobody but its owner, and an empty file likewise: SQLite gives its log the same mode."""
    folder = path.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        kind = network_file_system(folder)
        if kind:
            raise StoreError(_on_network(folder, kind))
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        cause, check = error.strerror or str(error), "Check that the folder belongs to you and that you may write there"
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            cause = f"{error.filename} is a file, or leads through one"
            check = "A folder was expected: move the file away"
        raise StoreError(
            f"The state file {path} cannot be opened for writing: {cause}. {check}, or name another folder with "
            "BATCHWRIGHT_HOME."
        ) from error


def network_file_system(folder: Path, mounts: Path = MOUNTS) -> str:
    """The kind of network file system that holds the folder; empty for a local one, or where that is not known."""
    if not sys.platform.startswith("linux"):
        return ""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        real = folder.resolve()
    except OSError:
        return ""
    best, kind = Path("/"), ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
        # Of mounts on the same point the last one listed covers the others.
        if real.is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, kind = point, fields[2]
    return kind if kind in NETWORK_FILE_SYSTEMS else ""
