"""Files of this machine that rows name: read when a row is sent, never stored.

Reading blocks, so it is asked for in a thread. A file that is not what it was when the row came in is a fault of that
row, and never sent in the place of what was meant.
"""

from __future__ import annotations

from typing import Protocol

from batchwright.core.records import InputRow


class FileUnusable(Exception):
    """Its text says which file, what is wrong, and what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        """`file_missing` or `file_changed`."""


class RowFiles(Protocol):
    def filled(self, row: InputRow) -> bytes:
        """The row's body with the bytes of its files in it. Raises FileUnusable."""


class NoFiles:
    """Of a process that reads none."""

    def filled(self, row: InputRow) -> bytes:
        raise FileUnusable("file_missing", "this process reads no files, so the row was not sent")
