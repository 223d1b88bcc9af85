"""Locks end with their holder, and a lock that can be taken proves that it has ended."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchwright.core.errors import StoreError
from batchwright.ports.locks import Locks
from batchwright.store.file_locks import FOLDER, FileLocks

HOLD = """
import sys
from pathlib import Path
from batchwright.store.file_locks import FileLocks
lock = FileLocks(Path(sys.argv[1])).take("worker-w-1", holder="process 4711")
print("held" if lock else "refused", flush=True)
sys.stdin.read()
"""


def other_process(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() in ("held", "refused")
    return process


def test_a_lock_is_held_until_it_is_released(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path)
    as_seen: Locks = locks
    assert as_seen.is_free("worker-w-1")
    lock = locks.take("worker-w-1", holder="process 1")
    assert lock is not None
    assert not as_seen.is_free("worker-w-1")
    assert as_seen.is_free("worker-w-2")
    assert locks.take("worker-w-1", holder="process 2") is None
    assert locks.holder("worker-w-1") == "process 1"
    lock.release()
    lock.release()
    assert as_seen.is_free("worker-w-1")
    assert locks.holder("worker-w-1") == ""
    again = locks.take("worker-w-1", holder="process 3")
    assert again is not None
    again.release()


def test_asking_does_not_keep_a_lock(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path)
    process = other_process(tmp_path)
    process.kill()
    process.wait()
    process.communicate()
    assert list((tmp_path / FOLDER).iterdir()), "a killed holder leaves its file"
    assert locks.is_free("worker-w-1")
    assert list((tmp_path / FOLDER).iterdir()) == []
    assert locks.is_free("worker-w-1")


def test_a_process_that_is_killed_frees_its_lock(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path)
    process = other_process(tmp_path)
    assert not locks.is_free("worker-w-1")
    assert locks.holder("worker-w-1") == "process 4711"
    assert locks.take("worker-w-1", holder="me") is None
    process.kill()
    process.communicate()
    assert locks.is_free("worker-w-1")
    lock = locks.take("worker-w-1", holder="me")
    assert lock is not None
    assert locks.holder("worker-w-1") == "me"
    lock.release()


def test_names_are_not_paths(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path)
    lock = locks.take("worker-../a/b:c-1", holder="")
    assert lock is not None
    assert [path.parent for path in (tmp_path / "locks").iterdir()] == [tmp_path / "locks"]
    assert not locks.is_free("worker-../a/b:c-1")
    lock.release()


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be removed there")
def test_a_lock_file_that_was_removed_meanwhile_is_not_taken_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from batchwright.store import file_locks

    locks = FileLocks(tmp_path)
    first = locks.take("run", holder="first")
    assert first is not None
    real = file_locks._lock
    seen: list[int] = []

    def release_in_between(descriptor: int) -> bool:
        if not seen:
            seen.append(descriptor)
            first.release()
        return real(descriptor)

    monkeypatch.setattr(file_locks, "_lock", release_in_between)
    second = locks.take("run", holder="second")
    assert second is not None
    assert not locks.is_free("run")
    assert locks.holder("run") == "second"
    second.release()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("a file")
    with pytest.raises(StoreError, match="cannot be taken"):
        FileLocks(tmp_path).take("run", holder="")


def test_a_lock_whose_file_cannot_be_removed_is_released_all_the_same(tmp_path: Path) -> None:
    """As in a folder that became read-only: here something else stands under its name."""
    locks = FileLocks(tmp_path)
    held = locks.take("one", holder="me")
    assert held is not None
    (path,) = (tmp_path / "locks").iterdir()
    path.unlink()
    path.mkdir()
    held.release()
    held.release()
    path.rmdir()
    assert locks.take("one", holder="other") is not None


def test_a_lock_that_cannot_be_looked_at_is_not_taken_for_free(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path)
    held = locks.take("one", holder="me")
    assert held is not None
    (path,) = (tmp_path / "locks").iterdir()
    held.release()
    path.symlink_to(path.name)
    with pytest.raises(StoreError, match="cannot be looked at"):
        locks.is_free("one")


def test_a_lock_that_could_not_be_written_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: whoever tries again, in this very process too, must not meet it."""
    locks = FileLocks(tmp_path)

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(StoreError, match="No space left"):
            locks.take("worker-w-1", holder="process 1")
    assert locks.is_free("worker-w-1")
    lock = locks.take("worker-w-1", holder="process 1")
    assert lock is not None
    lock.release()
