"""What a row is answered with where its group brought no line for it."""

from __future__ import annotations

from batchwright.core.failures import FailureKind
from batchwright.ports.vendor import Answer
from batchwright.ports.vendor_batches import BatchView


def missing(vendor_batch_id: str) -> Answer:
    return Answer(
        kind=FailureKind.MISSING_FROM_UPSTREAM,
        code="missing_from_upstream",
        message=f"{vendor_batch_id} ended without a line for this row",
    )


def gone(vendor_batch_id: str, vendor: str, *, ours: bool) -> Answer:
    """`ours`: it was created here, so that it was there, and its rows may be done and billed."""
    return Answer(
        kind=FailureKind.TIMEOUT if ours else FailureKind.MISSING_FROM_UPSTREAM,
        code="no_such_batch",
        message=f"{vendor} knows no batch {vendor_batch_id}" + (" any more; it may be billed" if ours else ""),
    )


def not_done(why: str) -> Answer:
    return Answer(kind=FailureKind.UNREACHABLE, code="called_back", message=f"not done at the batch API: {why}")


def window_passed(view: BatchView) -> Answer:
    return Answer(
        kind=FailureKind.OVERLOADED,
        code=f"batch_{view.state.value}",
        message=f"{view.batch_id} ended as {view.state_text!r} before this row was done",
    )


def not_here(unfit: Answer) -> Answer:
    """The vendor itself may take it."""
    return Answer(kind=FailureKind.UNREACHABLE, code=unfit.code, message=f"not for the batch API: {unfit.message}")
