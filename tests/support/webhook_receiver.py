"""A receiver of webhooks on loopback that answers as it is told, in order, and keeps what it was sent."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.patience import PATIENCE_S

HANG = 0
"""An answer that never comes; the connection stays until the receiver ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    path: str
    headers: dict[str, str]
    """Names in small letters."""
    body: bytes

    @property
    def event_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.body)
        return decoded

    def is_signed_with(self, secret: str) -> bool:
        """Both signatures, computed as the two conventions say."""
        key = base64.b64decode(secret.removeprefix("whsec_")) if secret.startswith("whsec_") else secret.encode()
        signed = f"{self.event_id}.{self.headers['webhook-timestamp']}.".encode() + self.body
        standard = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        own = hmac.new(secret.encode(), self.body, hashlib.sha256).hexdigest()
        return self.headers["webhook-signature"] == f"v1,{standard}" and self.headers["x-infrai-signature"] == own


class Receiver:
    def __init__(self, answers: Sequence[int], retry_after: str) -> None:
        """`answers`: a status each, the last one for all that follow."""
        self._answers = answers
        self.retry_after = retry_after
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self.messages: list[Message] = []
        self.port = 0

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def wait_for(self, condition: Callable[[list[Message]], bool]) -> list[Message]:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.messages), PATIENCE_S), self.messages
            return list(self.messages)

    def wait_count(self, count: int) -> list[Message]:
        return self.wait_for(lambda messages: len(messages) >= count)

    def take(self, message: Message) -> int:
        with self._changed:
            number = len(self.messages)
            self.messages.append(message)
            self._changed.notify_all()
        answer = self._answers[min(number, len(self._answers) - 1)]
        if answer == HANG:
            self._ended.wait(PATIENCE_S)
        return answer

    def end(self) -> None:
        self._ended.set()


@contextmanager
def receiving(*answers: int, retry_after: str = "") -> Iterator[Receiver]:
    """`retry_after`: what an answer of 503 asks for."""
    receiver = Receiver(answers or (200,), retry_after)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = receiver.take(Message(path=self.path, headers=headers, body=body))
            if status == HANG:
                self.close_connection = True
                return
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", receiver.url("/elsewhere"))
            if status == 503 and receiver.retry_after:
                self.send_header("Retry-After", receiver.retry_after)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, name="webhook receiver", kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.end()
        server.shutdown()
        thread.join()
        server.server_close()
