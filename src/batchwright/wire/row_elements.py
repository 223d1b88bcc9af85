"""Bytes -> the elements of one JSON array, as it is streamed: none is read further than to where it ends.

Cut as a submit's array is (`row_array`): what an element holds is its reader's to judge, so that one bad row is a
finding of that row. Only what makes the cutting itself a guess breaks the array.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from batchwright.wire.json_text import BOM
from batchwright.wire.line_reader import BLOCK_BYTES, Readable
from batchwright.wire.row_array import end_of_value, find_row_end

_skip_blanks = re.compile(rb"[ \t\r\n]*+").match


class BrokenArray(Exception):
    """No array whose elements can be told apart. `row` is the 1-based one at which that shows."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row
        self.message = message


def read_elements(file: Readable, max_row_bytes: int) -> Iterator[list[bytes]]:
    """Elements in order, each on one line, a block's worth at a time. Raises BrokenArray, after what came before it."""
    cutter = _Cutter(max_row_bytes)
    while block := file.read(max(BLOCK_BYTES, cutter.left_bytes)):
        yield from _given(cutter, block)
    cutter.end()


def _given(cutter: _Cutter, block: bytes) -> Iterator[list[bytes]]:
    try:
        cutter.add(block)
    finally:
        if cutter.found:
            found, cutter.found = cutter.found, []
            yield found


class _Cutter:
    def __init__(self, max_row_bytes: int) -> None:
        self._max_row_bytes = max_row_bytes
        self._buffer = b""
        self._rows = 0
        self._opened = False
        self._closed = False
        self._expects_value = True
        """Else a comma or the array's end."""
        self.found: list[bytes] = []

    @property
    def left_bytes(self) -> int:
        """Of an element that is not whole yet; as much again is read next, so that few are looked at twice."""
        return len(self._buffer)

    def add(self, block: bytes) -> None:
        buffer = self._buffer + block
        at = 0
        while (after := self._step(buffer, at)) >= 0:
            at = after
        self._buffer = buffer[at:]
        if len(self._buffer) > self._max_row_bytes and not self._closed:
            raise self._too_long("is broken, or ")

    def end(self) -> None:
        if not self._closed:
            raise self._broken("the file ends before the array does; is it cut short?")

    def _step(self, buffer: bytes, at: int) -> int:
        """One sign or one element further; -1: more bytes are needed."""
        found = _skip_blanks(buffer, at)
        at = found.end() if found is not None else at
        sign = buffer[at : at + 1]
        if not sign:
            return -1
        if self._closed:
            raise self._broken("something follows the array's end; expected one array")
        if not self._opened:
            if sign == BOM[:1] and len(buffer) - at < len(BOM):
                return -1
            if buffer.startswith(BOM, at):
                return at + len(BOM)
            if sign != b"[":
                raise self._broken("expected an array")
            self._opened = True
            return at + 1
        if sign == b"]" and not (self._expects_value and self._rows):
            self._closed = True
            return at + 1
        if not self._expects_value:
            if sign != b",":
                raise self._broken(f"expected a comma or the array's end behind row {self._rows:,}")
            self._expects_value = True
            return at + 1
        return self._element(buffer, at, sign)

    def _element(self, buffer: bytes, at: int, sign: bytes) -> int:
        if sign in b",]}":
            raise self._broken(f"expected a row, found {sign.decode()}")
        if sign in b"{[":
            end = end_of_value(buffer, at)
            if end < 0:
                return -1
        else:
            found = find_row_end(buffer, at)
            if found is None:
                return -1
            end = found.end() - 1
        if end - at > self._max_row_bytes:
            raise self._too_long("")
        self._rows += 1
        self._expects_value = False
        self.found.append(on_one_line(buffer[at:end].rstrip()))
        return end

    def _too_long(self, perhaps: str) -> BrokenArray:
        return self._broken(
            f"this row {perhaps}has more than {self._max_row_bytes:,} bytes; a row may have at most that"
        )

    def _broken(self, message: str) -> BrokenArray:
        return BrokenArray(self._rows + 1, message)


def on_one_line(element: bytes) -> bytes:
    """Without the line breaks and the indents that a printer put between its tokens; what is no JSON keeps its rest."""
    if b"\n" not in element and b"\r" not in element:
        return element
    try:
        return msgspec.json.format(element, indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return element.replace(b"\r", b" ").replace(b"\n", b" ")
