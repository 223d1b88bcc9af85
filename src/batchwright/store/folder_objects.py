"""A folder as an object store (`file:///folder`): for trying it out, and for a file system that machines share.

An object is a file, written beside its place, made durable and renamed: it is there whole or not at all.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from batchwright.core.errors import BodyLost, ObjectsAway, StoreError
from batchwright.ports.blobs import ListedObject

PART = ".part"
"""Ends the name of a file that is not an object yet; no object's name does."""
PUT_TRIES = 5


class FolderObjects:
    """Implements `ports.blobs.Objects`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._was_there = False

    @property
    def url(self) -> str:
        return f"file://{self._folder}"

    def probe(self, name: str) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.put(name, b"batchwright looks whether it may write here")
            self.get(name)
            self.delete([name])
        except (OSError, ObjectsAway) as error:
            raise StoreError(
                f"The object store {self.url} cannot be used: {error}. Name a folder that you may write to."
            ) from error

    def put(self, name: str, data: bytes) -> None:
        for _ in range(PUT_TRIES - 1):
            # Another process may remove a folder of the name, empty as it was, a moment after it was made here.
            with suppress(_FolderGone):
                return self._put(name, data)
        try:
            return self._put(name, data)
        except _FolderGone as error:
            raise self._away(error.error) from error

    def _put(self, name: str, data: bytes) -> None:
        """Raises _FolderGone."""
        path = self._folder / name
        unfinished = path.with_name(f"{path.name}.{os.getpid()}-{next(self._numbers)}{PART}")
        try:
            if self._was_there and not self._folder.is_dir():
                # Made anew it would take what belongs into the one that was moved, or is not mounted now.
                raise NotADirectoryError(errno.ENOTDIR, "the folder was there before and is not now")
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._was_there = True
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
            _to_disk(path.parent)
        except (FileNotFoundError, FileExistsError) as error:  # the latter where it went while it was being made
            raise _FolderGone(error) from error
        except OSError as error:
            with suppress(OSError):
                unfinished.unlink()
            raise self._away(error) from error

    def get(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError as error:
            raise self._absent(name, error) from error
        except OSError as error:
            raise self._away(error) from error

    def get_ranges(self, name: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        try:
            with open(self._folder / name, "rb") as file:
                found = []
                for offset, length in spans:
                    file.seek(offset)
                    found.append(file.read(length))
                    if len(found[-1]) != length:
                        raise BodyLost(
                            f"The object store {self.url}: the object {name} is shorter than what was written. Restore "
                            "it from a copy."
                        )
                return found
        except FileNotFoundError as error:
            raise self._absent(name, error) from error
        except OSError as error:
            raise self._away(error) from error

    def delete(self, names: Sequence[str]) -> None:
        try:
            for name in names:
                (self._folder / name).unlink(missing_ok=True)
                for folder in (self._folder / name).parents:
                    # The folders of its name go with the last that is in them.
                    if folder == self._folder or not _removed(folder):
                        break
        except NotADirectoryError:
            return
        except OSError as error:
            raise self._away(error) from error

    def listed(self, under: str, after: str, limit: int) -> list[ListedObject]:
        try:
            return list(itertools.islice(self._walk(self._folder / under, under, after), limit))
        except OSError as error:
            raise self._away(error) from error

    def _walk(self, folder: Path, name: str, after: str) -> Iterator[ListedObject]:
        """In the order of whole names: a folder's is read with its slash."""
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            return
        for entry in sorted(entries, key=lambda entry: entry.name + ("/" if entry.is_dir() else "")):
            own = f"{name}/{entry.name}"
            if entry.is_dir():
                # Every name in it begins so: none comes after `after` if this does not, cut to the same length.
                if f"{own}/" >= after[: len(own) + 1]:
                    yield from self._walk(Path(entry.path), own, after)
            elif own > after:
                with suppress(FileNotFoundError):
                    yield ListedObject(own, entry.stat().st_mtime_ns // 1_000_000)

    def _absent(self, name: str, error: OSError) -> Exception:
        if not self._folder.is_dir():
            return self._away(error)  # a share that is not mounted now has lost nothing
        return KeyError(name)

    def _away(self, error: OSError) -> ObjectsAway:
        return ObjectsAway(
            f"The object store {self.url} cannot be read or written ({error.strerror or error}). Check the folder and "
            "its disk; what was confirmed is not lost."
        )


class _FolderGone(Exception):
    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def _to_disk(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
