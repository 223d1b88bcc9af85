"""Clients that are slow, many or rude: each is given up in its time, and nobody else waits for it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from batchwright.assemble import connections
from batchwright.assemble.service import listen_at
from support.patience import PATIENCE_S
from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat, chats, serving

SOON_S = 0.2
HEAD = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
LONG_WORD = 120_000
LONG_ROWS = 100
"""A page of these is larger than what the sockets between us hold."""


def connect(service: RunningService, *, receives: int = 0) -> socket.socket:
    place = urlsplit(service.base_url)
    made = socket.socket()
    if receives:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    made.settimeout(PATIENCE_S)
    made.connect((place.hostname, place.port))
    return made


def all_of(made: socket.socket) -> bytes:
    """Until the other side closes."""
    data = b""
    while piece := made.recv(65536):
        data += piece
    return data


def refusal(data: bytes) -> tuple[int, str]:
    head, _, body = data.partition(b"\r\n\r\n")
    answer = json.loads(body)
    assert answer["ok"] is False
    assert answer["metadata"]["request_id"]
    assert b"connection: close" in head.lower()
    return int(head.split(b" ", 2)[1]), answer["error"]["code"]


@pytest.fixture
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningService]:
    monkeypatch.setattr(connections, "HEAD_S", SOON_S)
    with serving(tmp_path) as service:
        yield service


def test_heads_that_do_not_arrive_stop_nobody_and_are_given_up(hasty: RunningService) -> None:
    slow = [connect(hasty) for _ in range(40)]
    for number, made in enumerate(slow):
        made.sendall((b"", b"G", HEAD, HEAD + b"x: y")[number % 4])
    assert hasty.get("/healthz").status_code == 200
    batch_id = hasty.submit(chats(5))
    assert hasty.ended(batch_id)["state"] == "completed"
    for made in slow:
        with closing(made):
            assert refusal(all_of(made)) == (408, "REQUEST_TIMEOUT")


def test_a_later_request_on_a_kept_connection_has_the_same_time(hasty: RunningService) -> None:
    with closing(connect(hasty)) as made:
        made.sendall(HEAD + b"\r\n")
        assert made.recv(65536).startswith(b"HTTP/1.1 200")
        made.sendall(b"GET /heal")
        assert refusal(all_of(made)) == (408, "REQUEST_TIMEOUT")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 100_000,
        b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
        b"GET /" + b"y" * 100_000,
    ],
    ids=["header", "headers", "line"],
)
def test_a_head_without_end_is_refused(service: RunningService, head: bytes) -> None:
    with closing(connect(service)) as made:
        made.sendall(head)
        assert refusal(all_of(made)) == (431, "HEAD_TOO_LARGE")
    assert service.get("/healthz").status_code == 200


@pytest.mark.parametrize("noise", [b"\x16\x03\x01\x02\x00\x01", b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_no_http_is_told_so(service: RunningService, noise: bytes) -> None:
    with closing(connect(service)) as made:
        made.sendall(noise)
        assert refusal(all_of(made)) == (400, "INVALID_REQUEST")


def test_connections_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 16)
    with serving(tmp_path) as service:
        assert service.get("/healthz").status_code == 200  # a connection of its own, kept
        others = [connect(service) for _ in range(15)]
        for made in others:
            made.sendall(HEAD + b"\r\n")
            assert made.recv(65536).startswith(b"HTTP/1.1 200")
        with closing(connect(service)) as one_more:
            assert refusal(all_of(one_more)) == (503, "UNAVAILABLE")
        assert service.get("/healthz").status_code == 200
        others.pop().close()
        assert service.client("").get("/healthz").status_code == 200


def test_an_answer_that_nobody_takes_is_broken_off(
    tmp_path: Path, vendor: ScriptedVendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_off = threading.Event()
    break_off = connections._Bounded._break_off

    def told(connection: connections._Bounded) -> None:
        break_off(connection)
        broken_off.set()

    monkeypatch.setattr(connections, "UNREAD_S", SOON_S)
    monkeypatch.setattr(connections._Bounded, "_break_off", told)
    with serving(tmp_path, vendor) as service:
        batch_id = service.submit([chat(f"{row:03}" + "w" * LONG_WORD) for row in range(LONG_ROWS)])
        assert service.ended(batch_id)["state"] == "completed"
        with closing(connect(service, receives=4096)) as made:
            path = f"{BATCH}/results/{batch_id}?limit={LONG_ROWS}"
            made.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {service.key}\r\n\r\n".encode())
            assert broken_off.wait(PATIENCE_S)
            assert len(all_of(made)) < LONG_ROWS * LONG_WORD
        assert len(service.results(batch_id, limit=LONG_ROWS)) == LONG_ROWS


def test_the_address_that_is_told_answers_at_once() -> None:
    """Whoever reads it connects before anything else has been done."""
    with closing(listen_at("127.0.0.1", 0)) as listener, closing(socket.create_connection(listener.getsockname())):
        pass
