"""The state file: who may read it, where it may lie, what is said when it is not what it should be."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from batchwright.core.errors import DiskFull, StoreError
from batchwright.store import parts, sqlite
from batchwright.store.open import network_file_system, open_store
from support.store_drive import Worker, accept, new_segment, submit

SQLITE = sqlite.load_sqlite()
SECRET = "hunter2"


def pragma(path: Path, name: str) -> object:
    connection = SQLITE.connect(str(path))
    try:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]
    finally:
        connection.close()


def damage(path: Path, statement: str) -> None:
    connection = SQLITE.connect(str(path))
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no modes there")
def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state" / "batchwright.db"
    store = open_store(path)
    submit(store, "batch_a", [new_segment(0)])
    assert path.parent.stat().st_mode & 0o777 == 0o700
    modes = {name.name: name.stat().st_mode & 0o777 for name in path.parent.iterdir()}
    assert modes == {"batchwright.db": 0o600, "batchwright.db-wal": 0o600, "batchwright.db-shm": 0o600}
    store.close()


def test_a_new_file_has_the_settings_that_cannot_be_changed_later(tmp_path: Path) -> None:
    path = tmp_path / "batchwright.db"
    open_store(path).close()
    assert pragma(path, "auto_vacuum") == 2
    assert pragma(path, "journal_mode") == "wal"


def test_everything_is_there_after_it_was_closed(tmp_path: Path) -> None:
    path = tmp_path / "batchwright.db"
    store = open_store(path)
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    worker.finish(worker.one())
    before = store.get_batch("batch_a")
    store.close()
    again = open_store(path)
    assert again.get_batch("batch_a") == before
    assert again.check("batch_a") == []
    again.close()


def test_deleted_blobs_give_their_space_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MERGE_ABOVE", 1)
    path = tmp_path / "batchwright.db"
    store = open_store(path)
    accept(store, "batch_a", [new_segment(0, padding=4_000_000)])
    store.drop_batch("batch_a")
    assert pragma(path, "page_count") == pytest.approx(1_000, abs=100)
    submit(store, "batch_b", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    first, second = worker.claim(limit=2)
    worker.checkpoint(first.reserve(0, 1).change(), second.reserve(0).change())
    worker.checkpoint(first.answer(0).change())
    worker.checkpoint(first.answer(1).change())
    worker.checkpoint(first.reserve(2, 3).change())
    worker.checkpoint(first.answer(2, 3).change())
    assert store.sweep_step(99_000_000) == 2
    assert int(str(pragma(path, "page_count"))) < 200
    store.close()


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "batchwright.db"
    path.write_bytes(b"dear diary, " * 500)
    with pytest.raises(StoreError, match="not a database of batchwright"):
        open_store(path)
    assert path.read_bytes() == b"dear diary, " * 500


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "batchwright.db"
    damage(path, "CREATE TABLE songs (title)")
    with pytest.raises(StoreError, match="but not one of batchwright"):
        open_store(path)


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "batchwright.db"
    open_store(path).close()
    damage(path, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"made by another version.*move the file away"):
        open_store(path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(StoreError, match="cannot be opened for writing"):
        open_store(tmp_path / "state" / "batchwright.db")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="belongs to you"):
        open_store(tmp_path / "batchwright.db")


def test_a_full_disk_loses_nothing_that_was_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "batchwright.db"
    store = open_store(path)
    submit(store, "batch_a", [new_segment(0)])
    pages = int(str(pragma(path, "page_count")))
    with store._connections.write() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 10}")
    with pytest.raises(DiskFull, match="the disk is full"):
        submit(store, "batch_b", [new_segment(0, padding=200_000)])
    worker = Worker(store)
    worker.run()
    assert store.get_batch("batch_a").facts.settled
    assert store.check("batch_a") == []
    assert [row.batch_id for row in store.find_batches()] == ["batch_a"]
    store.close()


MOUNTS = """/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
//box/share /mnt/my\\040share cifs rw 0 0
me@host: /home/me/far fuse.sshfs rw 0 0
tmpfs /home/me/near tmpfs rw 0 0
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mounts are read on Linux")
@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib/x", ""),
        ("/home/you/state", "nfs4"),
        ("/homeless", ""),
        ("/mnt/my share/state", "cifs"),
        ("/home/me/far/state", "fuse.sshfs"),
        ("/home/me/near/state", ""),
    ],
)
def test_network_file_systems_are_known_by_their_mounts(tmp_path: Path, folder: str, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert network_file_system(Path(folder), mounts) == kind


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mounts are read on Linux")
def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchwright.store.open.network_file_system", lambda _: "nfs4")
    with pytest.raises(StoreError, match=r"network file system \(nfs4\).*BATCHWRIGHT_HOME"):
        open_store(tmp_path / "batchwright.db")


def test_an_old_sqlite_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "OLDEST_SQLITE", (9, 0, 0))
    with pytest.raises(StoreError, match=r"needs SQLite 9.0.0 or newer.*pip install pysqlite3"):
        open_store(":memory:")


