"""Together's files and batches. A `FileProtocol`.

    POST /files/upload (purpose=batch-api) -> {"id"}   GET /files -> {"data": [{"id", "filename"}]}
    POST /batches -> {"job": a batch, "warning"}       GET /batches -> an array, all at once
    GET /batches/ID, POST /batches/ID/cancel           GET /files/ID/content, DELETE /files/ID

A batch keeps no metadata: it is found by the name of its input file. It counts no rows, but tells a share of progress.
"""

from __future__ import annotations

from batchwright.core.endpoints import wire_url
from batchwright.ports.vendor_batches import BatchLine, BatchOrder, BatchView, TagKept, VendorBatchState
from batchwright.vendors.batch_views import JsonObject, endpoint_of, errors_of, first_ms, objects_of, text_of
from batchwright.vendors.file_batches import Page
from batchwright.vendors.mistral_batches import bare_line

STATES = {
    "validating": VendorBatchState.VALIDATING,
    "in_progress": VendorBatchState.IN_PROGRESS,
    "completed": VendorBatchState.COMPLETED,
    "failed": VendorBatchState.FAILED,
    "expired": VendorBatchState.EXPIRED,
    "cancelling": VendorBatchState.CANCELLING,
    "cancelled": VendorBatchState.CANCELLED,
}


class TogetherFiles:
    """Implements `vendors.file_batches.FileProtocol`."""

    upload_path = "/files/upload"
    batches_path = "/batches"
    tag_kept = TagKept.FILE_NAME

    def form_fields(self, name: str) -> dict[str, str]:
        return {"purpose": "batch-api", "file_name": name, "file_type": "jsonl"}

    def line(self, line: BatchLine, endpoint: str) -> bytes:
        return bare_line(line)

    def create_body(self, file_id: str, order: BatchOrder, window: str) -> JsonObject:
        return {"input_file_id": file_id, "endpoint": wire_url(order.endpoint), "completion_window": window}

    def view(self, value: JsonObject) -> BatchView:
        status = text_of(value, "status")
        progress = value.get("progress")
        percent = isinstance(progress, (int, float)) and not isinstance(progress, bool) and 0 <= progress <= 100
        return BatchView(
            batch_id=text_of(value, "id"),
            state=STATES.get(status.lower(), VendorBatchState.IN_PROGRESS),
            state_text=status,
            endpoint=endpoint_of(value),
            progress_percent=float(progress) if percent and isinstance(progress, (int, float)) else -1.0,
            input_ref=text_of(value, "input_file_id"),
            output_ref=text_of(value, "output_file_id"),
            error_ref=text_of(value, "error_file_id"),
            errors=errors_of(value.get("error")),
            created_ms=first_ms(value, "created_at"),
            ended_ms=first_ms(value, "completed_at"),
            expires_ms=first_ms(value, "job_deadline"),
        )

    def first_page(self) -> str:
        return self.batches_path

    def page(self, value: object, path: str) -> Page:
        found = [item for item in objects_of(value) if text_of(item, "id")]
        views = sorted((self.view(item) for item in found), key=lambda view: -view.created_ms)
        return Page(views=tuple(views), next_path="")

    def files_path(self) -> str:
        return "/files"

    def next_files(self, value: object, path: str) -> str:
        return ""
