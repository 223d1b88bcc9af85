"""An object store's faults: a proxy on loopback before a server, which does what a test tells it to."""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOP = ("connection", "transfer-encoding", "keep-alive")


class Fault(Enum):
    UNAVAILABLE = "503, nothing was done"
    RESET = "broken off before anything was done"
    LOST = "done, and broken off before the answer"
    TWICE = "done twice"
    NO_ETAG = "done, and the answer has no ETag, nor has any object of a listing"
    FORBIDDEN = "403"


class FaultProxy:
    def __init__(self, port: int) -> None:
        self._port = port
        self.next: deque[Fault] = deque()
        """Of the next requests; without one a request goes through."""
        self.always: Fault | None = None
        self.seen: list[str] = []
        """`METHOD path` of each request."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                proxy._answer(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one  # noqa: N815  # names of the base class

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        self.seen.append(f"{request.command} {request.path}")
        fault = self.next.popleft() if self.next else self.always
        if fault is Fault.RESET:
            return _break_off(request)
        if fault in (Fault.UNAVAILABLE, Fault.FORBIDDEN):
            status, code = (503, "SlowDown") if fault is Fault.UNAVAILABLE else (403, "AccessDenied")
            words = f"<Error><Code>{code}</Code><AWSAccessKeyId>test-key</AWSAccessKeyId></Error>".encode()
            request.send_response(status)
            request.send_header("content-length", str(len(words)))
            request.end_headers()
            request.wfile.write(words)
            return None
        answer, data = self._forward(request, body)
        if fault is Fault.TWICE:
            answer, data = self._forward(request, body)
        if fault is Fault.LOST:
            return _break_off(request)
        if fault is Fault.NO_ETAG and b"<ListBucketResult" in data:
            data = re.sub(rb"<ETag>.*?</ETag>", b"", data)
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            dropped = fault is Fault.NO_ETAG and name.lower() == "etag"
            if name.lower() not in (*HOP, "content-length") and not dropped:
                request.send_header(name, value)
        length = answer.getheader("content-length") if request.command == "HEAD" else str(len(data))
        request.send_header("content-length", length or "0")
        request.end_headers()
        request.wfile.write(data)
        return None

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP}
        connection.request(request.command, request.path, body=body, headers=headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer, data


def _break_off(request: BaseHTTPRequestHandler) -> None:
    request.close_connection = True
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.connection.close()


@contextmanager
def fault_proxy(port: int) -> Iterator[FaultProxy]:
    proxy = FaultProxy(port)
    yield proxy
    proxy.close()
