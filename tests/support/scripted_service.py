"""A batch service as Infrai's has been seen to answer, on loopback, that does what a test tells it to.

    with ScriptedService() as service:
        ... service.base_url, service.submits, service.paid, service.set(hold=True), service.release() ...

A submit runs its rows before it answers and its reply is terminal already; replies hold `ok` and `data` alone; `list`
is empty right after a submit; a row whose last word is `fail` ends as the generic VENDOR_DOWN 503, `bad` as the same
with a vendor's words for an unknown model. There is no pause, no retry, no events.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.patience import PATIENCE_S

KEY = "ifr_test"
TERMINAL = ("completed", "partial", "failed", "expired", "cancelled")


@dataclass(kw_only=True)
class Submit:
    """A submit that was read whole."""

    batch_id: str
    """Empty: it was refused."""
    key: str
    rows: list[dict[str, Any]]
    body: dict[str, Any]


@dataclass(kw_only=True)
class Batch:
    batch_id: str
    items: list[dict[str, Any]]
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What the next calls to a path that ends so are answered with."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    path: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    hold: bool = False
    """Submits wait for `release` before their rows are run."""
    deaf: int = 0
    """So many submits are done, and then the connection is dropped in place of the reply."""
    max_rows: int = 0
    """More are refused as BATCH_REJECTED; 0: no ceiling."""
    dedup: bool = True
    """A second submit with the same key is answered as the first was."""
    state: str = ""
    """In place of the true one; empty: that."""
    dress: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """What becomes of every `data`."""
    page_rows: int = 100


@dataclass
class ScriptedService:
    modes: Modes = field(default_factory=Modes)
    submits: list[Submit] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """`GET /v1/...`, in the order they came."""
    paid: Counter[str] = field(default_factory=Counter)
    """How often each row's text was run."""
    cancelled: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    batches: dict[str, Batch] = field(default_factory=dict)
    port: int = 0

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._by_key: dict[str, str] = {}

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def set(self, **changes: Any) -> None:
        with self._changed:
            self.modes = replace(self.modes, **changes)
            self._changed.notify_all()

    def release(self) -> None:
        self.set(hold=False)

    def refuse(self, status: int, code: str = "", **more: Any) -> None:
        """The next calls are refused so; `path`, `times`, `headers` as in `Refusal`."""
        body = {"ok": False, "data": None, "error": {"code": code, "message": f"told to say {code}"}}
        self.refusals.append(Refusal(status=status, body=json.dumps(body).encode() if code else b"<html>", **more))

    def wait_for(self, condition: Callable[[ScriptedService], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), PATIENCE_S), f"it never came true: {self.calls}"

    def __enter__(self) -> ScriptedService:
        handler = type("Handler", (_Handler,), {"service": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # ------------------------------------------------------------------------------------------- for its connections

    def told(self, call: str) -> Refusal | None:
        with self._changed:
            self.calls.append(call)
            self._changed.notify_all()
            path = call.split(" ", 1)[1]
            for number, refusal in enumerate(self.refusals):
                if refusal.path in path:
                    left = replace(refusal, times=refusal.times - 1)
                    self.refusals[number : number + 1] = [left] if left.times else []
                    return refusal
        return None

    def submit(self, body: dict[str, Any], key: str) -> tuple[dict[str, Any] | None, bool]:
        """(the reply's data or None for one above the ceiling, whether it is to be heard)."""
        rows = body["requests"]
        with self._changed:
            batch_id = f"batch_{len(self.submits):024x}"
            seen = Submit(batch_id="", key=key, rows=rows, body=body)
            self.submits.append(seen)
            self._changed.notify_all()
            if self.modes.max_rows and len(rows) > self.modes.max_rows:
                return None, True
            self._changed.wait_for(lambda: not self.modes.hold)
            if self.modes.dedup and key in self._by_key:
                seen.batch_id = batch_id = self._by_key[key]
            else:
                seen.batch_id = batch_id
                self._by_key[key] = batch_id
                items = [self._run(index, row) for index, row in enumerate(rows)]
                good = sum(item["ok"] for item in items)
                state = "completed" if good == len(items) else "partial" if good else "failed"
                self.batches[batch_id] = Batch(batch_id=batch_id, items=items, state=state)
            heard = not self.modes.deaf
            if self.modes.deaf:
                self.modes = replace(self.modes, deaf=self.modes.deaf - 1)
            self._changed.notify_all()
            batch = self.batches[batch_id]
            data = {"batch_id": batch_id, "state": self.state_of(batch), "total_count": len(batch.items)}
            return self.modes.dress(data), heard

    def state_of(self, batch: Batch) -> str:
        return self.modes.state or batch.state

    def _run(self, index: int, row: dict[str, Any]) -> dict[str, Any]:
        text = str((row.get("body") or row)["messages"][-1]["content"])
        self.paid[text] += 1
        word = text.rsplit(" ", 1)[-1]
        failed = word in ("bad", "fail") or (word == "once" and self.paid[text] == 1)
        if failed:
            said = "model `m` does not exist" if word == "bad" else "upstream unavailable"
            error = {"code": "VENDOR_DOWN", "http_status": 503, "message": said}
            return {"ok": False, "request_index": index, "cost_usd": 0.0, "error": error}
        return {
            "ok": True,
            "request_index": index,
            "cost_usd": 0.0001364,
            "vendor": "zhipu",
            "region": "china",
            "result": {
                "content": f"echo {text}",
                "finish_reason": "stop",
                "model": "glm-4-flash",
                "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            },
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65_536  # head and body leave in one piece: a second waits for the first to be acknowledged
    service: ScriptedService

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        refusal = self.service.told(f"{self.command} {self.path}")
        if refusal is not None:
            self._send(refusal.status, refusal.body, refusal.headers)
            return
        if self.headers.get("authorization") != f"Bearer {KEY}":
            self._fail(401, "UNAUTHORIZED")
            return
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        verb, _, batch_id = path.removeprefix("/v1/ai/batch/").partition("/")
        if verb == "submit":
            self._submit(json.loads(body))
        elif verb == "list":
            self._send_data({"items": []})
        elif batch_id not in self.service.batches or verb not in ("status", "results", "export", "cancel"):
            self._fail(404, "NOT_FOUND")
        else:
            self._send_data(self._of_batch(verb, self.service.batches[batch_id], query))

    def _submit(self, body: dict[str, Any]) -> None:
        key = self.headers.get("idempotency-key") or body.get("idempotency_key") or ""
        data, heard = self.service.submit(body, key)
        if not heard:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif data is None:
            self._fail(400, "BATCH_REJECTED")
        else:
            self._send_data(data)

    def _of_batch(self, verb: str, batch: Batch, query: dict[str, list[str]]) -> dict[str, Any]:
        items = batch.items
        match verb:
            case "results":
                start, limit = int(query.get("cursor", ["0"])[0]), int(query.get("limit", ["100"])[0])
                end = start + min(limit, self.service.modes.page_rows)
                more = {"next_cursor": str(end)} if end < len(items) else {}
                return {"items": items[start:end], "total_count": len(items), **more}
            case "export":
                return {"content": "\n".join(json.dumps(item) for item in items)}
            case "cancel":
                self.service.cancelled.append(batch.batch_id)
                return {"batch_id": batch.batch_id}
            case _:
                good = sum(item["ok"] for item in items)
                return {
                    "batch_id": batch.batch_id,
                    "state": self.service.state_of(batch),
                    "progress": good / len(items),
                    "total_count": len(items),
                    "completed_count": good,
                    "failed_count": len(items) - good,
                    "created_at": "2026-07-26T08:00:00.123456Z",
                }

    def _send_data(self, data: dict[str, Any]) -> None:
        dressed = data if "batch_id" in data and "created_at" not in data else self.service.modes.dress(data)
        self._send(200, json.dumps({"ok": True, "data": dressed}).encode())

    def _fail(self, status: int, code: str) -> None:
        body = {"ok": False, "error": {"code": code, "message": f"it is {code}"}}
        self._send(status, json.dumps(body).encode())

    def _send(self, status: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