OTHER_PROCESS = """
import sys
from support.store_drive import Worker
from batchwright.store.open import open_store
store = open_store(sys.argv[1])
print(Worker(store, sys.argv[2]).run(), flush=True)
store.close()
"""


def test_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "batchwright.db"
    store = open_store(path)
    submit(store, "batch_a", [new_segment(number) for number in range(60)])
    version, changes = store.data_version(), store.changes()
    assert store.data_version() == version
    tests = str(Path(__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OTHER_PROCESS, str(path), name], stdout=subprocess.PIPE, text=True, env=environment
        )
        for name in ("one", "two")
    ]
    mine = Worker(store, "mine").run()
    theirs = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert mine + sum(theirs) == 60
    assert store.data_version() != version
    assert store.changes() != changes
    assert store.get_batch("batch_a").facts.settled
    assert store.check("batch_a") == []
    store.close()


def test_a_killed_process_leaves_what_it_committed(tmp_path: Path) -> None:
    path = tmp_path / "batchwright.db"
    store = open_store(path)
    submit(store, "batch_a", [new_segment(number) for number in range(3)])
    script = """
import os, sys
from support.store_drive import Worker
from batchwright.store.open import open_store
store = open_store(sys.argv[1])
worker = Worker(store, "killed")
worker.finish(worker.one())
worker.checkpoint(worker.one().reserve(0).change())
os.kill(os.getpid(), 9)
"""
    tests = str(Path(__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    killed = subprocess.run([sys.executable, "-c", script, str(path)], env=environment, check=False)
    assert killed.returncode != 0
    (row,) = store.live_workers()
    assert store.mark_dead([row.worker]) == 1
    worker = Worker(store)
    found = worker.one()
    assert found.claimed.first == (0,)
    worker.finish(found)
    worker.run()
    tally = store.get_batch("batch_a").tally
    assert (sum(tally.counts.values()), tally.doubts) == (12, 1)
    assert store.check("batch_a") == []
    store.close()


def test_a_row_that_is_refused_is_not_shown(tmp_path: Path) -> None:
    """What people wrote is in a statement's parameters."""
    path = tmp_path / "batchwright.db"
    store = open_store(path)
    damage(path, "CREATE TRIGGER refuses BEFORE INSERT ON blob BEGIN SELECT RAISE(ABORT, 'refused'); END")
    with pytest.raises(DBAPIError, match="refused") as raised:
        submit(store, "batch_a", [new_segment(0, ids=[SECRET] * 4)])
    shown = "".join(traceback.format_exception(raised.value))
    assert "INSERT INTO blob" in shown, "which statement it was is told"
    assert SECRET not in shown
    store.close()


def test_a_file_that_another_keeps_locked_is_explained_where_pages_are_given_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That goes to the driver's own cursor, past what explains the others' errors."""
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 1)
    path = tmp_path / "batchwright.db"
    open_store(path).close()
    connections = sqlite.SqliteConnections(path)
    other = SQLITE.connect(str(path))
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreError, match="has kept it locked"):
            connections.give_back_pages()
    finally:
        other.close()
        connections.close()
