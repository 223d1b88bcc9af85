"""Where an export is written: a file that appears whole or not at all, or a stream.

A file is written beside its destination under a temporary name, made durable, and renamed; a reader sees the earlier
file or the new one. Standard output, pipes and devices are written to as they are.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from batchwright.core.errors import StoreError
from batchwright.core.object_urls import ObjectURL
from batchwright.ports.object_files import ObjectWriter
from batchwright.runner.compression import split_name, squeezed_into

BUFFER_BYTES = 1024 * 1024


class Sink(Protocol):
    def write(self, data: bytes) -> None: ...

    def prepare(self) -> None:
        """Makes it durable; not yet visible. Blocks for as long as the disk needs."""

    def commit(self) -> None:
        """Makes what was prepared visible."""

    def abandon(self) -> None:
        """Nothing of it stays (a stream keeps what it got). Harmless after `commit`."""


class NoReaderYet(Exception):
    """A named pipe that nobody reads from: opening it would wait, deaf to everything else."""


def open_sink(path: Path | None) -> Sink:
    """None: standard output. Raises OSError where the place cannot be written to, and NoReaderYet."""
    if path is None:
        return _Stream(sys.stdout.buffer)
    descriptor = descriptor_of(path)
    if descriptor is not None:
        # What is open is written on as it is: opened by its name it would be emptied, or replaced.
        return _Stream(os.fdopen(os.dup(descriptor), "wb", buffering=BUFFER_BYTES), owned=True)
    if path.is_fifo():
        return _Stream(os.fdopen(_open_pipe(path), "wb", buffering=BUFFER_BYTES), owned=True)
    if path.exists() and not path.is_file() and not path.is_dir():
        return _Stream(open(path, "wb", buffering=BUFFER_BYTES), owned=True)
    return _WholeFile(path)


def descriptor_of(path: Path) -> int | None:
    """The open file of this process that a path such as /dev/stdout or /dev/fd/3 names; None for any other path."""
    found = _OPEN_FILE.fullmatch(os.path.abspath(path))
    if found is None:
        return None
    return _STANDARD.index(found["name"]) if found["name"] else int(found["number"])


_STANDARD = ("stdin", "stdout", "stderr")
_OPEN_FILE = re.compile(r"/dev/(?P<name>stdin|stdout|stderr)|(/dev|/proc/(self|thread-self))/fd/(?P<number>[0-9]{1,9})")


def _open_pipe(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise NoReaderYet from None
        raise
    os.set_blocking(descriptor, True)
    return descriptor


class _Stream:
    def __init__(self, stream: BinaryIO, *, owned: bool = False) -> None:
        self._stream, self._owned = stream, owned

    def write(self, data: bytes) -> None:
        try:
            self._stream.write(data)
        except OSError:
            self._forget()
            raise

    def prepare(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._forget()
            raise

    def commit(self) -> None:
        self._end()

    def abandon(self) -> None:
        with suppress(OSError):
            self._end()

    def _end(self) -> None:
        if self._owned:
            self._stream.close()

    def _forget(self) -> None:
        """Nobody takes it any more: what is buffered must not be tried again when the interpreter ends."""
        if not self._owned:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


class _WholeFile:
    def __init__(self, path: Path) -> None:
        # Through a link: the file it points to is replaced, the link stays.
        self._path = path.resolve()
        _remove_left_behind(self._path)
        self._temporary = self._path.with_name(f"{_prefix(self._path)}{os.getpid()}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
        descriptor = os.open(self._temporary, flags, 0o666)
        if self._path.exists() and hasattr(os, "fchmod"):
            os.fchmod(descriptor, stat.S_IMODE(self._path.stat().st_mode))
        self._file: BinaryIO = os.fdopen(descriptor, "wb", buffering=BUFFER_BYTES)
        self._squeezer = squeezed_into(self._file, split_name(self._path.name)[1])

    def write(self, data: bytes) -> None:
        with self._named():
            (self._squeezer or self._file).write(data)

    def prepare(self) -> None:
        with self._named():
            if self._squeezer is not None:
                self._squeezer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def commit(self) -> None:
        os.replace(self._temporary, self._path)
        if os.name == "posix":
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """A write's OSError names no file; this one's does."""
        try:
            yield
        except OSError as error:
            error.filename = str(self._path)
            raise

    def abandon(self) -> None:
        # A full disk again, while the buffer is flushed: the file goes anyway.
        with suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)


class ObjectSink:
    """An object of a store: sent as it is written, and there once all of it was."""

    def __init__(self, url: ObjectURL, writer: ObjectWriter) -> None:
        self._url = url
        self._writer = writer
        self._sent = _Sent(self)
        self._squeezer = squeezed_into(self._sent, split_name(url.name)[1])

    def write(self, data: bytes) -> None:
        (self._squeezer or self._sent).write(data)

    def prepare(self) -> None:
        if self._squeezer is not None:
            self._squeezer.close()

    def commit(self) -> None:
        with self.told():
            self._writer.finish()

    def abandon(self) -> None:
        self._writer.abandon()

    @contextmanager
    def told(self) -> Iterator[None]:
        """What a store says, as what a disk says: what is owed can be written again."""
        try:
            yield
        except StoreError as error:
            raise OSError(errno.EIO, str(error).rstrip("."), str(self._url)) from error

    def send(self, data: bytes) -> None:
        with self.told():
            self._writer.write(data)


class _Sent:
    """What a compressor writes to."""

    def __init__(self, sink: ObjectSink) -> None:
        self._sink = sink

    def write(self, data: bytes) -> int:
        self._sink.send(bytes(data))
        return len(data)

    def flush(self) -> None:
        """There is nothing to be made durable before the end."""


def _prefix(path: Path) -> str:
    return f".{path.name}."


def _remove_left_behind(path: Path) -> None:
    """Removes temporary files of processes that were killed while they wrote this one."""
    if os.name != "posix":
        return
    prefix = _prefix(path)
    for entry in path.parent.glob("*.part"):
        number = entry.name.removeprefix(prefix).removesuffix(".part")
        if entry.name.startswith(prefix) and number.isdigit() and not _lives(int(number)):
            entry.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
