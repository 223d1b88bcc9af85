"""Pictures on this machine: looked at when their row comes in, read when it is sent."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from batchwright.core.object_urls import object_url
from batchwright.core.records import InputRow, RowFile
from batchwright.core.row_options import Images
from batchwright.core.rows import SourceRow
from batchwright.ports.row_files import FileUnusable
from batchwright.runner.spool import files_of_pattern
from batchwright.wire.images import MAGIC_BYTES, fill_in, media_type_of

MAX_IMAGE_BYTES = 20 * 1024 * 1024
"""As much as vendors take in a request, and as base64 (27 MiB) it leaves room in a row's 32 MiB."""
KEPT_LOOKS = 10_000
"""Files whose digest is kept by path, size and time: the same picture in many rows is read once, and once for the
batch's identity and its intake together."""

_BLOCK_BYTES = 1024 * 1024


def images_of(columns: tuple[str, ...], source: object) -> Images | None:
    """The columns of `--image`, with what looks at the files they name."""
    return Images(columns, FileLooks(folder_of(source)).look) if columns else None


def folder_of(source: object) -> Path | None:
    """Where relative paths begin: at the input's own file, else here. None: at several places, since the input is files
    of several folders."""
    if not isinstance(source, str | Path) or str(source) == "-" or object_url(source) is not None:
        return Path.cwd()
    folders = {path.resolve().parent for path in files_of_pattern(source) or (Path(source),)}
    return folders.pop() if len(folders) == 1 else None


def digest_of_files(chunks: Iterable[Sequence[SourceRow]]) -> str:
    """Of the files that rows name, in their order: 16 hex digits."""
    found = hashlib.sha256()
    for rows in chunks:
        found.update("".join([file.digest for row in rows for file in row.row.files]).encode())
    return found.hexdigest()[:16]


class FileLooks:
    """Looks at files as rows come in. For one thread at a time."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._found: dict[tuple[str, int, int], RowFile] = {}

    def look(self, name: str) -> RowFile | str:
        """The file of that name, read once; or why it cannot be sent."""
        if object_url(name) is not None:
            return _problem(name, "is an object of a store; give a URL that the vendor can fetch, or a file")
        path = Path(name)
        if not path.is_absolute():
            if self._folder is None:
                return _problem(name, "is a relative path, and the input is of several folders; write the whole path")
            path = self._folder / path
        try:
            return self._known(path)
        except ValueError:  # a zero byte, a lone surrogate
            return _problem(name, "is no name that a file can have")
        except FileNotFoundError:
            return _problem(name, f"is not there ({path}); relative paths begin at the input's folder")
        except OSError as error:
            return _problem(name, f"cannot be read: {error.strerror or error}")
        except _Unfit as error:
            return _problem(name, str(error))

    def _known(self, path: Path) -> RowFile:
        found = path.stat()
        key = (str(path), found.st_size, found.st_mtime_ns)
        if key not in self._found:
            if len(self._found) >= KEPT_LOOKS:
                self._found.clear()
            self._found[key] = _read_first(path, found)
        return self._found[key]


class LocalFiles:
    """Implements `ports.row_files.RowFiles`."""

    def filled(self, row: InputRow) -> bytes:
        return fill_in(row.body, {file.digest: (file, _read_again(file)) for file in row.files})


class _Unfit(Exception):
    pass


def _read_first(path: Path, found: os.stat_result) -> RowFile:
    if not stat.S_ISREG(found.st_mode):
        raise _Unfit("is no file")
    if found.st_size > MAX_IMAGE_BYTES:
        raise _Unfit(f"has {found.st_size:,} bytes; a picture may have at most {MAX_IMAGE_BYTES:,}. Make it smaller")
    with path.open("rb") as file:
        head = file.read(MAGIC_BYTES)
        media_type = media_type_of(head)
        if not media_type:
            raise _Unfit("is no PNG, JPEG, GIF or WebP by its first bytes, whatever it is called")
        digest, size = hashlib.sha256(head), len(head)
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    return RowFile(path=os.fspath(path.absolute()), digest=digest.hexdigest(), size=size, media_type=media_type)


def _read_again(file: RowFile) -> bytes:
    again = "Put it back, or run the same command: it makes a new batch of what is there now"
    try:
        with open(file.path, "rb") as opened:
            data = opened.read(file.size + 1)
    except OSError as error:
        raise FileUnusable(
            "file_missing",
            f"{file.path} cannot be read on this machine ({error.strerror or error}), so the row was not sent. A row's "
            f"pictures must be at the same path on every machine that works on it. {again}",
        ) from None
    if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.digest:
        raise FileUnusable(
            "file_changed", f"{file.path} has changed since its row came in, so the row was not sent. {again}"
        )
    return data


def _problem(name: str, what: str) -> str:
    shown = name if len(name) <= 200 else name[:200] + "..."
    return f"the picture {shown!r} {what}"
