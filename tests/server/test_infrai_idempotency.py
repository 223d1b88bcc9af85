"""One idempotency key makes one batch, whenever and however often it is sent."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import httpx

from batchwright.assemble.home import store_place
from batchwright.core.batch_spec import BatchSpec, Destination
from batchwright.core.records import InputRow, SegmentInput
from batchwright.core.worker_id import WorkerId
from batchwright.fabric.system import SystemClock
from batchwright.ports.store import Idempotency, NewBatch, NewSegment
from batchwright.store.open import open_store
from batchwright.wire.frames import pack_input
from support.service import BATCH, RunningService, chats

SUBMIT = f"{BATCH}/submit"
BODY = {"requests": chats(3), "metadata": {"job": "a"}}


def made(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["data"]["batch_id"])


def batches(service: RunningService) -> int:
    store = open_store(store_place(service.settings))
    try:
        return len(store.find_batches())
    finally:
        store.close()


def test_the_same_key_and_body_give_the_first_batch_again(scripted: RunningService) -> None:
    first = scripted.post(SUBMIT, BODY, {"Idempotency-Key": "k"})
    scripted.ended(made(first))
    again = scripted.post(SUBMIT, BODY, {"Idempotency-Key": "k"})
    assert made(first) == made(again)
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    assert batches(scripted) == 1


def test_the_key_may_be_a_field_of_the_body(scripted: RunningService) -> None:
    body = BODY | {"idempotency_key": "k"}
    assert made(scripted.post(SUBMIT, body)) == made(scripted.post(SUBMIT, body, {"Idempotency-Key": "k"}))
    differ = scripted.post(SUBMIT, body, {"Idempotency-Key": "other"})
    assert (differ.status_code, differ.json()["error"]["param"]) == (400, "idempotency_key")


def test_the_same_key_with_another_body_is_a_conflict(scripted: RunningService) -> None:
    first = made(scripted.post(SUBMIT, BODY, {"Idempotency-Key": "k"}))
    other = scripted.post(SUBMIT, {"requests": chats(4)}, {"Idempotency-Key": "k"})
    error = other.json()["error"]
    assert (other.status_code, error["code"], error["retryable"]) == (409, "IDEMPOTENCY_CONFLICT", False)
    assert first in error["message"]
    assert batches(scripted) == 1


def test_without_a_key_equal_batches_are_two(scripted: RunningService) -> None:
    assert made(scripted.post(SUBMIT, BODY)) != made(scripted.post(SUBMIT, BODY))


def test_another_account_may_use_the_same_key(scripted: RunningService) -> None:
    other = scripted.client(scripted.new_key("other"))
    first = made(scripted.post(SUBMIT, BODY, {"Idempotency-Key": "k"}))
    assert made(other.post(SUBMIT, json=BODY, headers={"Idempotency-Key": "k"})) != first


def test_two_at_the_same_moment_make_one_batch(scripted: RunningService) -> None:
    body = {"requests": chats(2_000)}
    together = Barrier(8)

    def ask(client: httpx.Client) -> httpx.Response:
        together.wait()
        return client.post(SUBMIT, json=body, headers={"Idempotency-Key": "k"})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, [scripted.client() for _ in range(8)]))
    assert len({made(answer) for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    assert batches(scripted) == 1


def test_a_second_waits_while_the_first_is_being_taken_in(scripted: RunningService) -> None:
    content = json.dumps(BODY).encode()
    store, now_ms = open_store(store_place(scripted.settings)), SystemClock().now_ms()
    first = NewBatch(
        batch_id=f"batch_{'a' * 24}",
        spec=BatchSpec(name="", destinations=(Destination(vendor="scripted", base_url="http://127.0.0.1:1/v1"),)),
        created_at_ms=now_ms,
        owner=WorkerId("elsewhere", "1"),
        idempotency=Idempotency("k", hashlib.sha256(content).hexdigest()),
    )
    lane = "scripted||m"
    rows = pack_input(SegmentInput(lanes=[lane], rows=[InputRow(body=b"{}", model="m")]))
    with ThreadPoolExecutor(1) as pool:
        try:
            store.create_batch(first)
            store.add_segments(
                first.batch_id, [NewSegment(number=0, first_index=0, row_map=b"\0", input=rows, lane_set=lane)]
            )
            client = scripted.client()
            client.headers.update({"Content-Type": "application/json", "Idempotency-Key": "k"})
            other = client.post(SUBMIT, content=b" " + content)
            assert other.json()["error"]["code"] == "IDEMPOTENCY_CONFLICT", "another body need not wait"
            second = pool.submit(client.post, SUBMIT, content=content)
            store.close_intake(first.batch_id, now_ms)
            assert made(second.result()) == first.batch_id
            assert second.result().headers["idempotency-replayed"] == "true"
        finally:
            store.close()
