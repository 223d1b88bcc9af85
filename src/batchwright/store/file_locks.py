"""OS locks in the state folder, a file each: `ports.locks` for workers, and the locks of whoever plans or runs a batch.

A lock belongs to a process and ends with it, however it ends: one that can be taken proves that its holder is gone.
Each lock is a file of its own, empty but for its holder's words, which say to people who holds it.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from batchwright.core.errors import StoreError

FOLDER = "locks"
PLACE_FILE = "place"
HOLDER_MAX_BYTES = 200

if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 1 << 20
    """Windows forbids reading what is locked, so a byte far behind the holder's words is."""

    def _lock(descriptor: int) -> bool:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLK):
                return False
            raise
        return True

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            # flock, not lockf: it belongs to the open file, so a second open in this very process finds it taken.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True


class HeldLock:
    """A lock this process holds until `release`, or until it ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def release(self) -> None:
        """Harmless when called twice."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        # The descriptor is the lock. The file is only removed for tidiness: in a folder that became read-only it stays.
        if sys.platform == "win32":
            # An open file cannot be removed there.
            os.close(descriptor)
            with suppress(OSError):
                self._path.unlink()
        else:
            # Removed while it is still held: whoever opened it before finds, once it has the lock, that it is no more.
            with suppress(OSError):
                self._path.unlink()
            os.close(descriptor)


class FileLocks:
    """All locks of one state folder; `folder` is made when the first lock is taken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def take(self, name: str, *, holder: str) -> HeldLock | None:
        """Takes the lock at once, or returns None if a live process has it. `holder` names this one to people.

        Raises StoreError where the folder cannot be written.
        """
        path = self._path(name)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            while True:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
                if not _lock(descriptor):
                    os.close(descriptor)
                    return None
                if _is_still(path, descriptor):
                    break
                os.close(descriptor)
            try:
                os.ftruncate(descriptor, 0)
                os.lseek(descriptor, 0, os.SEEK_SET)
                os.write(descriptor, holder.encode("utf-8", "replace")[:HOLDER_MAX_BYTES])
            except OSError:
                os.close(descriptor)  # which lets go of it: the next try is not to meet this one's lock
                raise
        except OSError as error:
            raise _no_lock(path, "taken", error) from error
        return HeldLock(path, descriptor)

    def is_free(self, name: str) -> bool:
        """True: nobody holds it, so whoever was named by it has ended. Never waits, and does not keep it; the file that
        a killed holder has left is removed.

        Raises StoreError where that cannot be told."""
        try:
            descriptor = os.open(self._path(name), os.O_RDWR)
        except FileNotFoundError:
            return True
        except OSError as error:
            raise _no_lock(self._path(name), "looked at", error) from error
        try:
            if not _lock(descriptor):
                return False
            if _is_still(self._path(name), descriptor):
                # As in `release`: whoever has opened it meanwhile finds that it is no more. (Windows keeps it.)
                with suppress(OSError):
                    self._path(name).unlink()
            return True
        finally:
            os.close(descriptor)

    def place(self, fresh: str) -> str:
        """A name of this folder, the same for whoever opens it: `fresh` is the name if it has none yet."""
        path = self._folder / PLACE_FILE
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = path.with_name(f"{PLACE_FILE}.{fresh}")
            made.write_text(fresh)
            with suppress(FileExistsError):
                os.link(made, path)  # whole or not at all, and nobody's place is taken
            made.unlink()
            return path.read_text().strip()
        except OSError as error:
            raise _no_lock(path, "made", error) from error

    def holder(self, name: str) -> str:
        """The words of whoever holds it, for people; of one that ended without releasing it too. Empty: nobody."""
        try:
            with self._path(name).open("rb") as file:
                return file.read(HOLDER_MAX_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def _path(self, name: str) -> Path:
        return self._folder / f"{quote(name, safe='')}.lock"


def _no_lock(path: Path, done: str, error: OSError) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "Free some space"
    else:
        remedy = "Check that the state folder belongs to you and that you may write into it"
    return StoreError(
        f"The lock {path} cannot be {done}: {error.strerror or error}. {remedy}, or name another state folder with "
        "BATCHWRIGHT_HOME."
    )


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the file that was locked is the one that stands under the name now."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
