"""The bytes of an upload, as they arrive -> its pieces, each of which can be one segment of any batch made of it."""

from __future__ import annotations

from batchwright.engine.intake import SEGMENT_BYTES, SEGMENT_ROWS
from batchwright.engine.tail import held_until, last_sizes


class PieceCutter:
    """Pieces as `ports.files.FileStore` has them; joined they are what came, to the byte. As `engine.intake.Cutter`
    cuts segments, so that at the end they are smaller."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._ends: list[int] = []
        """Where the whole lines in the buffer end."""
        self._cut_lines = 0
        """Lines in the pieces before."""
        self._full = held_until(0, SEGMENT_ROWS)
        self._looked = 0
        self._in_long_line = False
        """The buffer begins within a line of which a piece was cut off."""

    def add(self, data: bytes) -> list[bytes]:
        """The pieces that these bytes complete."""
        buffer = self._buffer
        buffer += data
        pieces: list[bytes] = []
        while True:
            at = buffer.find(b"\n", self._looked)
            end = at + 1 if at >= 0 else len(buffer)
            if end > SEGMENT_BYTES:
                self._in_long_line = not self._ends
                pieces.append(self._cut_lines_off(SEGMENT_ROWS) if self._ends else self._cut(SEGMENT_BYTES))
            elif at < 0:
                self._looked = end
                return pieces
            else:
                self._ends.append(end)
                self._looked = end
                if self._in_long_line:
                    self._in_long_line = False
                    pieces.append(self._cut_lines_off(1))
                elif len(self._ends) >= self._full:
                    pieces.append(self._cut_lines_off(SEGMENT_ROWS))

    def rest(self) -> list[bytes]:
        """What is left at the end of the upload."""
        if self._buffer and (not self._ends or self._ends[-1] < len(self._buffer)):
            self._ends.append(len(self._buffer))  # a last line without an end
        held = len(self._ends)
        return [self._cut_lines_off(size) for size in last_sizes(self._cut_lines + held, held, SEGMENT_ROWS)]

    def _cut_lines_off(self, lines: int) -> bytes:
        """The first so many, or all there are."""
        lines = min(lines, len(self._ends))
        size = self._ends[lines - 1]
        self._ends = [end - size for end in self._ends[lines:]]
        self._cut_lines += lines
        self._full = held_until(self._cut_lines, SEGMENT_ROWS)
        return self._cut(size)

    def _cut(self, size: int) -> bytes:
        piece = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._looked = max(0, self._looked - size)
        return piece
