"""Mistral's and Together's batch APIs on loopback: the words that differ from `support.batch_vendor`."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

from support.batch_vendor import CREATED_S, BatchVendor, Call, Json, Reply, as_json, error, read_form

MISTRAL = {"validating": "QUEUED", "completed": "SUCCESS", "cancelling": "CANCELLATION_REQUESTED"}


class MistralService(BatchVendor):
    def handle(self, method: str, path: str, query: dict[str, str], call: Call) -> Reply:
        if path.startswith("/batch/jobs"):
            path = path.replace("/batch/jobs", "/batches")
        elif path.startswith("/batches"):
            return error(404, "no_route", "no Route matched")
        return super().handle(method, path, query, call)

    def create(self, asked: Json) -> Reply:
        assert sorted(asked) == ["endpoint", "input_files", "metadata", "model", "timeout_hours"]
        assert isinstance(asked["timeout_hours"], int)
        (file_id,) = asked["input_files"]
        super().create({**asked, "input_file_id": file_id})
        return as_json(self.told(next(reversed(self.batches))))

    def told(self, batch_id: str) -> Json:
        batch = self.batches[batch_id]
        counts = batch["request_counts"]
        return {
            "id": batch_id,
            "object": "batch",
            "input_files": batch["input_files"],
            "metadata": batch["metadata"],
            "endpoint": batch["endpoint"],
            "model": batch["model"],
            "output_file": batch["output_file_id"],
            "error_file": batch["error_file_id"],
            "errors": batch["errors"] or [],
            "status": MISTRAL.get(batch["status"], batch["status"].upper()),
            "created_at": batch["created_at"],
            "total_requests": counts["total"],
            "completed_requests": counts["completed"] + counts["failed"],
            "succeeded_requests": counts["completed"],
            "failed_requests": counts["failed"],
        }

    def page(self, query: dict[str, str]) -> Reply:
        assert query["order_by"] == "-created"
        size = int(query["page_size"])
        start = int(query["page"]) * size
        ids = list(reversed(self.batches))[start : start + size]
        return as_json({"object": "list", "data": [self.told(each) for each in ids], "total": len(self.batches)})

    def of_batch(self, batch_id: str, *, cancel: bool) -> Reply:
        reply = super().of_batch(batch_id, cancel=cancel)
        return as_json(self.told(batch_id)) if reply.status == 200 else reply


class TogetherService(BatchVendor):
    def handle(self, method: str, path: str, query: dict[str, str], call: Call) -> Reply:
        if (method, path) == ("POST", "/files"):
            return Reply(status=302, headers={"location": "https://storage.example/"})
        if (method, path) == ("POST", "/files/upload"):
            path = "/files"
        if (method, path) == ("GET", "/files"):
            return as_json({"data": [self.file(each) for each in self.files]})
        return super().handle(method, path, query, call)

    def upload(self, call: Call) -> Reply:
        form = read_form(call, CREATED_S)
        assert (form.purpose, form.fields["file_type"], form.fields["file_name"]) == ("batch-api", "jsonl", form.name)
        return super().upload(call)

    def create(self, asked: Json) -> Reply:
        assert sorted(asked) == ["completion_window", "endpoint", "input_file_id"]
        super().create(asked)
        return Reply(
            status=201, body=json.dumps({"job": self.told(next(reversed(self.batches))), "warning": ""}).encode()
        )

    def told(self, batch_id: str) -> Json:
        batch = self.batches[batch_id]
        told = {
            "id": batch_id,
            "user_id": "u",
            "input_file_id": batch["input_file_id"],
            "file_size_bytes": 5,
            "status": batch["status"].upper(),
            "endpoint": batch["endpoint"],
            "progress": 100.0 if batch["status"] == "completed" else 0,
            "output_file_id": batch["output_file_id"] or "",
            "error_file_id": batch["error_file_id"] or "",
            "error": batch["errors"] or "",
            "created_at": batch["created_at"],
            "job_deadline": batch["expires_at"],
        }
        return told | {name: _moment(told[name]) for name in ("created_at", "job_deadline")}

    def page(self, query: dict[str, str]) -> Reply:
        return as_json([self.told(each) for each in self.batches])

    def of_batch(self, batch_id: str, *, cancel: bool) -> Reply:
        reply = super().of_batch(batch_id, cancel=cancel)
        return as_json(self.told(batch_id)) if reply.status == 200 else reply


def _moment(seconds: int) -> str:
    return re.sub(r"\+00:00$", "Z", datetime.fromtimestamp(seconds, UTC).isoformat())
