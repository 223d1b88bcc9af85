"""A vendor's batch API on loopback: a real HTTP server that keeps files and batches as OpenAI does, and fails as told.

    with BatchVendor() as vendor:
        vendor.fail("POST", "/batches", Fault(lost=True))       # the next such call is done, and its reply is lost
        ... vendor.calls, vendor.files, vendor.batches, vendor.finish(batch_id, shuffle=True) ...

Nothing happens by itself: a test moves a batch on with `finish` or changes its fields. Other vendors' words are
subclasses (`support.other_batch_vendors`).
"""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

CREATED_S = 1_767_225_600
"""2026-01-01T00:00:00Z, when everything here is made; a second later each."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Iterable[bytes] | None = None
    """In place of a body: sent one after the other, chunked."""
    broken: bool = False
    """The connection breaks before the end of the pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What one call ends with."""

    lost: bool = False
    """It is done, and the connection is dropped in place of a reply."""
    dropped: bool = False
    """It is read, not done, and dropped."""
    reply: Reply | None = None
    """It is not done, and this comes back."""
    after: Reply | None = None
    """It is done, and this comes back all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    method: str
    path: str
    """Below the base URL, with its query."""
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True, kw_only=True)
class File:
    name: str
    content: bytes
    created_at: int
    purpose: str = "batch"
    fields: dict[str, str] = field(default_factory=dict)


def error(status: int, code: str, message: str = "no", **headers: str) -> Reply:
    body = json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": code}}).encode()
    return Reply(status=status, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def as_json(value: object, status: int = 200) -> Reply:
    return Reply(status=status, body=json.dumps(value).encode())


def chat_answer(text: str, **more: Any) -> Json:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m-small",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
        **more,
    }


