"""A copy of a state file, taken while others read and write it.

SQLite's own backup, in one step: one read transaction, which sees one moment and holds no writer up. In several steps
it would begin anew after every commit, and under a busy worker it would never end. Taken by the library that holds the
file open in this process: another one that closes it would let go of all its locks.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path

from batchwright.core.errors import StoreError, UsageError
from batchwright.store.sqlite import load_sqlite


def back_up(source: Path, target: Path) -> int:
    """Returns the copy's size in bytes. The target appears whole or not at all, for its owner alone. Raises UsageError
    where it exists already or its folder does not, StoreError where it cannot be written."""
    if os.path.lexists(target):
        raise _exists(target)
    sqlite = load_sqlite()
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with (
            closing(sqlite.connect(f"file:{_quoted(source)}?mode=ro", uri=True)) as reading,
            closing(sqlite.connect(unfinished)) as writing,
        ):
            reading.backup(writing)
        _to_disk(unfinished)
        os.link(unfinished, target)  # unlike a rename it takes nobody's place
        _to_disk(target.parent)
    except FileExistsError:
        raise _exists(target) from None
    except FileNotFoundError:
        raise UsageError(f"{target}: the folder {target.parent} does not exist; create it first") from None
    except (OSError, sqlite.Error) as error:
        raise StoreError(f"{target} cannot be written: {error}") from error
    finally:
        for rest in (
            unfinished,
            *(unfinished.with_name(unfinished.name + end) for end in ("-journal", "-wal", "-shm")),
        ):
            with suppress(OSError):
                rest.unlink()
    return target.stat().st_size


def _exists(target: Path) -> UsageError:
    return UsageError(f"{target} exists already; a backup takes no other file's place: name another")


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path))


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
