"""Long polls and server-sent events over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chats, serving


class Event(dict[str, str]):
    @property
    def status(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self["data"])
        return data


def read_events(answer: httpx.Response) -> Iterator[Event]:
    event = Event()
    for line in answer.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        else:
            yield event
            event = Event()


def test_a_long_poll_hears_of_the_change(scripted: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)
    batch_id = scripted.submit(chats(1))
    vendor.wait_for(lambda vendor: bool(vendor.hits))
    before = scripted.until(batch_id, lambda status: status["state"] in ("running", "queued"))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(scripted.status, batch_id, wait=20, seen=before["version"])
        scripted.post(f"{BATCH}/pause/{batch_id}")
        assert asked.result()["state"] == "paused"
    scripted.post(f"{BATCH}/resume/{batch_id}")
    vendor.set(hold=False)
    assert scripted.ended(batch_id)["state"] == "completed"


def test_a_long_poll_hears_of_rows_only_where_it_says_what_it_has_seen(
    scripted: RunningService, vendor: ScriptedVendor
) -> None:
    vendor.set(hold=True)
    batch_id = scripted.submit(chats(200))
    vendor.wait_for(lambda vendor: bool(vendor.hits))
    vendor.release()
    before = scripted.until(batch_id, lambda status: status["state"] == "running")
    vendor.wait_for(lambda vendor: len(vendor.hits) > before["settled_count"])
    with ThreadPoolExecutor(2) as pool:
        state = pool.submit(scripted.status, batch_id, wait=60)
        progress = pool.submit(scripted.status, batch_id, wait=60, seen=before["version"])
        vendor.release()
        told = progress.result()
        assert (told["state"], told["terminal"]) == ("running", False)
        assert told["settled_count"] > before["settled_count"]
        vendor.set(hold=False)
        vendor.release()
        assert state.result()["state"] == "completed"


def test_a_long_poll_answers_at_once_where_there_is_news_or_an_end(
    scripted: RunningService, vendor: ScriptedVendor
) -> None:
    vendor.set(hold=True)
    batch_id = scripted.submit(chats(2))
    assert scripted.status(batch_id, wait=60, seen="0.0.accepting")["state"] in ("queued", "running")
    vendor.set(hold=False)
    end = scripted.ended(batch_id)
    assert scripted.status(batch_id, wait=60) == scripted.status(batch_id, wait=60, seen=end["version"]) == end


@pytest.mark.parametrize("wait", ["-1", "61", "long", "1.5"])
def test_a_wait_has_bounds(scripted: RunningService, wait: str) -> None:
    batch_id = scripted.submit(chats(1))
    error = scripted.get(f"{BATCH}/status/{batch_id}", wait=wait).json()["error"]
    assert (error["code"], error["param"]) == ("INVALID_REQUEST", "wait")
    scripted.ended(batch_id)


def test_events_tell_the_status_until_the_end(scripted: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)
    batch_id = scripted.submit(chats(3))
    with scripted.client().stream("GET", f"{BATCH}/events/{batch_id}") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = read_events(answer)
        first = next(events)
        assert (first["event"], first["id"], first.status["terminal"]) == ("status", "0.0", False)
        vendor.set(hold=False)
        told = [first, *events]
    assert [event.status["terminal"] for event in told] == [False] * (len(told) - 1) + [True]
    counts = [event.status["settled_count"] for event in told]
    assert counts == sorted(counts)
    assert (told[-1]["id"], told[-1].status["state"]) == ("0.3", "completed")
    assert told[-1].status == scripted.status(batch_id)


def test_a_reconnect_gets_the_present_status_and_after_the_end_nothing(scripted: RunningService) -> None:
    batch_id = scripted.submit(chats(2))
    scripted.ended(batch_id)
    path = f"{BATCH}/events/{batch_id}"
    with scripted.client().stream("GET", path, headers={"Last-Event-ID": "0.1"}) as answer:
        assert [event["id"] for event in read_events(answer)] == ["0.2"]
    over = scripted.clients[0].get(path, headers={"Last-Event-ID": "0.2"})
    assert (over.status_code, over.content) == (204, b"")


def test_many_watchers_hear_the_same_end(scripted: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)
    batch_id = scripted.submit(chats(5))
    streams = [scripted.client().stream("GET", f"{BATCH}/events/{batch_id}") for _ in range(30)]
    answers = [stream.__enter__() for stream in streams]
    vendor.set(hold=False)
    ends = [list(read_events(answer))[-1] for answer in answers]
    for stream in streams:
        stream.__exit__(None, None, None)
    assert len({end["data"] for end in ends}) == 1
    assert ends[0].status["state"] == "completed"


def test_events_of_what_is_not_there_are_an_error_in_the_envelope(scripted: RunningService) -> None:
    batch_id = scripted.submit(chats(1))
    other = scripted.client(scripted.new_key("other"))
    for client, asked in ((other, batch_id), (scripted.clients[0], f"batch_{'0' * 24}")):
        answer = client.get(f"{BATCH}/events/{asked}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NOT_FOUND")
    scripted.ended(batch_id)


def test_the_end_of_the_service_closes_the_streams(tmp_path: Path) -> None:
    with serving(tmp_path, works=False) as service:
        batch_id = service.submit(chats(1))
        with ThreadPoolExecutor(1) as pool:
            client = service.client()
            stream = client.stream("GET", f"{BATCH}/events/{batch_id}")
            answer = stream.__enter__()
            events = read_events(answer)
            assert next(events).status["state"] == "queued"
            rest = pool.submit(list, events)
            service.stop()
            assert rest.result() == []
            stream.__exit__(None, None, None)
