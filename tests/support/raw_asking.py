"""A request as its bytes stand: no client mends them, and the answer is read whether or not the body was all sent."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from support.patience import PATIENCE_S
from support.service import RunningService


@contextmanager
def connection(service: RunningService) -> Iterator[socket.socket]:
    address = httpx.URL(service.base_url)
    with socket.create_connection((address.host, address.port or 80), timeout=PATIENCE_S) as opened:
        yield opened


def head(service: RunningService, method: str, target: str, *headers: str) -> bytes:
    own = ("Host: here", f"Authorization: Bearer {service.key}")
    return "\r\n".join((f"{method} {target} HTTP/1.1", *own, *headers)).encode("latin-1") + b"\r\n\r\n"


def read_answer(opened: socket.socket) -> httpx.Response:
    with opened.makefile("rb") as file:
        status = int(file.readline().split()[1])
        fields = []
        while line := file.readline().strip():
            name, _, value = line.partition(b": ")
            fields.append((name, value))
        headers = httpx.Headers(fields)
        return httpx.Response(status, headers=headers, content=file.read(int(headers["content-length"])))


def ask_raw(service: RunningService, method: str, target: str, *headers: str, body: bytes = b"") -> httpx.Response:
    """The answer to these bytes."""
    with connection(service) as opened:
        opened.sendall(head(service, method, target, *headers) + body)
        return read_answer(opened)
