"""Bytes as they arrive -> lines: cut at the byte `\\n` and nowhere else, with a bound on each."""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    number: int
    """1-based, blank lines counted."""
    text: bytes
    """Without its line end."""


class LongLine(ValueError):
    """A line above the bound. `found` bytes of it have been seen, and there may be more."""

    def __init__(self, number: int, found: int) -> None:
        super().__init__(f"line {number} has {found:,} bytes or more")
        self.number, self.found = number, found


class LineCutter:
    """Blank lines are passed over. A last line without a line end is one too."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._number = 0
        self._begun: list[bytes] = []
        self._begun_bytes = 0

    def add(self, block: bytes) -> list[Line]:
        """The lines that this block completes. Raises LongLine, as soon as one is known to be."""
        first, *rest = block.split(b"\n")
        self._begin(first)
        if not rest:
            return []
        last = rest.pop()
        whole = [self._complete(), *rest]
        lines = []
        for text in whole:
            self._number += 1
            if len(text) > self._most_bytes:
                raise LongLine(self._number, len(text))
            if text and not text.isspace():
                lines.append(Line(self._number, text))
        self._begin(last)
        return lines

    def rest(self) -> list[Line]:
        """The line that the end of the input ends."""
        return self.add(b"\n") if self._begun_bytes else []

    def _begin(self, text: bytes) -> None:
        self._begun.append(text)
        self._begun_bytes += len(text)
        if self._begun_bytes > self._most_bytes:
            raise LongLine(self._number + 1, self._begun_bytes)

    def _complete(self) -> bytes:
        text = self._begun[0] if len(self._begun) == 1 else b"".join(self._begun)
        self._begun, self._begun_bytes = [], 0
        return text
