"""From what changed in memory to the one transaction that makes it durable. Runs in the writer thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from batchwright.core.batch_state import Pause
from batchwright.core.worker_id import WorkerId
from batchwright.engine.open_segment import SegmentDraft
from batchwright.ports.store import (
    AllowanceRequest,
    BatchRow,
    Checkpoint,
    CheckpointResult,
    ClaimRequest,
    SegmentChange,
    Store,
)
from batchwright.wire.frames import pack_records


@dataclass(slots=True, kw_only=True)
class Proposal:
    """A checkpoint in the making: handed whole to the writer thread, changed by nobody meanwhile."""

    worker: WorkerId
    number: int
    now_ms: int
    drafts: list[SegmentDraft] = field(default_factory=list)
    spent: dict[str, int] = field(default_factory=dict)
    claim: ClaimRequest | None = None
    allowances: list[AllowanceRequest] = field(default_factory=list)
    pauses: list[tuple[str, Pause]] = field(default_factory=list)
    gate_passed: list[str] = field(default_factory=list)
    known_batches: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        return not (self.drafts or self.claim or self.allowances or self.pauses or self.gate_passed or self.spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """What came of a checkpoint, and the batches that its claims met for the first time."""

    result: CheckpointResult
    batches: dict[str, BatchRow]


def commit(store: Store, proposal: Proposal) -> Landed:
    """Packs the records and commits. Raises StoreError when it did not, or may not, have landed."""
    result = store.checkpoint(
        Checkpoint(
            worker=proposal.worker,
            number=proposal.number,
            now_ms=proposal.now_ms,
            segments=changes(proposal.drafts),
            spent=proposal.spent,
            claim=proposal.claim,
            allowances=proposal.allowances,
            pauses=proposal.pauses,
            gate_passed=proposal.gate_passed,
        )
    )
    met = {claimed.key.batch_id for claimed in result.claimed} - proposal.known_batches
    return Landed(result=result, batches={batch_id: store.get_batch(batch_id) for batch_id in sorted(met)})


def changes(drafts: Sequence[SegmentDraft]) -> list[SegmentChange]:
    """In key order, so that two workers' transactions never wait for each other crosswise."""
    return [
        SegmentChange(
            key=draft.segment.key,
            epoch=draft.segment.epoch,
            row_map=draft.row_map,
            records=pack_records(draft.records) if draft.records else b"",
            tally=draft.tally,
            usage=draft.usage,
            outcomes=draft.outcomes,
            orphan_picousd=draft.tally.cost_picousd,
            release=draft.release,
            not_before_ms=draft.not_before_ms,
            closed_as=draft.closed_as,
            lane_set=draft.lane_set,
        )
        for draft in sorted(drafts, key=lambda draft: draft.segment.key)
    ]
