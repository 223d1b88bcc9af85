"""The store: the only truth about batches, segments, rows, money and workers.

Every method is one transaction (or, where it says so, several bounded ones), synchronous, and safe to call from any
thread: writers queue on the one writer connection, readers use connections of their own and never block it. A method
that returns has committed. All moments are milliseconds since the epoch, handed in by the caller (`now_ms`).

What must hold at every commit, for the present round of every batch:

    sum of tallies' counts  =  count over row maps (open bytes of a closed segment read by `row_map.read_closed`)
                            =  count over the last records of results and parts, for rows that have ended
    segment.open            =  bytes PENDING or RESERVED of its row map, or 0 once `closed_as` is set
    batch.segments_open     =  segments with open > 0;  a batch is settled exactly when that is 0 and intake is closed
    cost of a batch         =  sum over its rows' last records of `cost_picousd`  (orphan spend stands beside it)

What goes to and fro at a checkpoint stands in `ports.checkpoint`, what comes in with a batch in `ports.new_batch`, what
is read in `ports.stored`, what workers tell each other in `ports.fleet`; all names of the contract are imported from
here.

Errors: NoSuchBatch, WrongState, StoreError (`core.errors`). A stale epoch is not an error: the segment's key comes
back in `CheckpointResult.lost`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from batchwright.core.batch_spec import Destination
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.failures import FailureKind
from batchwright.core.records import SegmentKey, UsageKey, UsageSum
from batchwright.core.worker_id import WorkerId
from batchwright.ports.checkpoint import (
    AllowanceRequest,
    BatchSignals,
    Checkpoint,
    CheckpointResult,
    ClaimedSegment,
    ClaimRequest,
    Release,
    SegmentChange,
)
from batchwright.ports.files import FileStore
from batchwright.ports.fleet import Fleet, LanePause, WorkerRow
from batchwright.ports.groups import Groups
from batchwright.ports.keys import Keys
from batchwright.ports.new_batch import Idempotency, IdempotentBatch, NewBatch, NewSegment
from batchwright.ports.observer import Backlog
from batchwright.ports.stored import (
    BatchRow,
    Reopened,
    SegmentRepricing,
    SegmentView,
    Share,
    UsageLine,
)
from batchwright.ports.webhooks import Webhooks

__all__ = [
    "AllowanceRequest",
    "BatchRow",
    "BatchSignals",
    "Checkpoint",
    "CheckpointResult",
    "ClaimRequest",
    "ClaimedSegment",
    "Idempotency",
    "IdempotentBatch",
    "LanePause",
    "NewBatch",
    "NewSegment",
    "Release",
    "Reopened",
    "SegmentChange",
    "SegmentKey",
    "SegmentRepricing",
    "SegmentView",
    "Share",
    "Store",
    "UsageLine",
    "WorkerRow",
]

NOTHING_RELEASED: Mapping[str, int] = {}


class Store(Fleet, Keys, FileStore, Groups, Webhooks, Protocol):
    """See the module's docstring for what holds for all of these."""

    # intake ------------------------------------------------------------------------------------------------------
    def create_batch(self, batch: NewBatch, segments: Sequence[NewSegment] = (), *, close: bool = False) -> None:
        """Creates a batch in `accepting`, with segments if given; with `close`, claimable in the same transaction.

        Idempotent for the same batch_id and owner before it is closed (a lost commit reply may be asked again). Raises
        KeyReused if its idempotency key made another batch.
        """

    def add_segments(self, batch_id: str, segments: Sequence[NewSegment]) -> None:
        """Adds segments to an accepting batch; not claimable yet. Numbers must go on where the last ended."""

    def close_intake(self, batch_id: str, now_ms: int, *, digest: str = "") -> None:
        """Makes the batch claimable; one whose rows all ended at intake settles here. Raises WrongState if closed.

        `digest`: of its idempotency key, where that was not known before; written in the same transaction."""

    def drop_batch(self, batch_id: str, *, with_day: bool = False) -> None:
        """Removes an accepting, settled or refused batch and all that belongs to it. Raises WrongState for another.

        `with_day`: where bodies are kept by days, those of the batch stay, found by nobody, until `sweep_days` drops
        all of their day."""

    def ended_before(self, before_ms: int, limit: int) -> list[str]:
        """Batches that ended before that moment, the oldest end first."""

    # work --------------------------------------------------------------------------------------------------------
    def checkpoint(self, checkpoint: Checkpoint) -> CheckpointResult:
        """One transaction, in this order: fence each segment (`epoch` equal), parts, this worker's tallies and usage,
        allowances spent, checkpoint number; then pauses, claims, allowances, settles.

        A segment whose open rows reach 0 settles: its merged result is published in the same transaction where its
        frames are many, and the batch's `segments_open` falls by one; the transaction that brings it to 0 writes
        `settled_at`.
        """

    def stop_signals(self, batch_ids: Sequence[str]) -> dict[str, BatchSignals]:
        """Of those of these batches that are to stop: closing or paused. What a checkpoint says as well, for a
        worker that does not wait for its next one."""

    def checkpoint_number(self, worker: WorkerId) -> int:
        """The last checkpoint of this worker that landed; asked when a commit's reply was lost."""

    # lanes and pauses --------------------------------------------------------------------------------------------
    def pause_lane(self, pause: LanePause) -> None:
        """Writes the lane's pause, in place of one it has."""

    def clear_lane(self, lane: str) -> None:
        """Removes the lane's pause and the LANE pause facts of batches that name it or have open rows for a lane that
        reads alike: whoever has it paused in memory takes a pause that is gone for leave to try again."""

    def release_lane(self, lane: str) -> None:
        """Removes the same facts of batches, so that a row of theirs can be the probe; the lane's own pause stands
        until that row has been answered."""

    def lane_pauses(self) -> list[LanePause]:
        """Of all lanes, also those whose probe has been due for long: who reads them judges their age."""

    def batch_pauses(self, limit: int) -> list[tuple[str, Pause]]:
        """The pauses of all batches, at most so many, the oldest first."""

    def pause_batch(self, batch_id: str, pause: Pause) -> None:
        """Adds a fact; the first of a cause stands. Raises WrongState for a settled batch."""

    def resume_batch(self, batch_id: str, causes: frozenset[PauseCause] = frozenset(PauseCause)) -> None:
        """Removes facts of these causes. No fact is no error."""

    def set_cap(self, batch_id: str, max_cost_picousd: int, *, soft: bool) -> None:
        """Another cap for a batch that has not settled; a budget pause is cleared if the new cap leaves room."""

    def pass_gate(self, batch_id: str) -> None:
        """The first rows of this round are judged no more."""

    def set_keys(self, batch_id: str, keys_of: Sequence[Destination]) -> None:
        """Its rows go under the keys of these places from the next claim on (`core.batch_spec.with_keys_of`). Raises
        NoSuchBatch."""

    # order of claims ---------------------------------------------------------------------------------------------
    def set_priority(self, batch_id: str, priority: int) -> None:
        """The higher goes first among the batches of its account; 0 at first. Raises NoSuchBatch, WrongState for a
        batch that has ended."""

    def set_share(self, share: Share) -> None:
        """What the account has from the next claim on, in place of what it had. What it was served stays as it was
        counted."""

    def shares(self) -> list[Share]:
        """Of accounts that were given any, by name."""

    # closing -----------------------------------------------------------------------------------------------------
    def request_close(self, batch_id: str, kind: FailureKind, now_ms: int) -> bool:
        """Sets the batch's cancel (CANCELLED), expired (EXPIRED) or stopped (STOPPED) flag; the first set stands.
        False: it was set already. Raises WrongState for a settled batch."""

    def close_step(self, batch_id: str, now_ms: int, limit: int = 1000) -> int:
        """Closes up to `limit` segments that no live worker holds, in one transaction; returns how many. The one that
        brings `segments_open` to 0 settles the batch."""

    def expire_due(self, now_ms: int) -> list[str]:
        """Sets the expired flag on open batches whose deadline has passed; returns all that await closing."""

    def sweep_step(self, now_ms: int, keep_superseded_ms: int = 3_600_000, limit: int = 1000) -> int:
        """Deletes up to `limit` superseded blobs older than that, and as many objects of such; returns how many.
        Raises ObjectsAway where the object store does not answer: what it holds goes later."""

    def sweep_days(self, now_ms: int, keep_ended_ms: int = 0) -> int:
        """Where bodies are kept by days, gets the next days ready and drops those whose bodies nobody has needed for a
        while; returns how many. `keep_ended_ms`: the retention, well after which a day that is still needed for some
        batch is emptied of the others; 0: there is none."""

    def sweep_orphans(self, now_ms: int, limit: int = 1000) -> int:
        """Looks at the next `limit` objects of this store, once around a day, and deletes those older than a day that
        no row names; returns how many. Without an object store it does nothing. Raises ObjectsAway."""

    def take_lease(self, name: str, owner: WorkerId, now_ms: int, lease_ms: int) -> bool:
        """A named lease (the sweeper's): true if it is now the owner's."""

    # rounds ------------------------------------------------------------------------------------------------------
    def reopen(self, batch_id: str, chosen: frozenset[int], *, deadline_ms: int = 0, gate: bool = True) -> Reopened:
        """A new round for rows whose byte (as it counts) is in `chosen`: transactions of at most 1,000 segments, of
        which only the last makes the round claimable (`reopening` until then; asked again after a crash it goes on).

        Clears cancel, expired and stopped flags, pauses and the gate (without `gate` the round counts as past it);
        writes the base tally (counts of rows left
        alone; cost, attempts and tokens so far). Rows refused at intake are never chosen: they cannot be sent. Raises
        WrongState unless settled (or reopening). No row chosen: nothing changes and `rows` is 0.
        """

    # prices ------------------------------------------------------------------------------------------------------
    def reprice(self, change: SegmentRepricing, now_ms: int) -> int:
        """One transaction: the records take the place of the rows' last ones, and the present round's tally and the
        usage change by the differences, so that the sums hold before it and after it. Returns the segment's new epoch;
        0: it is not the one the change names any more (priced by another, or a round was and ended between), nothing
        was written. Raises WrongState unless the batch is settled.

        A cap may be passed by it, for what was spent is spent; it frees what the answers were counted for as possible.
        """

    # reading -----------------------------------------------------------------------------------------------------
    def get_batch(self, batch_id: str) -> BatchRow:
        """Raises NoSuchBatch."""

    def count_worked(self, batch_id: str) -> dict[int, int]:
        """Rows of the present round by the byte they ended with, as workers ended them: without those that were refused
        when they were read, closed by nobody, or left as they were before the round. Empty where there is no such
        batch."""

    def find_batches(
        self,
        *,
        prefix: str = "",
        identity: str = "",
        source: str = "",
        accepting: bool = False,
        account: str = "",
        before: str = "",
        limit: int = 50,
        created_after_ms: int = 0,
        created_before_ms: int = 0,
    ) -> list[BatchRow]:
        """Newest first; filters are combined. `accepting`: only batches whose intake is not closed and is nobody's but
        their owner's (a stored file can be taken in again by anybody). `before`: only batches older than this one.
        `created_after_ms`: at that moment or later, `created_before_ms`: earlier."""

    def find_idempotent(self, account: str, key: str, now_ms: int) -> IdempotentBatch | None:
        """The batch that the account's key made within the last day."""

    def read_segments(
        self,
        batch_id: str,
        *,
        first_index: int = 0,
        end_index: int | None = None,
        with_input: bool = False,
        wanted: frozenset[int] | None = None,
        texts_of: frozenset[int] | None = None,
    ) -> Iterator[SegmentView]:
        """Segments in order, from the one that holds request_index `first_index`, one short read transaction each: a
        running batch is read as it is, segment by segment. A segment whose answers are large comes as several views of
        consecutive rows.

        `end_index`: none that begins at this request_index or later, however few of those before are wanted. Raises
        NoSuchBatch at the next segment when the batch is removed meanwhile: what was read is not all of it.

        `wanted` skips segments with none of these bytes (as they count) without opening a blob. `texts_of`: rows of a
        segment with none of these bytes come with empty bodies and columns, which are most of an input's cost.
        """

    def is_held(self, batch_id: str) -> bool:
        """Whether some worker holds a segment of it now."""

    def open_lane_sets(self, batch_id: str) -> frozenset[str]:
        """The lane sets of the batch's segments that have open rows."""

    def find_custom_id(self, batch_id: str, custom_id: str) -> list[int]:
        """The request_index of rows with this custom_id, by the segments' hashes and then by text."""

    def backlog(self) -> Backlog:
        """Figures of the whole store, for whoever watches it."""

    def segments_to_do(self) -> int:
        """Segments that wait to be claimed, of batches that may be worked on, and those that workers hold."""

    def hold_credit(self, worker: WorkerId, key_id: str, picousd: int, least_picousd: int) -> int:
        """Draws from the key's budget for a call of this worker: as much as is left, if that is at least
        `least_picousd`, else 0. Without a budget all of it. Given back by `add_usage`, and with the worker's end."""

    def add_usage(
        self,
        worker: WorkerId,
        deltas: Mapping[UsageKey, UsageSum],
        now_ms: int,
        *,
        released: Mapping[str, int] = NOTHING_RELEASED,
    ) -> None:
        """Adds what single calls used, in rows of this worker, which must have been registered; also after its end.
        Batches of a key whose budget is spent with it are paused in the same transaction. `released`: what calls under
        a key had drawn and hold no more, by key id."""

    def read_usage(self, *, since_day: str = "", tenant: str = "") -> list[UsageLine]:
        """Sums over all batches, deleted ones too, in the order of their keys. `since_day`: `YYYY-MM-DD` and later;
        `tenant`: of this account alone; empty: of all."""

    def data_version(self) -> int:
        """Changes when another process commits something that others may wait for: a cheap wake-up. It can be missed
        where the database is on a server, so that whoever waits looks now and then without it."""

    def changes(self) -> int:
        """Another number once anybody has committed, through this store too: what was read at the same number before
        still stands, or was so at most 0.2 s ago where the database is on a server. Some microseconds; waits for no
        writer."""

    def now_ms(self, own_ms: int) -> int:
        """The moment by the server's clock, which all its workers' leases and deadlines go by; `own_ms`, the caller's,
        where the database is on this machine."""

    def object_mark(self) -> str:
        """What the names of this store's objects begin with; empty: it has no object store."""

    def check(self, batch_id: str) -> list[str]:
        """Recounts the laws of the module's docstring for one batch; a sentence for each that does not hold."""

    def close(self) -> None:
        """Lets go of the file. Harmless when called twice; every other call then raises StoreError."""
