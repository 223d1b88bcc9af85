"""A service killed with SIGKILL while it takes a batch in, works on it, and gives it out.

The client asks again as it would: with the same idempotency key, and with the cursor it had come to. Nothing is lost,
nothing stands there twice, and what a kill cost is owned up to.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from batchwright.store.open import open_store
from support.command_line import CommandLine
from support.scripted_vendor import ScriptedVendor
from support.service import chats
from support.service_process import BATCH, ServiceProcess
from support.together import Together
from support.watched_command import read_account

ROWS = 300
IN_FLIGHT = 8
LATENCY_S = 0.02
IN_SUBMIT = (
    ("before create_batch:1", "after create_batch:1"),
    ("before add_segments:1", "after add_segments:1"),
    ("before close_intake:1", "after close_intake:1"),
)
IN_RUN = (
    ("after checkpoint:2", "before send:40", "after booking:40"),
    ("before checkpoint:4", "commit:12", "after send:60"),
)
EXPORT_KILLS = 3


class Killed:
    """One service, killed at named points; what its kills exposed is counted."""

    def __init__(self, folder: Path, vendor: ScriptedVendor) -> None:
        vendor.set(latency_s=LATENCY_S)
        self.vendor = vendor
        self.service = ServiceProcess(CommandLine(folder), vendor, concurrency=IN_FLIGHT)
        self.exposed = 0
        self._accounts = 0

    def start(self, point: str = "-") -> None:
        self._account = self.service.command.folder / f"account{self._accounts}"
        self._accounts += 1
        try:
            self.service.start(program=("-m", "support.watched_command", str(self._account), point))
        except AssertionError:
            # What an earlier life left is worked on at once: a point may be reached before it says where it serves.
            if point == "-":
                raise

    def was_killed(self) -> None:
        ended = self.service.end()
        assert ended.code == -signal.SIGKILL, f"it was not killed: {ended.code}, {ended.err}"
        self.exposed += read_account(self._account).exposed

    def submit(self) -> httpx.Response:
        body = {"requests": chats(ROWS), "idempotency_key": "the same"}
        return self.service.client.post(f"{BATCH}/submit", json=body)

    def holds(self, batch_id: str) -> None:
        """Every row once, in order, each with its own answer; the store's laws; no more double payments than said."""
        status = self.service.ended(batch_id)
        assert (status["state"], status["completed_count"]) == ("completed", ROWS)
        items = self.service.results(batch_id)
        assert [item["request_index"] for item in items] == list(range(ROWS))
        assert [item["result"]["content"] for item in items] == [f"w{row}" for row in range(ROWS)]
        given = Counter(hit.text for hit in self.vendor.hits if hit.outcome == "200")
        twice = sum(count - 1 for count in given.values())
        assert twice <= self.exposed, (status, [text for text, count in given.items() if count > 1][:50])
        assert twice <= status["possible_double_payments"]
        store = open_store(self.service.command.state / "batchwright.sqlite")
        try:
            assert [row.batch_id for row in store.find_batches()] == [batch_id], "one request made one batch"
            assert store.check(batch_id) == []
        finally:
            store.close()


def killed_in_submit(folder: Path, points: tuple[str, ...]) -> None:
    with ScriptedVendor() as vendor:
        case = Killed(folder, vendor)
        answered: set[str] = set()
        with case.service:  # makes the first key
            case.service.kill()
            for point in points:
                case.start(point)
                with suppress(httpx.TransportError):
                    answered.add(case.submit().json()["data"]["batch_id"])
                case.was_killed()
            case.start()
            answer = case.submit()
            assert answer.status_code == 200, answer.text
            answered.add(answer.json()["data"]["batch_id"])
            again = case.submit()
            assert again.headers["idempotency-replayed"] == "true"
            answered.add(again.json()["data"]["batch_id"])
            assert len(answered) == 1, "an answer that was given holds"
            case.holds(answered.pop())


def killed_in_run(folder: Path, points: tuple[str, ...]) -> None:
    with ScriptedVendor() as vendor:
        case = Killed(folder, vendor)
        with case.service:
            case.service.kill()
            batch_id = ""
            for point in points:
                case.start(point)
                with suppress(httpx.TransportError):
                    answer = case.submit()
                    batch_id = batch_id or answer.json()["data"]["batch_id"]
                    assert answer.json()["data"]["batch_id"] == batch_id
                case.was_killed()
            case.start()
            assert case.submit().json()["data"]["batch_id"] == batch_id
            case.holds(batch_id)


def killed_in_export(folder: Path) -> None:
    """A client that pages through the answers, and asks for the cursor it had come to after each kill."""
    with ScriptedVendor() as vendor:
        case = Killed(folder, vendor)
        with case.service:
            batch_id = str(case.submit().json()["data"]["batch_id"])
            case.service.ended(batch_id)
            asked = len(vendor.hits)
            whole = case.service.client.get(f"{BATCH}/export/{batch_id}.jsonl").content
            items: list[dict[str, Any]] = []
            cursor: str | None = "0"
            pages = 0
            while cursor is not None:
                answer = case.service.client.get(f"{BATCH}/results/{batch_id}", params={"cursor": cursor, "limit": 50})
                items += answer.json()["data"]["items"]
                cursor = answer.json()["data"]["next_cursor"]
                pages += 1
                if pages <= EXPORT_KILLS:
                    with case.service.client.stream("GET", f"{BATCH}/export/{batch_id}.jsonl"):
                        case.service.kill()
                    case.service.start()
            assert [item["request_index"] for item in items] == list(range(ROWS))
            assert case.service.client.get(f"{BATCH}/export/{batch_id}.jsonl").content == whole
            assert len(vendor.hits) == asked, "what is given out is not sent again"
            case.holds(batch_id)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    together = Together()

    def folder() -> Path:
        return tmp_path_factory.mktemp("service")

    for number, points in enumerate(IN_SUBMIT):
        together.begin(f"submit {number}", partial(killed_in_submit, folder(), points))
    for number, more in enumerate(IN_RUN):
        together.begin(f"run {number}", partial(killed_in_run, folder(), more))
    together.begin("export", partial(killed_in_export, folder()))
    yield together
    together.close()


@pytest.mark.parametrize("number", range(len(IN_SUBMIT)))
def test_killed_while_a_batch_is_taken_in(begun: Together, number: int) -> None:
    begun.result(f"submit {number}")


@pytest.mark.parametrize("number", range(len(IN_RUN)))
def test_killed_while_rows_are_sent(begun: Together, number: int) -> None:
    begun.result(f"run {number}")


def test_killed_while_answers_are_given_out(begun: Together) -> None:
    begun.result("export")
