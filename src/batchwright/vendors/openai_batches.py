"""OpenAI's files and batches, as many vendors speak them too. A `FileProtocol`.

POST /files (purpose=batch) -> {"id"}            GET /files?purpose=batch -> {"data": [{"id", "filename"}]}
POST /batches -> a batch                          GET /batches?limit&after -> {"data", "has_more"}, newest first
GET /batches/ID, POST /batches/ID/cancel          GET /files/ID/content, DELETE /files/ID
"""

from __future__ import annotations

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
from batchwright.vendors.urls import escaped
from batchwright.wire.json_text import one_line, string

PAGE = 100
FILES_PAGE = 10_000

STATES = {
    "validating": VendorBatchState.VALIDATING,
    "queued": VendorBatchState.IN_PROGRESS,
    "in_progress": VendorBatchState.IN_PROGRESS,
    "finalizing": VendorBatchState.FINALIZING,
    "completed": VendorBatchState.COMPLETED,
    "failed": VendorBatchState.FAILED,
    "expired": VendorBatchState.EXPIRED,
    "cancelling": VendorBatchState.CANCELLING,
    "canceling": VendorBatchState.CANCELLING,
    "cancelled": VendorBatchState.CANCELLED,
    "canceled": VendorBatchState.CANCELLED,
}
"""The second spellings are those of services that speak it too."""


class OpenAIFiles:
    """Implements `vendors.file_batches.FileProtocol`."""

    upload_path = "/files"
    batches_path = "/batches"
    tag_kept = TagKept.METADATA

    def form_fields(self, name: str) -> dict[str, str]:
        return {"purpose": "batch"}

    def line(self, line: BatchLine, endpoint: str) -> bytes:
        return b'{"custom_id":%b,"method":"POST","url":%b,"body":%b}' % (
            string(line.row_id),
            string(wire_url(endpoint)),
            one_line(line.body),
        )

    def create_body(self, file_id: str, order: BatchOrder, window: str) -> JsonObject:
        return {
            "input_file_id": file_id,
            "endpoint": wire_url(order.endpoint),
            "completion_window": window,
            "metadata": {TAG_NAME: order.tag},
        }

    def view(self, value: JsonObject) -> BatchView:
        status = text_of(value, "status")
        counts = object_of(value, "request_counts")
        return BatchView(
            batch_id=text_of(value, "id"),
            state=STATES.get(status.lower(), VendorBatchState.IN_PROGRESS),
            state_text=status,
            endpoint=endpoint_of(value),
            tag=text_of(object_of(value, "metadata"), TAG_NAME),
            total=count(counts.get("total")),
            succeeded=count(counts.get("completed")),
            failed=count(counts.get("failed")),
            input_ref=text_of(value, "input_file_id"),
            output_ref=text_of(value, "output_file_id"),
            error_ref=text_of(value, "error_file_id"),
            errors=errors_of(value.get("errors")),
            created_ms=first_ms(value, "created_at"),
            started_ms=first_ms(value, "in_progress_at"),
            ended_ms=first_ms(value, "completed_at", "failed_at", "expired_at", "cancelled_at"),
            expires_ms=first_ms(value, "expires_at"),
        )

    def first_page(self) -> str:
        return f"{self.batches_path}?limit={PAGE}"

    def page(self, value: object, path: str) -> Page:
        found = [item for item in objects_of(value) if text_of(item, "id")]
        return Page(views=tuple(self.view(item) for item in found), next_path=_behind(value, self.first_page()))

    def files_path(self) -> str:
        return f"/files?purpose=batch&limit={FILES_PAGE}&order=desc"

    def next_files(self, value: object, path: str) -> str:
        return _behind(value, self.files_path())


def _behind(value: object, path: str) -> str:
    """The path of what stands behind the last item of a page; empty: it is the last one."""
    found = [item_id for item in objects_of(value) if (item_id := text_of(item, "id"))]
    more = isinstance(value, dict) and value.get("has_more") is True
    return f"{path}&after={escaped(found[-1])}" if more and found else ""
