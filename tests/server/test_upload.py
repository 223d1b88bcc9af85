"""Rows as lines that arrive: one batch in bounded memory, whole or not at all."""

from __future__ import annotations

import asyncio
import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from batchwright.assemble.home import store_place
from batchwright.assemble.machine import open_machine
from batchwright.server.service import Ceilings
from batchwright.store.open import open_store
from support.raw_asking import ask_raw, connection, head
from support.service import BATCH, RunningService, chat, serving

SUBMIT = f"{BATCH}/submit"
LINES = {"Content-Type": "application/x-ndjson"}
LOOKS_MAX = 100_000


def lines(count: int) -> bytes:
    return b"".join(json.dumps(chat(f"say {row}", custom_id=f"r{row}")).encode() + b"\n" for row in range(count))


def pieces(body: bytes, size: int = 10_000) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


def upload(service: RunningService, body: bytes, key: str = "", **query: str) -> httpx.Response:
    headers = LINES | ({"Idempotency-Key": key} if key else {})
    return service.client().post(SUBMIT, params=query, content=pieces(body), headers=headers)


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def stored(service: RunningService, condition: Callable[[list[Any]], bool] = lambda batches: True) -> list[Any]:
    """The batches there are, of any account, once this holds of them."""
    store = open_store(store_place(service.settings))
    try:
        for _ in range(LOOKS_MAX):
            if condition(batches := store.find_batches()):
                return batches
        raise AssertionError(f"it never came true of {batches}")
    finally:
        store.close()


def test_lines_become_one_batch_in_order(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        body = b"\n" + lines(600) + b"not json\n" + lines(1)[:-1]
        metadata = json.dumps({"job": "nightly"})
        data = upload(service, body, batch_timeout="30m", metadata=metadata).json()["data"]
        assert (data["total_count"], data["metadata"]) == (602, {"job": "nightly"})
        assert service.ended(data["batch_id"])["error_kinds"] == {"invalid_row": 1}
        items = service.results(data["batch_id"])
        found = [(item["request_index"], item.get("custom_id")) for item in items]
        assert found == [*((row, f"r{row}") for row in range(600)), (600, None), (601, "r0")]
        assert items[600]["error"]["line"] == 602, "its line in the body, blank ones counted"


@pytest.mark.parametrize(
    ("ceilings", "expected"),
    [
        (Ceilings(rows=999), "1,000 rows or more; at most 999"),
        (Ceilings(stream_bytes=50_000), "at most 50,000"),
        (Ceilings(row_bytes=80), "bytes or more; at most 80"),
    ],
)
def test_above_a_ceiling_nothing_is_kept(tmp_path: Path, ceilings: Ceilings, expected: str) -> None:
    with serving(tmp_path, works=False, ceilings=ceilings) as service:
        answer = upload(service, lines(1_000))
        assert code(answer) == (413, "BATCH_REJECTED")
        assert expected in answer.json()["error"]["message"]
        assert stored(service) == []


def test_what_is_no_batch_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, works=False) as service:
        assert code(upload(service, b"\n  \n\n")) == (400, "INVALID_REQUEST")
        assert code(upload(service, lines(1), colour="red")) == (400, "INVALID_REQUEST")
        assert code(upload(service, lines(1), batch_timeout="soon")) == (400, "INVALID_REQUEST")
        assert stored(service) == []


def test_the_same_key_makes_one_batch(tmp_path: Path) -> None:
    with serving(tmp_path, works=False) as service:
        with ThreadPoolExecutor(2) as together:
            first, second = together.map(lambda _: upload(service, lines(700), "k"), range(2))
        assert first.json()["data"]["batch_id"] == second.json()["data"]["batch_id"]
        assert sorted(answer.headers.get("idempotency-replayed", "") for answer in (first, second)) == ["", "true"]
        assert upload(service, lines(700), "k").json()["data"]["batch_id"] == first.json()["data"]["batch_id"]
        assert code(upload(service, lines(701), "k")) == (409, "IDEMPOTENCY_CONFLICT")
        assert code(upload(service, lines(700), "k", on_gate="pause")) == (409, "IDEMPOTENCY_CONFLICT")
        other = service.post(SUBMIT, {"requests": [chat("one")], "idempotency_key": "k"})
        assert code(other) == (409, "IDEMPOTENCY_CONFLICT")
        assert len(stored(service)) == 1


def large() -> bytes:
    """Above the size at which segments are written, however well they are packed."""
    chance = Random(1)
    return b"".join(json.dumps(chat(b64encode(chance.randbytes(40_000)).decode())).encode() + b"\n" for _ in range(300))


def accepting(batches: list[Any]) -> bool:
    return any(batch.facts.accepting for batch in batches)


async def sweep_elsewhere(service: RunningService) -> None:
    async with open_machine(service.settings):
        """Every command begins with a pass of the sweeper."""


def test_while_rows_arrive_no_sweep_takes_them(tmp_path: Path) -> None:
    with serving(tmp_path, works=False) as service, ThreadPoolExecutor(1) as beside:
        let_go = threading.Event()

        def body() -> Iterator[bytes]:
            yield large()
            let_go.wait()
            yield lines(1)

        headers = LINES | {"Idempotency-Key": "k"}
        sending = beside.submit(lambda: service.client().post(SUBMIT, content=body(), headers=headers))
        try:
            (batch,) = stored(service, accepting)
            asyncio.run(sweep_elsewhere(service))
            assert [one.batch_id for one in stored(service)] == [batch.batch_id]
        finally:
            let_go.set()
        data = sending.result().json()["data"]
        assert (data["batch_id"], data["total_count"]) == (batch.batch_id, 301)


def test_a_client_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, works=False) as service:
        body = large()
        begin = head(
            service,
            "POST",
            SUBMIT,
            "Content-Type: application/x-ndjson",
            "Idempotency-Key: k",
            f"Content-Length: {len(body) + 1}",
        )
        with connection(service) as opened:
            opened.sendall(begin + body)
            stored(service, accepting)
        stored(service, lambda batches: not batches)
        answer = upload(service, lines(2), "k")
        assert (answer.status_code, answer.headers.get("idempotency-replayed")) == (200, None), "the key is free"


def test_an_upload_that_goes_silent_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, works=False, ceilings=Ceilings(stream_silent_s=0.2)) as service:
        body = large()
        headers = ("Content-Type: application/x-ndjson", f"Content-Length: {len(body) + 1}")
        answer = ask_raw(service, "POST", SUBMIT, *headers, body=body)
        assert code(answer) == (408, "REQUEST_TIMEOUT")
        assert answer.json()["error"]["retryable"] is True
        assert stored(service) == []


def test_a_killed_service_leaves_an_upload_to_the_sweeper(tmp_path: Path) -> None:
    with serving(tmp_path, works=False) as service:
        body = large()
        begin = head(service, "POST", SUBMIT, "Content-Type: application/x-ndjson", f"Content-Length: {len(body) + 1}")
        with connection(service) as opened, suppress(OSError):
            opened.sendall(begin + body)
            stored(service, accepting)
            # The operating system frees a lock with its process, by removing nothing.
            for lock in (service.settings.state_dir / "locks").glob("batch_*.lock"):
                lock.unlink()
            asyncio.run(sweep_elsewhere(service))
            assert stored(service) == []
