"""Anthropic's Messages API and its batches on loopback, scripted: see `support.batch_vendor`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from support.batch_vendor import CREATED_S, BatchVendor, Call, Json, Reply, as_json

KEY = "sk-scripted-key"


def refusal(status: int, kind: str, message: str = "no", **headers: str) -> Reply:
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_x"}).encode()
    return Reply(status=status, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def message(*blocks: Json | str, **more: Any) -> Json:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-1",
        "content": content,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 3},
        **more,
    }


def echo(params: Json) -> Reply:
    said = params["messages"][-1]["content"]
    text = said if isinstance(said, str) else said[-1]["text"]
    return Reply(body=json.dumps(message(text)).encode(), headers={"request-id": "req_live"})


def moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class AnthropicService(BatchVendor):
    prefix = "/v1"

    def __init__(self, answer: Callable[[Json], Reply] = echo, *, key: str = KEY) -> None:
        """`key`: the one that is taken; empty: none is asked for."""
        super().__init__()
        self.key = key
        self.answer = answer
        self.results: dict[str, list[bytes]] = {}

    def requests(self) -> list[Json]:
        """Bodies of live calls."""
        return [json.loads(call.body) for call in self.calls if (call.method, call.path) == ("POST", "/messages")]

    def input_rows(self, batch_id: str) -> list[Json]:
        rows: list[Json] = self.batches[batch_id]["requests"]
        return rows

    def finish(
        self, batch_id: str, *, shuffle: bool = False, leave_out: Iterable[str] = (), more: Iterable[bytes] = ()
    ) -> None:
        """`leave_out`: row ids without their mark."""
        lines = [
            json.dumps({"custom_id": row["custom_id"], "result": {"type": "succeeded", "message": self._message(row)}})
            for row in self.input_rows(batch_id)
            if row["custom_id"].rpartition("-")[2] not in set(leave_out)
        ]
        self.end_with(batch_id, [line.encode() for line in (reversed(lines) if shuffle else lines)] + list(more))

    def end_with(self, batch_id: str, lines: list[bytes], **counts: int) -> None:
        self.results[batch_id] = lines
        batch = self.batches[batch_id]
        batch |= {
            "processing_status": "ended",
            "ended_at": moment(CREATED_S + 100),
            "results_url": f"https://api.anthropic.com/v1/messages/batches/{batch_id}/results",
        }
        batch["request_counts"] |= {"processing": 0, "succeeded": len(batch["requests"])} | counts

    def _message(self, row: Json) -> Json:
        said = row["params"]["messages"][-1]["content"]
        return message(said[-1]["text"] if isinstance(said, list) else said)

    def handle(self, method: str, path: str, query: dict[str, str], call: Call) -> Reply:
        if call.headers.get("x-api-key", "") != self.key or call.headers.get("anthropic-version") != "2023-06-01":
            return refusal(401, "authentication_error", f"invalid x-api-key {call.headers.get('x-api-key')}")
        if (method, path) == ("POST", "/messages"):
            return self.answer(json.loads(call.body))
        if (method, path) == ("GET", "/models"):
            return as_json({"data": [{"id": "claude-1", "type": "model"}], "has_more": False})
        if (method, path) == ("POST", "/messages/batches"):
            return self.create(json.loads(call.body))
        if (method, path) == ("GET", "/messages/batches"):
            return self.page(query)
        if match := re.fullmatch(r"/messages/batches/([^/]+)(/cancel|/results)?", path):
            return self.of_batch_at(method, match[1], match[2] or "")
        return refusal(404, "not_found_error", f"no {path}")

    def create(self, asked: Json) -> Reply:
        batch_id = f"msgbatch_{self._next():04d}"
        counts = dict.fromkeys(("succeeded", "errored", "canceled", "expired"), 0)
        self.batches[batch_id] = {
            "id": batch_id,
            "type": "message_batch",
            "processing_status": "in_progress",
            "request_counts": {"processing": len(asked["requests"]), **counts},
            "created_at": moment(CREATED_S + self._number),
            "expires_at": moment(CREATED_S + 86_400),
            "ended_at": None,
            "results_url": None,
            **asked,
        }
        return as_json(self.told(batch_id))

    def told(self, batch_id: str) -> Json:
        return {name: value for name, value in self.batches[batch_id].items() if name != "requests"}

    def page(self, query: dict[str, str]) -> Reply:
        ids = list(reversed(self.batches))
        if "after_id" in query:
            ids = ids[ids.index(query["after_id"]) + 1 :]
        limit = int(query.get("limit", 20))
        return as_json({"data": [self.told(each) for each in ids[:limit]], "has_more": len(ids) > limit})

    def of_batch_at(self, method: str, batch_id: str, what: str) -> Reply:
        if batch_id not in self.batches:
            return refusal(404, "not_found_error", f"no batch {batch_id}")
        if method == "DELETE":
            del self.batches[batch_id]
            return as_json({"id": batch_id, "type": "message_batch_deleted"})
        if what == "/results":
            return Reply(body=b"\n".join(self.results[batch_id]))
        if what == "/cancel":
            if self.batches[batch_id]["processing_status"] == "ended":
                return refusal(400, "invalid_request_error", "the batch has ended")
            self.batches[batch_id]["processing_status"] = "canceling"
        return as_json(self.told(batch_id))
