"""Batches as a client sees them: this machine (`engine.batches`) or a service over HTTP (`client`) behind one contract.

The runner and the server know this page only; nothing in it says where the worker runs. All methods may be called
concurrently. Errors: `core.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from batchwright.core.batch_spec import BatchSpec
from batchwright.core.batch_state import BatchState, Counts, Pause
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import Tally, UsageKey, UsageSum
from batchwright.core.rows import RowView, SourceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatus:
    """What is true of a batch now, from the store alone."""

    batch_id: str
    state: BatchState
    terminal: bool
    spec: BatchSpec
    round: int
    total: int
    counts: Counts
    by_byte: dict[int, int]
    """Rows that ended, by row-map byte (`core.row_map.name_of` names it)."""
    tally: Tally
    created_at_ms: int
    settled_at_ms: int
    deadline_ms: int
    pauses: tuple[Pause, ...]
    budget_taken_picousd: int
    live: bool
    """A live process takes it in or works on it now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Which ended rows: all without success (the default), or those with these kinds or flags."""

    kinds: frozenset[FailureKind] = frozenset()
    flags: frozenset[Flag] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    batch_id: str
    spec: BatchSpec
    deadline_s: float = 0.0
    """From now; 0: none."""


class Batches(Protocol):
    async def submit(self, submit: Submit, rows: Iterable[Sequence[SourceRow]]) -> BatchStatus:
        """Takes the rows in, a chunk at a time; returns when the batch is durable and claimable. If `rows` raises, the
        batch is removed and the error goes on: nothing of a refused input is kept and nothing of it is sent."""

    async def status(self, batch_id: str) -> BatchStatus: ...

    async def resolve(self, text: str) -> str:
        """A full id from a unique prefix (with or without `batch_`), or `@last`. Raises NoSuchBatch."""

    async def find(self, *, identity: str = "", source: str = "", limit: int = 50) -> list[BatchStatus]:
        """Newest first."""

    def rows(
        self,
        batch_id: str,
        *,
        start: int = 0,
        wanted: frozenset[int] | None = None,
        texts_of: frozenset[int] | None = None,
    ) -> AsyncIterator[list[RowView]]:
        """Rows in order from request_index `start`, a segment at a time; `wanted`: only those with these bytes.

        `texts_of`: only rows with these bytes must have their body and columns, those of others may be empty. Who asks
        for no more than is needed reads at half the cost.
        """

    async def find_custom_id(self, batch_id: str, custom_id: str) -> list[int]: ...

    async def retry(self, batch_id: str, selector: Selector, deadline_s: float = 0.0) -> int:
        """Begins a new round; returns how many rows it has. Raises WrongState unless terminal."""

    async def cancel(self, batch_id: str) -> BatchStatus:
        """Harmless when asked twice. Raises WrongState for a batch that has ended otherwise."""

    async def resume(self, batch_id: str, *, max_cost_picousd: int = -1) -> BatchStatus:
        """Clears all pauses; a budget pause needs a higher cap, else it is set again at the next row."""

    async def usage(self, *, since_day: str = "") -> list[tuple[UsageKey, UsageSum]]: ...
