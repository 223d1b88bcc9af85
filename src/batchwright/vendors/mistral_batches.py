"""Mistral's files and batch jobs. A `FileProtocol`.

    POST /files (purpose=batch) -> {"id"}             GET /files?purpose&page&page_size -> {"data": [...]}
    POST /batch/jobs -> a job                          GET /batch/jobs?page&page_size&order_by -> {"data", "total"}
    GET /batch/jobs/ID, POST /batch/jobs/ID/cancel     GET /files/ID/content, DELETE /files/ID

A job has one model, which stands beside its rows; the rows' own `model` is the same one.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from batchwright.core.endpoints import wire_url
from batchwright.ports.vendor_batches import BatchLine, BatchOrder, BatchView, TagKept, VendorBatchState
from batchwright.vendors.batch_views import (
    TAG_NAME,
    JsonObject,
    count,
    endpoint_of,
    errors_of,
    first_ms,
    object_of,
    objects_of,
    text_of,
)
from batchwright.vendors.file_batches import Page
from batchwright.wire.json_text import one_line, string

PAGE = 100

STATES = {
    "queued": VendorBatchState.IN_PROGRESS,
    "running": VendorBatchState.IN_PROGRESS,
    "success": VendorBatchState.COMPLETED,
    "failed": VendorBatchState.FAILED,
    "timeout_exceeded": VendorBatchState.EXPIRED,
    "cancellation_requested": VendorBatchState.CANCELLING,
    "cancelled": VendorBatchState.CANCELLED,
}


class MistralJobs:
    """Implements `vendors.file_batches.FileProtocol`."""

    upload_path = "/files"
    batches_path = "/batch/jobs"
    tag_kept = TagKept.METADATA

    def form_fields(self, name: str) -> dict[str, str]:
        return {"purpose": "batch"}

    def line(self, line: BatchLine, endpoint: str) -> bytes:
        return bare_line(line)

    def create_body(self, file_id: str, order: BatchOrder, window: str) -> JsonObject:
        return {
            "input_files": [file_id],
            "endpoint": wire_url(order.endpoint),
            "model": order.model,
            "timeout_hours": int(window),
            "metadata": {TAG_NAME: order.tag},
        }

    def view(self, value: JsonObject) -> BatchView:
        status = text_of(value, "status")
        files = value.get("input_files")
        first = files[0] if isinstance(files, list) and files else None
        return BatchView(
            batch_id=text_of(value, "id"),
            state=STATES.get(status.lower(), VendorBatchState.IN_PROGRESS),
            state_text=status,
            endpoint=endpoint_of(value),
            tag=text_of(object_of(value, "metadata"), TAG_NAME),
            total=count(value.get("total_requests")),
            succeeded=count(value.get("succeeded_requests")),
            failed=count(value.get("failed_requests")),
            input_ref=text_of({"first": first}, "first"),
            output_ref=text_of(value, "output_file"),
            error_ref=text_of(value, "error_file"),
            errors=errors_of(value.get("errors")),
            created_ms=first_ms(value, "created_at"),
            started_ms=first_ms(value, "started_at"),
            ended_ms=first_ms(value, "completed_at"),
        )

    def first_page(self) -> str:
        return f"{self.batches_path}?page=0&page_size={PAGE}&order_by=-created"

    def page(self, value: object, path: str) -> Page:
        found = [item for item in objects_of(value) if text_of(item, "id")]
        return Page(views=tuple(self.view(item) for item in found), next_path=next_page(value, path))

    def files_path(self) -> str:
        return f"/files?purpose=batch&page=0&page_size={PAGE}"

    def next_files(self, value: object, path: str) -> str:
        return next_page(value, path)


def next_page(value: object, path: str) -> str:
    """The path of the page behind a full one; a page that is not full is the last."""
    if len(objects_of(value)) < PAGE:
        return ""
    number = int(parse_qs(path.partition("?")[2])["page"][0])
    return path.replace(f"page={number}&", f"page={number + 1}&", 1)


def bare_line(line: BatchLine) -> bytes:
    """A row as vendors take it whose batches say everything else once."""
    return b'{"custom_id":%b,"body":%b}' % (string(line.row_id), one_line(line.body))
