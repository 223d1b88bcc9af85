"""Where bodies lie: keyed, immutable bytes. On one machine a table beside the truth; later also an object store.

A key is used once and carries the epoch of its writer; only SQL publishes it, so a blob nobody names is garbage and
never wrong. Deleting a key that does not exist is no error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Blobs(Protocol):
    def put(self, key: str, data: bytes) -> None:
        """`key` must be new."""

    def get(self, key: str) -> bytes:
        """Raises KeyError for a key that was never put, or was deleted."""

    def delete(self, keys: Sequence[str]) -> None:
        """Those that exist; the others are passed over."""