class BatchVendor:
    prefix = "/v1"

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.files: dict[str, File] = {}
        self.batches: dict[str, Json] = {}
        self._faults: list[tuple[str, str, Fault]] = []
        self._number = 0
        self._lock = threading.Lock()

    # ------------------------------------------------------------------------------------------------ for the test

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{self.prefix}"

    def fail(self, method: str, path: str, fault: Fault, times: int = 1) -> None:
        """The next calls of this method whose path (without its query) ends so."""
        self._faults += [(method, path, fault)] * times

    def paths(self, method: str) -> list[str]:
        return [call.path for call in self.calls if call.method == method]

    def add_file(self, content: bytes, name: str = "out.jsonl", purpose: str = "batch_output") -> str:
        file_id = f"file-{self._next():04d}"
        self.files[file_id] = File(name=name, content=content, created_at=CREATED_S + self._number, purpose=purpose)
        return file_id

    def output_line(self, custom_id: str, text: str) -> Json:
        response = {"status_code": 200, "request_id": f"req-{custom_id}", "body": chat_answer(text)}
        return {"id": f"batch_req_{custom_id}", "custom_id": custom_id, "response": response, "error": None}

    def input_rows(self, batch_id: str) -> list[Json]:
        file = self.files[self.batches[batch_id]["input_file_id"]]
        return [json.loads(line) for line in file.content.splitlines()]

    def finish(
        self, batch_id: str, *, shuffle: bool = False, leave_out: Iterable[str] = (), more: Iterable[bytes] = ()
    ) -> None:
        """Answers each row with its own last word. `more`: further lines, as they are."""
        lines = [
            json.dumps(self.output_line(row["custom_id"], row["body"]["messages"][-1]["content"])).encode()
            for row in self.input_rows(batch_id)
            if row["custom_id"] not in set(leave_out)
        ]
        lines += list(more)
        if shuffle:
            random.Random(7).shuffle(lines)
        self.end(batch_id, self.add_file(b"\n".join(lines) + b"\n"), len(lines))

    def end(self, batch_id: str, output: str, count: int) -> None:
        self.batches[batch_id] |= {
            "status": "completed",
            "output_file_id": output,
            "completed_at": CREATED_S + 100,
            "request_counts": {"total": count, "completed": count, "failed": 0},
        }

    def __enter__(self) -> Self:
        vendor = self

        class Handler(_Handler):
            answer = staticmethod(vendor._answer)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # ---------------------------------------------------------------------------------------------------- the server

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _answer(self, call: Call) -> Reply | None:
        """None: the connection is dropped."""
        with self._lock:
            path, _, query = call.path.removeprefix(self.prefix).partition("?")
            self.calls.append(
                Call(method=call.method, path=call.path.removeprefix(self.prefix), headers=call.headers, body=call.body)
            )
            fault = self._fault(call.method, path)
            if fault is not None and (fault.reply is not None or fault.dropped):
                return fault.reply
            reply = self.handle(call.method, path, {k: v[0] for k, v in parse_qs(query).items()}, call)
            if fault is not None:
                return fault.after
            return reply

    def _fault(self, method: str, path: str) -> Fault | None:
        for place, (wanted, end, fault) in enumerate(self._faults):
            if wanted == method and path.endswith(end):
                del self._faults[place]
                return fault
        return None

    def handle(self, method: str, path: str, query: dict[str, str], call: Call) -> Reply:
        if call.headers.get("authorization") != "Bearer sk-scripted-key":
            return error(401, "invalid_api_key", f"not {call.headers.get('authorization')}")
        if (method, path) == ("POST", "/files"):
            return self.upload(call)
        if (method, path) == ("GET", "/files"):
            found = [self.file(file_id) for file_id in reversed(self.files)]
            return as_json({"object": "list", "data": [each for each in found if each["purpose"] == query["purpose"]]})
        if match := re.fullmatch(r"/files/([^/]+)(/content)?", path):
            return self.of_file(method, match[1], bool(match[2]))
        if (method, path) == ("POST", "/batches"):
            return self.create(json.loads(call.body))
        if (method, path) == ("GET", "/batches"):
            return self.page(query)
        if match := re.fullmatch(r"/batches/([^/]+)(/cancel)?", path):
            return self.of_batch(match[1], cancel=bool(match[2]))
        return Reply(status=404, body=b"no such page")

    def upload(self, call: Call) -> Reply:
        file_id = f"file-{self._next():04d}"
        self.files[file_id] = read_form(call, CREATED_S + self._number)
        return as_json(self.file(file_id))

    def file(self, file_id: str) -> Json:
        file = self.files[file_id]
        return {
            "id": file_id,
            "object": "file",
            "filename": file.name,
            "purpose": file.purpose,
            "bytes": len(file.content),
            "created_at": file.created_at,
        }

    def of_file(self, method: str, file_id: str, content: bool) -> Reply:
        if file_id not in self.files:
            return error(404, "not_found", f"No such File object: {file_id}")
        if method == "DELETE":
            del self.files[file_id]
            return as_json({"id": file_id, "object": "file", "deleted": True})
        return Reply(body=self.files[file_id].content) if content else as_json(self.file(file_id))

    def create(self, asked: Json) -> Reply:
        batch_id = f"batch_{self._next():04d}"
        self.batches[batch_id] = {
            "id": batch_id,
            "object": "batch",
            "status": "validating",
            "created_at": CREATED_S + self._number,
            "expires_at": CREATED_S + 86_400,
            "errors": None,
            "output_file_id": None,
            "error_file_id": None,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            **asked,
        }
        return as_json(self.batches[batch_id])

    def page(self, query: dict[str, str]) -> Reply:
        found = list(reversed(self.batches.values()))
        if "after" in query:
            ids = [each["id"] for each in found]
            found = found[ids.index(query["after"]) + 1 :]
        limit = int(query.get("limit", 20))
        return as_json({"object": "list", "data": found[:limit], "has_more": len(found) > limit})

    def of_batch(self, batch_id: str, *, cancel: bool) -> Reply:
        batch = self.batches.get(batch_id)
        if batch is None:
            return error(404, "not_found", f"No batch found with id '{batch_id}'.")
        if cancel:
            if batch["status"] not in ("validating", "in_progress"):
                return error(409, "conflict", f"Cannot cancel a batch with status '{batch['status']}'.")
            batch["status"] = "cancelling"
        return as_json(batch)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Callable[[Call], Reply | None]

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.answer(Call(method=self.command, path=self.path, headers=headers, body=body))
        if reply is None:
            self.close_connection = True
            return
        try:
            self._send(reply)
        except ConnectionError:
            self.close_connection = True  # whoever asked had enough

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.pieces is None:
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in reply.pieces:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if not reply.broken:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = reply.broken

    do_GET = do_POST = do_DELETE = do_PUT = _serve  # noqa: N815  (the names that http.server looks for)

    def log_message(self, format: str, *args: Any) -> None:
        """A test's own assertions say what came."""


def read_form(call: Call, created_at: int) -> File:
    """The file of a multipart upload, read by its boundary as RFC 7578 has it."""
    boundary = call.headers["content-type"].partition("boundary=")[2].encode()
    parts = call.body.split(b"--" + boundary)
    assert parts[0] == b""
    assert parts[-1] == b"--\r\n"
    fields: dict[str, str] = {}
    name, content = "", b""
    for part in parts[1:-1]:
        head, _, value = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        value = value.removesuffix(b"\r\n")
        key = re.search(rb'name="([^"]+)"', head)
        assert key is not None
        if key[1] == b"file":
            found = re.search(rb'filename="([^"]+)"', head)
            assert found is not None
            name, content = found[1].decode(), value
        else:
            fields[key[1].decode()] = value.decode()
    return File(name=name, content=content, created_at=created_at, purpose=fields["purpose"], fields=fields)
