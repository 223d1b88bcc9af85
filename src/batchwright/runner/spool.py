"""Where an input's bytes come from: a file that can be read as often as needed, or a copy of what can be read once.

Standard input, pipes and rows from the library are copied to an anonymous temporary file first: a resume needs their
digest before the first row is taken in, and naming both lines of a repeated custom_id needs a second reading.
"""

from __future__ import annotations

import glob
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Protocol, cast

import msgspec

from batchwright.core.errors import StoreError, UsageError
from batchwright.runner.arrow_extra import is_frame, need_pyarrow
from batchwright.runner.blocks import BlocksReader
from batchwright.runner.compression import decompressed
from batchwright.runner.dataset_folder import files_of_dataset
from batchwright.runner.joining import COPY_BYTES, Part, PartMark, joined
from batchwright.wire.json_text import whole_characters

HEAD_BYTES = 64 * 1024
"""What is looked at to tell what kind of input it is."""


class Input(Protocol):
    """Bytes that can be read again and again, one reading at a time."""

    @property
    def marks(self) -> Sequence[PartMark]:
        """Where its parts begin, as far as it was read; empty for an input that has none."""

    def open(self) -> BufferedReader:
        """From the start, as stored (perhaps compressed). The caller closes it."""

    def digest(self) -> str:
        """Hex SHA-256 of the bytes as stored. About a second a gigabyte for a file, nothing for a copy."""

    def changed(self) -> bool:
        """Whether it was written to since this object was made."""

    def close(self) -> None: ...


class FileInput:
    """A regular file."""

    marks = ()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark = _mark(path)
        self._digest = ""

    def open(self) -> BufferedReader:
        return self._path.open("rb")

    def digest(self) -> str:
        if not self._digest:
            self._digest = digest_file(self._path)
        return self._digest

    def changed(self) -> bool:
        try:
            return _mark(self._path) != self._mark
        except OSError:
            return True

    def close(self) -> None:
        """Nothing is held."""


@contextmanager
def copying(spool_dir: Path | None) -> Iterator[None]:
    """What is written to a temporary file. Raises StoreError where that cannot be done, most often a full disk."""
    try:
        yield
    except OSError as error:
        where = f"the folder {spool_dir}" if spool_dir is not None else "the system's temporary folder"
        raise StoreError(
            f"What has to be kept of the input while it is read cannot be written to {where}: "
            f"{error.strerror or error}. Free some space there, or name another folder with TMPDIR."
        ) from error


class CopiedInput:
    """A copy of bytes that could be read only once; gone with this object, whatever happens to the process."""

    def __init__(self, blocks: Iterable[bytes], spool_dir: Path | None, marks: Sequence[PartMark] = ()) -> None:
        self.marks = marks
        with copying(spool_dir):
            self._file = tempfile.TemporaryFile(dir=spool_dir)  # noqa: SIM115 (closed by close)
        found = hashlib.sha256()
        try:
            for block in blocks:
                found.update(block)
                with copying(spool_dir):
                    self._file.write(block)
            with copying(spool_dir):
                self._file.flush()
        except BaseException:
            self._file.close()
            raise
        self._digest = found.hexdigest()

    def changed(self) -> bool:
        return False

    def open(self) -> BufferedReader:
        self._file.seek(0)
        return os.fdopen(os.dup(self._file.fileno()), "rb")

    def digest(self) -> str:
        return self._digest

    def close(self) -> None:
        self._file.close()


