"""Where bodies lie: keyed, immutable bytes, in a table beside the truth or as objects in a store of their own.

SQL alone publishes: every blob has its row, whose `object` names the object that holds its bytes, or is empty. The
object is put before the transaction that names it, so that one which nobody names is garbage and never wrong. A name is
used once: the same bytes under the same name, however late or often a put arrives; nothing rests on a conditional put.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ListedObject:
    name: str
    modified_ms: int
    """By the store's clock."""


class Objects(Protocol):
    """An object store below one URL. Any method raises ObjectsAway where the store does not answer, or not in time, and
    StoreError where it refuses; each tries again by itself, for a bounded time. Safe in several threads."""

    @property
    def url(self) -> str:
        """For people, and to tell one store from another: without secrets."""

    def probe(self, name: str) -> None:
        """Puts, reads and deletes an object of that name: raises StoreError that says what is wrong with the bucket,
        the credentials, the region or the address."""

    def put(self, name: str, data: bytes) -> None:
        """It is there, whole and durable, when this returns."""

    def get(self, name: str) -> bytes:
        """Raises KeyError for an object that is not there."""

    def get_ranges(self, name: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """`spans` are (offset, length). Raises KeyError as `get`."""

    def delete(self, names: Sequence[str]) -> None:
        """Those that exist; the others are passed over."""

    def listed(self, under: str, after: str, limit: int) -> list[ListedObject]:
        """Up to `limit` objects whose names begin with `under` and a slash, in the order of their names, those after
        the name `after`."""
