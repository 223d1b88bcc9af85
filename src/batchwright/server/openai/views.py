"""Files and batches as the `openai` SDK reads them."""

from __future__ import annotations

from typing import assert_never

from batchwright.core.batch_state import BatchState
from batchwright.ports.batches import BatchStatus
from batchwright.ports.file_batches import FileBatch
from batchwright.ports.files import FileBatchRow, StoredFile


def file_view(file: StoredFile) -> dict[str, object]:
    return {
        "id": file.file_id,
        "object": "file",
        "bytes": file.size,
        "created_at": _second(file.created_at_ms),
        "expires_at": _second(file.expires_at_ms),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def list_view(items: list[dict[str, object]], *, more: bool) -> dict[str, object]:
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": more,
    }


def batch_view(batch: FileBatch) -> dict[str, object]:
    row, status = batch.row, batch.status
    word = status_word(row, status)
    ended = _second(status.settled_at_ms) if status.terminal else None
    taken_in = status.state not in (BatchState.REFUSED, BatchState.ACCEPTING) or status.round > 0
    return {
        "id": row.batch_id,
        "object": "batch",
        "endpoint": row.endpoint,
        "model": row.model or None,
        "errors": _errors(row),
        "input_file_id": row.file_id,
        "completion_window": row.completion_window,
        "status": word,
        # Null, and never an empty text, for a file that does not exist.
        "output_file_id": row.output_file_id or None,
        "error_file_id": row.error_file_id or None,
        "created_at": _second(status.created_at_ms),
        "in_progress_at": _second(row.in_progress_at_ms),
        "expires_at": _second(status.deadline_ms),
        # Files are views, so nothing is left to be done between the last row and the end.
        "finalizing_at": ended if word == "completed" else None,
        "completed_at": ended if word == "completed" else None,
        "failed_at": ended if word == "failed" else None,
        "expired_at": ended if word == "expired" else None,
        "cancelling_at": _second(row.cancelling_at_ms) if word in ("cancelling", "cancelled") else None,
        "cancelled_at": ended if word == "cancelled" else None,
        "request_counts": {
            "total": status.total if taken_in else 0,
            "completed": status.counts.succeeded if taken_in else 0,
            "failed": status.counts.without_success if taken_in else 0,
        },
        "usage": _usage(status) if taken_in else None,
        "metadata": status.spec.metadata or None,
    }


def status_word(row: FileBatchRow, status: BatchStatus) -> str:
    """`completed` also where no row succeeded: `failed` says that the batch was refused as a whole."""
    match status.state:
        case BatchState.REFUSED:
            return "failed"
        case BatchState.ACCEPTING:
            if status.round:
                return "in_progress"  # rows are being reopened
            return "cancelling" if row.cancelling_at_ms else "validating"
        case BatchState.CANCELLING:
            return "cancelling"
        case BatchState.PAUSED | BatchState.QUEUED | BatchState.RUNNING:
            return "in_progress"
        case BatchState.COMPLETED | BatchState.PARTIAL | BatchState.FAILED:
            return "completed"
        case BatchState.CANCELLED:
            return "cancelled"
        case BatchState.EXPIRED:
            return "expired"
        case _:
            assert_never(status.state)


def _errors(row: FileBatchRow) -> dict[str, object] | None:
    if not row.errors:
        return None
    data = [
        {"code": error.code, "line": error.line, "message": error.message, "param": error.param} for error in row.errors
    ]
    return {"object": "list", "data": data}


def _usage(status: BatchStatus) -> dict[str, object]:
    tally = status.tally
    return {
        "input_tokens": tally.prompt_tokens,
        "input_tokens_details": {"cached_tokens": tally.cached_tokens},
        "output_tokens": tally.completion_tokens,
        # Not counted apart: null, for 0 would say that there were none.
        "output_tokens_details": {"reasoning_tokens": None},
        "total_tokens": tally.prompt_tokens + tally.completion_tokens,
    }


def _second(moment_ms: int) -> int | None:
    """None for 0."""
    return moment_ms // 1000 if moment_ms else None
