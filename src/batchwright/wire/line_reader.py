"""Bytes -> lines: cut at the byte `\\n` and nowhere else, whatever a line holds, with a bound on each.

`str.splitlines` and text mode end lines at characters that are legal inside JSON strings (U+2028, U+0085, form feed).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

BLOCK_BYTES = 256 * 1024
"""Read at once: large enough that cutting costs nothing, small enough not to count."""
KEPT_BYTES = 4096
"""So much of a line above the limit is kept, for people to recognise it."""


class Readable(Protocol):
    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none: the end."""


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line above the limit: it was read past, not kept."""

    size: int
    head: bytes


def read_lines(file: Readable, max_line_bytes: int) -> Iterator[list[bytes | LongLine]]:
    """Lines in order, without their `\\n`, a block's worth at a time. A last line without `\\n` is a line too; what
    follows a final `\\n` is none."""
    cutter = LineCutter(max_line_bytes)
    while block := file.read(BLOCK_BYTES):
        if lines := cutter.add(block):
            yield lines
    if lines := cutter.rest():
        yield lines


class LineCutter:
    """The same for bytes that arrive, however they are cut into blocks."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._begun: list[bytes] = []
        self.begun_bytes = 0
        """Of the line that is not ended yet; above the limit it will be a LongLine."""

    def add(self, block: bytes) -> list[bytes | LongLine]:
        """The lines that this block completes."""
        most = self._max_line_bytes
        first, *rest = block.split(b"\n")
        if self.begun_bytes <= most:
            self._begun.append(first)
        self.begun_bytes += len(first)
        if not rest:
            if self.begun_bytes > most and len(self._begun) > 1:
                self._begun = [b"".join(self._begun)[:KEPT_BYTES]]
            return []
        lines: list[bytes | LongLine] = [self._complete()]
        last = rest.pop()
        if len(block) > most:
            lines += [line if len(line) <= most else LongLine(len(line), line[:KEPT_BYTES]) for line in rest]
        else:
            lines += rest
        self._begun, self.begun_bytes = [last], len(last)
        return lines

    def rest(self) -> list[bytes | LongLine]:
        """The line that the end of the input ends."""
        return [self._complete()] if self.begun_bytes else []

    def _complete(self) -> bytes | LongLine:
        line = self._begun[0] if len(self._begun) == 1 else b"".join(self._begun)
        return line if self.begun_bytes <= self._max_line_bytes else LongLine(self.begun_bytes, line[:KEPT_BYTES])
