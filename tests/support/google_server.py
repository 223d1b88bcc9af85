"""A server that speaks as Google Cloud Storage does, in memory, on loopback: its XML requests, and a 404 for a delete
of what is gone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bodies"
TIME = "2026-01-02T03:04:05.000Z"


class GoogleServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}

    def variables(self) -> dict[str, str]:
        """What leads a client here."""
        account = {
            "gcs_base_url": f"http://127.0.0.1:{self.server_port}",
            "disable_oauth": True,
            **dict.fromkeys(("client_email", "private_key", "private_key_id"), ""),
        }
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: GoogleServer

    def do_PUT(self) -> None:
        self.server.objects[self._name()] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_DELETE(self) -> None:
        found = self.server.objects.pop(self._name(), None)
        self._answer(204) if found is not None else self._refuse("NoSuchKey")

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if unquote(parts.path).split("/")[1] != BUCKET:
            self._refuse("NoSuchBucket")
        elif "list-type" in parse_qs(parts.query):
            self._list(parse_qs(parts.query))
        elif (data := self.server.objects.get(self._name())) is None:
            self._refuse("NoSuchKey")
        elif span := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            first, last = int(span[1]), min(int(span[2]), len(data) - 1)
            self._answer(206, data[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(data)}"})
        else:
            self._answer(200, data)

    def _list(self, query: dict[str, list[str]]) -> None:
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        most = int(query.get("max-keys", ["1000"])[0])
        names = sorted(name for name in self.server.objects if name.startswith(prefix) and name > after)
        found = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(self.server.objects[name])}</Size>"
            f'<LastModified>{TIME}</LastModified><ETag>"e"</ETag></Contents>'
            for name in names[:most]
        )
        self._answer(200, f"<ListBucketResult>{found}</ListBucketResult>".encode())

    def _name(self) -> str:
        return unquote(urlsplit(self.path).path).split("/", 2)[2]

    def _refuse(self, code: str) -> None:
        self._answer(404, f"<Error><Code>{code}</Code><Message>None of that name.</Message></Error>".encode())

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        named = {"ETag": '"e"', "Last-Modified": formatdate(0, usegmt=True), **(headers or {})}
        for name, value in {**named, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@contextmanager
def google_server() -> Iterator[GoogleServer]:
    server = GoogleServer()
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
