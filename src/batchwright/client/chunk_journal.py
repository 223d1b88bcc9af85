"""Chunks that are at a service, on disk: what lets a killed process's successor fetch what was paid for.

A chunk is written, and synced, before it is submitted, with its idempotency key and the very bytes of the submit; its
batch id as soon as the service names it, before anything else is asked. So a successor finds either a batch to ask for,
or a submit to say again under the same key. Each process has a folder of its own beside a lock; it reads those whose
lock is free. A chunk is dropped once its answers are surely in the store.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from batchwright.core.errors import StoreError

CHUNK, BATCH_ID = ".chunk", ".batch"
KEPT_MS = 7 * 86_400_000
"""A chunk that nobody has asked for by then never will be."""
MAKING_TRIES = 10
"""Of a folder that others remove meanwhile, each of which ends with that: more than end at one moment."""
KEYS_KEPT_MS = 86_400_000
"""So long services keep idempotency keys."""


class Head(msgspec.Struct, kw_only=True):
    """The first line of a chunk's file; the rest is the submit's body."""

    key: str
    rows: list[str]
    """A digest of each row, in order."""
    written_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftChunk:
    """A chunk of a process that is gone."""

    key: str
    rows: list[str]
    body: bytes
    batch_id: str
    """Empty: the service was not heard to name one."""
    too_old: bool = False
    """It was not, and by now the service may take the submit for a new one."""


class Held(Protocol):
    def release(self) -> None: ...


TakeLock = Callable[[str], Held | None]
"""None: a live process has it."""


class ChunkJournal:
    """Methods block; call them in a thread. `owner` is a name that no other process ever has."""

    def __init__(self, folder: Path, *, owner: str, take_lock: TakeLock) -> None:
        self._folder = folder
        self._own = folder / owner
        self._take_lock = take_lock
        self._lock = take_lock(_lock_name(folder, owner))

    def write(self, head: Head, body: bytes) -> None:
        """Returns once it is durable."""
        if not self._own.is_dir():
            with _explained(self._own):
                self._make_own()
                _sync_folder(self._folder)
        self._put(f"{head.key}{CHUNK}", msgspec.json.encode(head) + b"\n" + body)

    def name(self, key: str, batch_id: str) -> None:
        """The service has made this batch of it. Returns once that is durable."""
        self._put(f"{key}{BATCH_ID}", batch_id.encode())

    def drop(self, key: str) -> None:
        """What cannot be removed now stays, and is adopted by the next process for nothing."""
        for suffix in (CHUNK, BATCH_ID):
            with contextlib.suppress(OSError):
                (self._own / f"{key}{suffix}").unlink()

    def left_over(self, now_ms: int) -> list[LeftChunk]:
        """Those of processes that are gone; they are this one's from here on. Old ones are removed."""
        with _explained(self._folder):
            return self._adopted(now_ms)

    def _adopted(self, now_ms: int) -> list[LeftChunk]:
        found = []
        for folder in self._folders():
            if folder == self._own or not folder.is_dir():
                continue
            lock = self._take_lock(_lock_name(self._folder, folder.name))
            if lock is None:
                continue
            found += list(self._adopt(folder, now_ms))
            lock.release()
        return found

    def close(self) -> None:
        """Chunks that were not dropped stay for the next process."""
        for folder in (self._own, self._folder, self._folder.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()  # which refuses where something is left in it
        if self._lock is not None:
            self._lock.release()

    def _adopt(self, folder: Path, now_ms: int) -> Iterator[LeftChunk]:
        """Moves a dead process's chunks here, the id before the chunk: a half of it found later still says all."""
        self._make_own()
        for path in sorted(folder.glob(f"*{CHUNK}")):
            named = path.with_suffix(BATCH_ID)
            line, _, body = path.read_bytes().partition(b"\n")
            try:
                head = msgspec.json.decode(line, type=Head)
            except msgspec.DecodeError:
                head = None  # torn: it was not durable, so it was never submitted
            if head is None or now_ms - head.written_ms > KEPT_MS:
                path.unlink()
                named.unlink(missing_ok=True)
                continue
            batch_id = _read_id(named)
            if batch_id:
                os.replace(named, self._own / named.name)
            os.replace(path, self._own / path.name)
            too_old = not batch_id and now_ms - head.written_ms > KEYS_KEPT_MS
            yield LeftChunk(key=head.key, rows=head.rows, body=body, batch_id=batch_id, too_old=too_old)
        for rest in folder.iterdir():
            rest.unlink()
        folder.rmdir()

    def _folders(self) -> list[Path]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # the latter is explained at the first write
            return sorted(self._folder.iterdir())
        return []

    def _make_own(self) -> None:
        for _ in range(MAKING_TRIES):
            # Between a folder and the one in it another process, which ends, may remove the empty one.
            with contextlib.suppress(FileNotFoundError):
                self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
                return
        raise StoreError(f"{self._own} cannot be made: what it is in is removed each time. Give the command again.")

    def _put(self, name: str, data: bytes) -> None:
        path = self._own / name
        beside = path.with_name(f"{name}.tmp")
        with _explained(path):
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
            _sync_folder(self._own)


def _read_id(path: Path) -> str:
    """Empty where there is none, or none that was written by us: the submit is said again under its key then."""
    try:
        return path.read_bytes().decode("ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}. Rows are not sent before it is; make room, or "
            "name another state folder with BATCHWRIGHT_HOME."
        ) from error


def _lock_name(folder: Path, owner: str) -> str:
    return f"{folder.name}-{owner}"


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
