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
    tail: list[bytes] = []
    size = 0
    while block := file.read(BLOCK_BYTES):
        first, *rest = block.split(b"\n")
        if size <= max_line_bytes:
            tail.append(first)
        size += len(first)
        if not rest:
            if size > max_line_bytes and len(tail) > 1:
                tail = [b"".join(tail)[:KEPT_BYTES]]
            continue
        lines: list[bytes | LongLine] = [_finish(tail, size, max_line_bytes)]
        last = rest.pop()
        if len(block) > max_line_bytes:
            lines += [line if len(line) <= max_line_bytes else LongLine(len(line), line[:KEPT_BYTES]) for line in rest]
        else:
            lines += rest
        tail, size = [last], len(last)
        yield lines
    if size:
        yield [_finish(tail, size, max_line_bytes)]


def _finish(tail: list[bytes], size: int, max_line_bytes: int) -> bytes | LongLine:
    line = tail[0] if len(tail) == 1 else b"".join(tail)
    return line if size <= max_line_bytes else LongLine(size, line[:KEPT_BYTES])
