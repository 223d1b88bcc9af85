"""Several files as one input, in the order they are given: each decompressed, each begun on a line of its own, arrays
as lines, and of tables the header once. Typed tables become one stream of record batches (`joining_tables`)."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from batchwright.core.errors import Finding, InputRefused, UsageError
from batchwright.core.row_options import MAX_ROW_BYTES
from batchwright.runner.blocks import BlocksReader
from batchwright.runner.compression import Damaged, decompressed
from batchwright.runner.sniff import TYPED, InputFormat, format_of, refuse_foreign
from batchwright.wire.json_text import BOM
from batchwright.wire.row_elements import BrokenArray, read_elements

T = TypeVar("T")
COPY_BYTES = 1024 * 1024
HEADER_BYTES = 1024 * 1024
"""Of a table's first line, at most."""


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    """For people: a path, or a URL."""
    blocks: Callable[[], Iterator[bytes]]
    """Its bytes as stored."""
    path: Path | None = None
    """Where they are a file of this machine, which need not be copied to be read from its end."""


@dataclass(frozen=True, slots=True)
class PartMark:
    """Where a part begins in the whole."""

    name: str
    line: int
    """Of the whole, 1-based."""
    own_line: int
    """What that line is in the part: 2 where its header was left out."""


def placed(finding: Finding, marks: Sequence[PartMark]) -> Finding:
    """With the file that its line is in, where there are several."""
    at = bisect_right(marks, finding.line, key=lambda mark: mark.line) - 1
    if at < 0:
        return finding
    mark = marks[at]
    own_line = finding.line - mark.line + mark.own_line
    return replace(finding, message=f"{finding.message} ({mark.name}, line {own_line:,})")


def joined(parts: Sequence[Part], marks: list[PartMark]) -> Iterator[bytes]:
    """The whole, block by block; `marks` gets each part as it begins. Raises UsageError and InputRefused."""
    if _is_typed(parts[0]):
        from batchwright.runner.joining_tables import joined_tables  # what it imports takes a while

        yield from joined_tables(parts, marks)
        return
    first_kind: InputFormat | None = None
    header = b""
    line = 1
    for position, part in enumerate(parts):
        with _Text(part) as text:
            form = format_of(part.name, text.peek())
            kind = InputFormat.JSONL if form is InputFormat.ARRAY else form
            first_kind = first_kind or kind
            if kind is not first_kind:
                raise UsageError(
                    f"{part.name} is {kind.name} and {parts[0].name} {first_kind.name}: several files are one input, "
                    "so they must be of one kind"
                )
            own_line = 1
            if kind is not InputFormat.JSONL:
                own = text.line()
                if position and own.rstrip(b"\r\n").removeprefix(BOM) != header:
                    raise InputRefused(f"{part.name} has other columns than {parts[0].name}: {_shown(own)}")
                if position:
                    own_line = 2
                else:
                    header = own.rstrip(b"\r\n").removeprefix(BOM)
            marks.append(PartMark(part.name, line, own_line))
            if header and not position:
                line += 1
                yield own
            for block in text.elements() if form is InputFormat.ARRAY else text.rest():
                line += block.count(b"\n")
                yield block


def _is_typed(part: Part) -> bool:
    with _Text(part) as text:
        head = text.peek()
        refuse_foreign(part.name, head)
        return format_of(part.name, head) in TYPED


class _Text:
    """One part's text, decompressed."""

    def __init__(self, part: Part) -> None:
        self._name = part.name
        self._open = ExitStack()
        raw = self._open.enter_context(io.BufferedReader(BlocksReader(part.blocks()), COPY_BYTES))
        self._text = self._open.enter_context(decompressed(raw))

    def __enter__(self) -> _Text:
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

    def elements(self) -> Iterator[bytes]:
        found = read_elements(self._text, MAX_ROW_BYTES)
        try:
            while rows := self._told(lambda: next(found, [])):
                yield b"\n".join(rows) + b"\n"
        except BrokenArray as error:
            raise InputRefused(f"{self._name}: row {error.row}: {error.message}") from error

    def _told(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except Damaged as error:
            raise InputRefused(f"{self._name}: {error}, so nothing was sent") from error


def _shown(line: bytes) -> str:
    return line[:200].decode("utf-8", "replace").strip()
