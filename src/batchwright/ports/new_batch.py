"""What a store is given when a batch comes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from batchwright.core.batch_spec import BatchSpec
from batchwright.core.tenants import LOCAL, Tenant
from batchwright.core.worker_id import WorkerId
from batchwright.ports.webhooks import Webhook


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSegment:
    """A segment as intake cut it: at most 500 rows and 4 MiB of bodies, unless it is a single row."""

    number: int
    first_index: int
    row_map: bytes
    """PENDING for rows to be sent; `invalid_row` for rows refused under --skip-invalid."""
    input: bytes
    """A SegmentInput, packed (`wire.frames`). Only a batch that was made of a file may have rows that lie in it."""
    lane_set: str
    """The lanes of its pending rows: sorted lane keys joined by a newline; empty when none is pending."""
    records: bytes = b""
    """`wire.frames.pack_records` of the outcomes of rows that ended at intake; empty when there are none."""
    id_hashes: bytes = b""
    """8 bytes a row, in row order: `core.identity.hash_custom_id`; zeros for a row without one. Empty: none has one."""
    worst_picousd: int = 0
    """The most that one attempt of each of its rows can cost, as far as that is known."""
    unbounded: int = 0
    """Rows of which it is not known."""
    piece_bytes: int = 0
    """Of the file's pieces, packed, in which its bodies lie; 0: they are in `input`."""

    @property
    def input_bytes(self) -> int:
        """What a claim reads, packed."""
        return len(self.input) + self.piece_bytes


class Idempotency(NamedTuple):
    """A caller's key for one request, and the digest of what was asked."""

    key: str
    digest: str
    """Empty: known when the intake is closed."""


class IdempotentBatch(NamedTuple):
    """The batch that an idempotency key made, and the digest of what was asked then."""

    batch_id: str
    digest: str
    """Empty: its rows still arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A batch as it is created: what it was submitted with, and who takes its rows in."""

    batch_id: str
    tenant: Tenant = LOCAL
    spec: BatchSpec
    created_at_ms: int
    deadline_ms: int = 0
    """0: none."""
    owner: WorkerId
    """Whoever takes the rows in; while `accepting`, an owner that is proved dead lets the intake be swept."""
    idempotency: Idempotency | None = None
    """Kept for a day with the batch, from its first transaction on."""
    webhook: Webhook | None = None
    """Told of this batch alone; kept from its first transaction on."""
