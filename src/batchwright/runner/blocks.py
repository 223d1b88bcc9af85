"""Bytes that come block by block, as a file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any


class BlocksReader(io.RawIOBase):
    """To be read through `io.BufferedReader`. Blocks may be empty; what the iterator raises, reading raises."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._left = memoryview(block)
        target = memoryview(buffer)
        count = min(len(target), len(self._left))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
