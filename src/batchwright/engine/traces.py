"""Spans of a worker: one a checkpoint, and one for each time that it held rows of a batch. Never one a row."""

from __future__ import annotations

from batchwright.engine.batch_context import BatchContext
from batchwright.engine.checkpoint import Landed, Proposal
from batchwright.ports.observer import Span


def checkpoint_span(proposal: Proposal, landed: Landed | None, *, ended_ms: int, duration_s: float) -> Span:
    """Of one try of a commit; `landed` None: it failed."""
    return Span(
        name="checkpoint",
        ended_ms=ended_ms,
        duration_s=duration_s,
        attributes={
            "batchwright.checkpoint": proposal.number,
            "batchwright.segments": len(proposal.drafts),
            "batchwright.rows_ended": sum(draft.outcomes for draft in proposal.drafts),
            "batchwright.segments_claimed": len(landed.result.claimed) if landed is not None else 0,
            "batchwright.segments_lost": len(landed.result.lost) if landed is not None else 0,
        },
        failed=landed is None,
    )


def batch_span(context: BatchContext, *, settled: bool, ended_ms: int, duration_s: float) -> Span:
    """From the first claim to when nothing of the batch was held any more: it settled, paused, or others had the rest.
    `settled`: as the worker heard at its last checkpoint."""
    return Span(
        name="batch",
        ended_ms=ended_ms,
        duration_s=duration_s,
        attributes={
            "batchwright.batch_id": context.batch_id,
            "batchwright.account": context.tenant.account,
            "batchwright.round": context.round,
            "batchwright.rows": context.total,
            "batchwright.rows_ended": context.rows_ended,
            "batchwright.settled": settled,
            "batchwright.paused": context.paused,
        },
    )
