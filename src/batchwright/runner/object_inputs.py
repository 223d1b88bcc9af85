"""Inputs that are objects: copied as they are read, for they are read more than once and may change meanwhile.

The copy of one object has its bytes, so that it is the same input as a file of them. Those below a prefix become one
input in the order of their names: each decompressed, each begun on a line of its own, and of tables the header once.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from batchwright.core.errors import InputRefused, UsageError
from batchwright.core.object_urls import ObjectURL
from batchwright.ports.object_files import FoundObject, ObjectFiles
from batchwright.runner.compression import Damaged, decompressed
from batchwright.runner.sniff import InputFormat, format_of
from batchwright.runner.spool import COPY_BYTES, CopiedInput
from batchwright.wire.json_text import BOM

OpenObjects = Callable[[], ObjectFiles]
HEADER_BYTES = 1024 * 1024
"""Of a table's first line, at most."""


def open_objects_input(url: ObjectURL, files: ObjectFiles, spool_dir: Path | None) -> CopiedInput:
    """Raises UsageError, InputRefused, StoreError."""
    found = files.found(url)
    if not url.is_prefix:
        return CopiedInput(files.blocks(found[0]), spool_dir)
    return CopiedInput(_joined(found, files), spool_dir)


def _joined(found: list[FoundObject], files: ObjectFiles) -> Iterator[bytes]:
    first_format: InputFormat | None = None
    header = b""
    for position, each in enumerate(found):
        with _Blocks(each, files) as blocks:
            head = blocks.peek()
            form = format_of(each.url.name, head)
            if first_format is None:
                first_format = form
            if form is not first_format:
                raise UsageError(
                    f"{each.url} is {form.name} and {found[0].url} {first_format.name}: files below a prefix are one "
                    "input, so they must be of one kind"
                )
            if form is not InputFormat.JSONL:
                own = blocks.line()
                if position and own.rstrip(b"\r\n").removeprefix(BOM) != header:
                    raise InputRefused(f"{each.url} has other columns than {found[0].url}: {_shown(own)}")
                if not position:
                    header = own.rstrip(b"\r\n").removeprefix(BOM)
                    yield own
            yield from blocks.rest()


class _Blocks:
    """One object's text, decompressed."""

    def __init__(self, found: FoundObject, files: ObjectFiles) -> None:
        self._url = found.url
        self._open = ExitStack()
        raw = self._open.enter_context(io.BufferedReader(_Raw(files.blocks(found)), COPY_BYTES))
        self._text = self._open.enter_context(decompressed(raw))

    def __enter__(self) -> _Blocks:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def peek(self) -> bytes:
        return self._told(lambda: self._text.peek(COPY_BYTES))

    def line(self) -> bytes:
        line = self._told(lambda: self._text.readline(HEADER_BYTES))
        return line if line.endswith(b"\n") or not line else line + b"\n"

    def rest(self) -> Iterator[bytes]:
        last = b"\n"
        while block := self._told(lambda: self._text.read(COPY_BYTES)):
            yield block
            last = block[-1:]
        if last != b"\n":
            yield b"\n"

    def _told(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except Damaged as error:
            raise InputRefused(f"{self._url}: {error}, so nothing was sent") from error


class _Raw(io.RawIOBase):
    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        while not self._left:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._left = memoryview(block)
        target = memoryview(buffer)  # type: ignore[arg-type]  # what BufferedReader gives
        count = min(len(target), len(self._left))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _shown(line: bytes) -> str:
    return line[:200].decode("utf-8", "replace").strip()
