"""Who may talk to the database: the seam between the statements, which are the same everywhere, and each database.

`store.sqlite` has one writing connection behind a lock and a few reading ones beside it; `store.postgres` has a pool of
each, on a server that other processes write to at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from sqlalchemy import Connection

T = TypeVar("T")


class Connections(Protocol):
    @property
    def name(self) -> str:
        """Of the database, to people: the beginning of a sentence."""

    @property
    def elsewhere(self) -> str:
        """What a person does who cannot have this one: the rest of a sentence."""

    @property
    def upgrades_itself(self) -> bool:
        """Whether an older schema is brought up to date by whoever opens it; else by a command of its own."""

    @property
    def keeps_days(self) -> bool:
        """Whether the bodies of a day are a table of their own, that goes as a whole."""

    def write(self) -> AbstractContextManager[Connection]:
        """One transaction that may write: committed when the block ends, rolled back if it raises. Once."""

    def transact(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, in one transaction that may write. Where another transaction was in the way of it,
        nothing of it was written and all of it is done again: it must not leave anything behind elsewhere."""

    def look(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, in one transaction as `read` makes them; again where the connection broke meanwhile."""

    def read(self) -> AbstractContextManager[Connection]:
        """One transaction that sees one moment and blocks no writer."""

    def give_back_pages(self) -> None:
        """Returns some of the room that deleted blobs have left, where the database does not do so by itself."""

    def sweep_days(self, now_ms: int, keep_ended_ms: int) -> int:
        """As `ports.store.Store.sweep_days`; nothing unless `keeps_days`."""

    def data_version(self) -> int:
        """Changes when another process has committed something that others may wait for. Never waits."""

    def changes(self) -> int:
        """Another number once anybody may have committed, this process too. Never waits for a writer."""

    def close(self) -> None:
        """Harmless when called twice."""


class TryAgain(Exception):
    """Raised within `Connections.transact` when what was read there is no longer so: all of it is done again."""
