"""Two services without workers and one worker, each a process of another place, on one PostgreSQL: over HTTP."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from support.command_line import CommandLine, chat_row
from support.postgres import PostgresServer
from support.scripted_vendor import ScriptedVendor
from support.service import chats
from support.service_process import BATCH, ServiceProcess
from support.shared_database import LEASE
from support.webhook_receiver import receiving

ROWS = 200
AT_ONCE = 8
SERVED = {**LEASE, "BATCHWRIGHT_WEBHOOK_ALLOW": "127.0.0.1"}


class Shared:
    def __init__(self, folder: Path, url: str, vendor: ScriptedVendor, stack: ExitStack) -> None:
        self.vendor = vendor
        self.services = [
            ServiceProcess(CommandLine(folder / name, BATCHWRIGHT_DATABASE=url, **SERVED), vendor, "--no-work")
            for name in ("first", "second")
        ]
        for service in self.services:
            service.key = self.services[0].key
            stack.enter_context(service)
        place = CommandLine(folder / "worker", BATCHWRIGHT_DATABASE=url, **LEASE)
        (place.folder / "batchwright.toml").write_text(
            f"[vendors.scripted]\nbase_url = '{vendor.base_url}'\nconcurrency = 16\n"
        )
        worker = place.start("work", "--progress", "none")
        stack.callback(worker.end)
        stack.callback(worker.kill)

    def of_both(self, method: str, path: str, count: int = AT_ONCE, **more: object) -> list[httpx.Response]:
        """What each of so many requests at once is answered, by one service and the other in turn."""
        with ThreadPoolExecutor(count) as pool:
            asked = [
                pool.submit(self.services[number % 2].client.request, method, path, **more)  # type: ignore[arg-type]
                for number in range(count)
            ]
            return [one.result() for one in asked]


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with ScriptedVendor() as vendor, ExitStack() as stack:
        yield Shared(tmp_path_factory.mktemp("services"), postgres.new_database(), vendor, stack)


def test_one_key_makes_one_batch_whichever_service_is_asked(shared: Shared) -> None:
    body = {"requests": chats(20), "idempotency_key": "once"}
    answers = shared.of_both("POST", f"{BATCH}/submit", json=body)
    assert [answer.status_code for answer in answers] == [200] * AT_ONCE, [answer.text for answer in answers]
    assert len({answer.json()["data"]["batch_id"] for answer in answers}) == 1
    other = shared.services[1].client.post(f"{BATCH}/submit", json={**body, "requests": chats(3)})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")


def test_results_and_exports_are_had_of_either_while_it_runs(shared: Shared) -> None:
    first, second = shared.services
    shared.vendor.set(latency_s=0.03)
    batch_id = first.submit(chats(ROWS))
    seen = 0
    while not (status := second.status(batch_id, wait=1))["terminal"]:
        for service in shared.services:
            items = service.client.get(f"{BATCH}/results/{batch_id}", params={"limit": 1000}).json()["data"]["items"]
            ended = [item for item in items if item.get("ok")]
            assert [item["result"]["content"] for item in ended] == [f"w{item['request_index']}" for item in ended]
            assert len(ended) >= seen - ROWS // 4, "what one service has shown the other shows at most 0.2 s later"
            seen = max(seen, len(ended))
    shared.vendor.set(latency_s=0.0)
    assert status["completed_count"] == ROWS
    exports = shared.of_both("GET", f"{BATCH}/export/{batch_id}.jsonl", 4)
    assert len({answer.content for answer in exports}) == 1
    assert exports[0].content.count(b"\n") == ROWS


def test_a_key_that_one_has_made_or_revoked_is_known_to_the_other(shared: Shared) -> None:
    first, second = shared.services
    made = first.command("keys", "create", "--account", "theirs")
    assert made.code == 0, made.err
    key = (made.out or made.err).split("bw_")[1].split()[0]
    theirs = {"Authorization": f"Bearer bw_{key}"}
    ours = second.submit(chats(2))
    assert second.client.get(f"{BATCH}/status/{ours}", headers=theirs).status_code == 404
    mine = second.client.post(f"{BATCH}/submit", headers=theirs, json={"requests": chats(2)}).json()["data"]["batch_id"]
    assert first.client.get(f"{BATCH}/status/{mine}", headers=theirs).status_code == 200
    assert first.client.get(f"{BATCH}/status/{mine}").status_code == 404


def test_a_webhook_is_delivered_once_by_two_services(shared: Shared) -> None:
    first, second = shared.services
    batches = 6
    with receiving() as receiver:
        asked = {"url": receiver.url(), "events": ["batch.completed"]}
        made = first.client.post("/v1/account/webhooks/register", json=asked)
        assert made.status_code == 200, made.text
        ids = {shared.services[number % 2].submit(chats(3)) for number in range(batches)}
        receiver.wait_for(lambda messages: ids <= {message.json["data"]["batch_id"] for message in messages})
        for batch_id in ids:
            second.ended(batch_id)
        told = Counter(message.json["data"]["batch_id"] for message in receiver.messages)
    assert [told[batch_id] for batch_id in ids] == [1] * batches


def test_a_file_of_one_makes_a_batch_at_the_other(shared: Shared) -> None:
    first, second = shared.services
    line = json.dumps(chat_row("hello", "a")) + "\n"
    sent = first.client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("rows.jsonl", line)})
    assert sent.status_code == 200, sent.text
    body = {"input_file_id": sent.json()["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    made = second.client.post("/v1/batches", json=body)
    assert made.status_code == 200, made.text
    first.ended(made.json()["id"])
    output = first.client.get(f"/v1/batches/{made.json()['id']}").json()["output_file_id"]
    assert b"hello" in second.client.get(f"/v1/files/{output}/content").content