class JoinedFiles:
    """Regular files, one behind the other (`joining`)."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files = [FileInput(path) for path in paths]
        self._parts = [Part(str(path), partial(_blocks_of, path), path) for path in paths]
        self.marks: list[PartMark] = []
        self._digest = ""

    def open(self) -> BufferedReader:
        self.marks.clear()
        return BufferedReader(BlocksReader(joined(self._parts, self.marks)), COPY_BYTES)

    def digest(self) -> str:
        if not self._digest:
            with self.open() as whole:
                self._digest = hashlib.file_digest(whole, "sha256").hexdigest()
        return self._digest

    def changed(self) -> bool:
        return any(file.changed() for file in self._files)

    def close(self) -> None:
        """Nothing is held."""


def files_of(source: object) -> list[Path]:
    """The files that together are one input: a list of them, a pattern's, or those of a dataset's folder; none for any
    other input. Raises UsageError for a pattern or a folder that names none."""
    if isinstance(source, list | tuple):
        return list(source) if source and all(isinstance(path, Path) for path in source) else []
    return files_of_dataset(source) or files_of_pattern(source)


def files_of_pattern(source: object) -> list[Path]:
    """What `data/*.jsonl` names, in the order of the names; none for what is no pattern, or the name of a file. Raises
    UsageError for a pattern that no file fits."""
    if not isinstance(source, str | Path) or not glob.has_magic(str(source)) or Path(source).exists():
        return []
    found = sorted(path for path in map(Path, glob.glob(str(source), recursive=True)) if path.is_file())
    if not found:
        raise UsageError(f"{source}: no file has such a name (in {Path.cwd()})")
    return found


def fits_pattern(path: Path, pattern: str) -> bool:
    """Whether a file of that name is among those of the pattern as soon as it is there."""
    names, patterns = Path(os.path.abspath(path)).parts, Path(os.path.abspath(pattern)).parts
    if "**" in patterns:
        return fnmatch(os.path.abspath(path), os.path.abspath(pattern).replace("**/", "*"))
    return len(names) == len(patterns) and all(map(fnmatch, names, patterns))


def open_input(source: str | Path | Iterable[object], spool_dir: Path | None, stdin: BinaryIO) -> Input:
    """Raises UsageError for what is not there, cannot be read or is no rows at all."""
    if is_frame(source):
        need_pyarrow(f"a {type(source).__name__}")
        from batchwright.runner.arrow_files import frame_blocks

        return CopiedInput(frame_blocks(source), spool_dir)
    if isinstance(source, Mapping | bytes):
        raise UsageError(f"rows must be a list or an iterator of rows, got one {type(source).__name__}")
    paths = files_of(source)
    if not isinstance(source, str | Path):
        return _joined_files(paths) if paths else CopiedInput(encode_rows(source), spool_dir)
    if str(source) == "-":
        return CopiedInput(_blocks(stdin), spool_dir)
    try:
        if paths:
            return _joined_files(paths)
        path = Path(source)
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            path.open("rb").close()
            return FileInput(path)
        if not stat.S_ISDIR(mode):
            with path.open("rb") as pipe:
                return CopiedInput(_blocks(pipe), spool_dir)
    except FileNotFoundError:
        raise UsageError(
            f"{path}: no such file (in {Path.cwd()}); expected a rows file, or - for standard input"
        ) from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    raise UsageError(
        f"{path} is a folder; expected a rows file (.jsonl, .csv, .parquet, .arrow, also .gz or .zst), a pattern for "
        f"several ({path / '*.jsonl'}), or the folder of a saved dataset"
    )


def _joined_files(paths: Sequence[Path]) -> JoinedFiles:
    """Raises UsageError for one that is not there or may not be read."""
    for path in paths:
        try:
            path.open("rb").close()
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror or error}; expected a rows file") from error
    return JoinedFiles(paths)


def digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def encode_rows(rows: Iterable[object]) -> Iterator[bytes]:
    """The library's rows as JSONL: one line each, so that a row's line is its position plus one.

    Raises UsageError, naming the row, for what has no form in JSON.
    """
    for position, row in enumerate(rows):
        if isinstance(row, str | bytes):
            line = row.encode("utf-8", "backslashreplace") if isinstance(row, str) else row
            # A line break between JSON tokens is white space; inside a string it is invalid, before and after.
            line = line.replace(b"\r", b" ").replace(b"\n", b" ")
            yield (line if line.strip() else b'""') + b"\n"
        elif isinstance(row, Mapping):
            yield _encode_row(row, position) + b"\n"
        else:
            raise UsageError(f"row {position}: expected a dict or the text of a JSON object, got {type(row).__name__}")


def _encode_row(row: Mapping[object, object], position: int) -> bytes:
    try:
        return msgspec.json.encode(row if isinstance(row, dict) else dict(row))
    except UnicodeEncodeError:
        return msgspec.json.encode(_mend(row))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"row {position} cannot be written as JSON: {error}") from error


def _mend(value: object) -> object:
    """Half surrogates become U+FFFD, as in rows that are read."""
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, Mapping):
        return {_mend(key): _mend(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mend(item) for item in value]
    return value


@contextmanager
def opened(source: Input) -> Iterator[BinaryIO]:
    """The input's bytes, decompressed. Reading them raises Damaged."""
    with source.open() as raw, decompressed(raw) as plain:
        yield cast(BinaryIO, plain)


def _blocks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from _blocks(file)


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(COPY_BYTES):
        yield block


def _mark(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
