"""Batches as a client sees them: this machine (`engine.batches`) or a service over HTTP (`client`) behind one contract.

The runner and the server know this page only; nothing in it says where the worker runs. All methods may be called
concurrently. Errors: `core.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from batchwright.core.batch_spec import BatchSpec, Destination
from batchwright.core.batch_state import BatchState, Counts, Pause
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import Tally, UsageKey, UsageSum
from batchwright.core.rows import RowView, SourceRow
from batchwright.core.tenants import Tenant
from batchwright.ports.store import Idempotency
from batchwright.ports.stored import EVERYBODYS, Share
from batchwright.ports.webhooks import Webhook


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A lane of a batch's open rows that its worker cannot send to now, or only a probe."""

    vendor: str
    model: str
    cause: str
    """A `core.lane_wait.WaitCause`; of a service that is not ours whatever it says."""
    reason: str
    """A whole sentence for a person, with how long it has lasted and what comes next."""
    since_ms: int
    until_ms: int
    """When something goes out again, if only a probe, or patience ends; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatus:
    """What is true of a batch now, from the store alone."""

    batch_id: str
    tenant: Tenant
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
    """Of its cap; -1: not known."""
    live: bool | None
    """A live process takes it in or works on it now; None: not known."""
    worst_picousd: int | None = None
    """The most that one attempt of each of its rows can cost, all together; None: not known of every row."""
    waiting: tuple[Waiting, ...] = ()
    """The longest first."""
    closed_as: FailureKind | None = None
    """What the present round was closed as before all of its rows had an outcome: cancelled, expired, or stopped by the
    gate. None: it was not."""
    left: int = 0
    """Rows that a retry's round, closed so, has left as they were before it."""
    priority: int = 0
    """Among the batches of its account; the higher goes first."""
    share: Share = EVERYBODYS
    """What its account gets of the workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Which ended rows: all without success (the default), or those with these kinds or flags."""

    kinds: frozenset[FailureKind] = frozenset()
    flags: frozenset[Flag] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A batch that is to be: its id is the caller's, fresh and random, so that it can be locked before it exists."""

    batch_id: str
    spec: BatchSpec
    deadline_s: float = 0.0
    """From now; 0: none."""
    idempotency: Idempotency | None = None
    """A second submit with the same key makes no second batch."""
    digest_at_end: Callable[[], str] | None = None
    """For rows that arrive, and an `idempotency` without a digest: gives it once all rows were read."""
    webhook: Webhook | None = None
    """Told of this batch alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    status: BatchStatus
    replayed: bool
    """It is the batch that an earlier submit with the same idempotency key made; `rows` was not read, or in vain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCost:
    """A batch's cost at one moment."""

    picousd: int
    unpriced: int
    """Answers without a price."""
    no_usage: int
    """Answers without usage."""

    @property
    def complete(self) -> bool:
        return not self.unpriced and not self.no_usage


@dataclass(frozen=True, slots=True, kw_only=True)
class RepriceResult:
    """What a repricing did and what it could not do, in rows."""

    batch_id: str
    before: KnownCost
    after: KnownCost
    priced: int
    """Had no price and have one now."""
    changed: int
    """Had a price from a table and have today's now."""
    mixed: int
    """Keep a table's price although others were priced again: their cost is of several attempts, not kept apart."""
    without_price: dict[str, int]
    """Rows whose answer today's table has no price for, by model."""
    beyond_reason: int
    """Rows whose answer would cost more than any can: they stay without a price."""
    usage_not_kept: int
    """Rows with an answer without a price of which no usage is kept (of an earlier attempt), or may not be."""


Rows = Iterable[Sequence[SourceRow]] | AsyncIterable[Sequence[SourceRow]]
"""In order, some at a time. An iterable is read in a thread; an async one may take as long as it likes."""


