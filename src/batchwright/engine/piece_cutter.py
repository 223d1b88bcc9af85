"""The bytes of an upload, as they arrive -> its pieces, each of which can be one segment of any batch made of it."""

from __future__ import annotations

from batchwright.engine.intake import SEGMENT_BYTES, SEGMENT_ROWS


class PieceCutter:
    """Pieces as `ports.files.FileStore` has them; joined they are what came, to the byte."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._lines = 0
        """Whole lines in the buffer,"""
        self._whole = 0
        """and where the last of them ends."""
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
                self._in_long_line = not self._whole
                pieces.append(self._cut(self._whole or SEGMENT_BYTES))
            elif at < 0:
                self._looked = end
                return pieces
            else:
                self._lines += 1
                self._whole = self._looked = end
                if self._lines == SEGMENT_ROWS or self._in_long_line:
                    self._in_long_line = False
                    pieces.append(self._cut(end))

    def rest(self) -> list[bytes]:
        """What is left at the end of the upload."""
        return [self._cut(len(self._buffer))] if self._buffer else []

    def _cut(self, size: int) -> bytes:
        piece = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._lines = self._whole = self._looked = 0
        return piece