class Batches(Protocol):
    """The batches of one account: another's do not exist for it; of every account only for the operator of a machine,
    on that machine. `batch_id` is a full id (`resolve` makes one); every
    method that takes one raises NoSuchBatch, and any of them StoreError."""

    async def submit(self, submit: Submit, rows: Rows) -> Submitted:
        """Takes the rows in, a chunk at a time; returns when the batch is durable and claimable. If `rows` raises, the
        batch is removed and the error goes on: nothing of a refused input is kept and nothing of it is sent.

        Raises KeyReused if the idempotency key stands for another request, InUse if that one is still being taken in
        or was given up while this one waited for it. With `digest_at_end` a second submit with the key reads all of its
        rows, which are not kept, to know whether it is the same request. Raises CreditSpent
        if the budget of the key it is submitted under is spent.
        """

    async def status(self, batch_id: str) -> BatchStatus:
        """How it stands now. Cheap: asked several times a second while a batch is watched."""

    async def resolve(self, text: str) -> str:
        """A full id from a unique prefix (with or without `batch_`), or `@last`. Raises NoSuchBatch."""

    async def find(
        self,
        *,
        identity: str = "",
        source: str = "",
        before: str = "",
        limit: int = 50,
        created_after_ms: int = 0,
        created_before_ms: int = 0,
        chunks: bool = True,
    ) -> list[BatchStatus]:
        """Newest first. `chunks` False: without those that a run of this very store has sent to a service that works
        on it (`core.batch_spec.CHUNK_OF`), which `@last` passes over too. `before`: only batches older than this one.
        `created_after_ms`: at that moment or later, `created_before_ms`: earlier than it; 0: whenever."""

    def rows(
        self,
        batch_id: str,
        *,
        start: int = 0,
        end: int | None = None,
        wanted: frozenset[int] | None = None,
        texts_of: frozenset[int] | None = None,
    ) -> AsyncIterator[list[RowView]]:
        """Rows in order from request_index `start` up to and without `end`, a segment at a time; `wanted`: only those
        with these bytes. Raises NoSuchBatch, also half-way when the batch is deleted meanwhile.

        `texts_of`: only rows with these bytes must have their body and columns, those of others may be empty. Who asks
        for no more than is needed reads at half the cost.
        """

    async def find_custom_id(self, batch_id: str, custom_id: str) -> list[int]:
        """The request_index of its rows with this very custom_id, ascending; empty: none has it."""

    async def retry(self, batch_id: str, selector: Selector, deadline_s: float = 0.0, *, gate: bool = True) -> int:
        """Begins a new round; returns how many rows it has. Without `gate` it goes on however its first rows fail.
        Raises WrongState unless terminal, CreditSpent."""

    async def cancel(self, batch_id: str) -> BatchStatus:
        """Harmless when asked twice. Raises WrongState for a batch that has ended otherwise."""

    async def pause(self, batch_id: str, reason: str) -> BatchStatus:
        """Stops sending until `resume`; what is out finishes. Raises WrongState for a batch that has ended."""

    async def resume(
        self,
        batch_id: str,
        *,
        max_cost_picousd: int = -1,
        keys_of: Sequence[Destination] = (),
        past_gate: bool = False,
    ) -> BatchStatus:
        """Clears all pauses; a budget pause needs a higher cap, else it is set again at the next row. What has not been
        sent goes under the keys that the batch's places have in `keys_of` (`core.batch_spec.with_keys_of`), unless a
        worker holds something of it, and with `past_gate` however the first rows fail; a service goes by its own of
        both. Raises CreditSpent for a batch whose key has spent its budget."""

    async def prioritise(self, batch_id: str, priority: int) -> BatchStatus:
        """Moves a batch before those of its account that have a lower priority, or behind higher ones; 0 is what every
        batch begins with, and at most `core.fair_share.PRIORITY_MAX` above or below that. What is out stays out.
        Raises WrongState for a batch that has ended."""

    async def reprice(self, batch_id: str, *, every: bool = False) -> RepriceResult:
        """Gives stored answers the cost that today's prices give for their usage; sends nothing. By default those
        without a price; `every`: also those that a table priced. What a vendor stated itself never changes.

        Broken off, it has done a part, and asked again it does the rest. Raises WrongState unless the batch has ended,
        InUse if another process changes it meanwhile.
        """

    async def check_delete(self, batch_id: str) -> None:
        """Raises what `delete` would refuse with now; changes nothing."""

    async def delete(self, batch_id: str) -> None:
        """Removes a batch and all that belongs to it but its usage, for good. Hidden at once and removed in bounded
        steps: broken off, it is gone all the same, and the next opening of the store does the rest. Raises WrongState
        unless the batch has ended, InUse while another process writes its answers."""

    async def usage(self, *, since_day: str = "") -> list[tuple[UsageKey, UsageSum]]:
        """Over all batches, deleted ones too, in the order of the keys. `since_day`: this UTC day, `YYYY-MM-DD`, and
        later; empty: all."""
