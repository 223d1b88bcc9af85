"""Cancel, pause, resume, retry, delete: what each does, and what the state does not allow."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.command_line import CommandLine, chat_row
from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat, chats, serving


def refused(service: RunningService, call: str, batch_id: str, body: object = None) -> dict[str, Any]:
    answer = service.post(f"{BATCH}/{call}/{batch_id}", body)
    assert (answer.status_code, answer.json()["ok"]) == (409, False), answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == "WRONG_STATE"
    assert not error["retryable"]
    return error


def done(service: RunningService, call: str, batch_id: str, body: object = None) -> dict[str, Any]:
    answer = service.post(f"{BATCH}/{call}/{batch_id}", body)
    assert answer.status_code == 200, answer.text
    data: dict[str, Any] = answer.json()["data"]
    return data


def test_cancel_ends_a_batch_and_harms_nobody_when_asked_twice(
    scripted: RunningService, vendor: ScriptedVendor
) -> None:
    vendor.set(hold=True)
    batch_id = scripted.submit(chats(600))
    vendor.wait_for(lambda vendor: len(vendor.hits) >= 4)
    assert done(scripted, "cancel", batch_id, {})["state"] == "cancelling"
    assert done(scripted, "cancel", batch_id)["state"] == "cancelling"
    assert "cancelling" in refused(scripted, "pause", batch_id)["message"]
    vendor.set(hold=False)
    status = scripted.ended(batch_id)
    assert status["state"] == "cancelled"
    assert status["completed_count"] >= 4, "what was out is paid for and kept"
    assert status["completed_count"] + status["failed_count"] == status["total_count"] == 600
    assert status["cancelled_count"] == status["failed_count"] == status["error_kinds"]["cancelled"]
    assert done(scripted, "cancel", batch_id)["state"] == "cancelled"


def test_pause_holds_rows_back_until_resume(scripted: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)
    batch_id = scripted.submit(chats(600))
    vendor.wait_for(lambda vendor: len(vendor.hits) >= 4)
    paused = done(scripted, "pause", batch_id, {"reason": "lunch"})
    assert (paused["state"], paused["paused_reason"], paused["terminal"]) == ("paused", "lunch", False)
    vendor.set(hold=False)
    vendor.wait_for(lambda vendor: not vendor.in_flight)
    held = scripted.status(batch_id)
    assert held["state"] == "paused"
    assert held["pending_count"] > 0
    assert done(scripted, "resume", batch_id)["paused_reason"] is None
    assert scripted.ended(batch_id)["completed_count"] == 600


def test_a_priority_moves_a_batch_before_others_of_its_account(
    scripted: RunningService, vendor: ScriptedVendor
) -> None:
    vendor.set(hold=True)
    first, second = scripted.submit(chats(600)), scripted.submit(chats(3))
    for priority in (100, -100, 7.0):
        assert done(scripted, "priority", second, {"priority": priority})["batch_id"] == second
    assert "priority" in scripted.post(f"{BATCH}/priority/{first}").json()["error"]["message"]
    vendor.set(hold=False)
    for batch_id in (first, second):
        scripted.ended(batch_id)
        assert "is completed" in refused(scripted, "priority", batch_id, {"priority": 1})["message"]


def test_a_batch_that_has_ended_is_neither_paused_resumed_nor_cancelled(scripted: RunningService) -> None:
    batch_id = scripted.submit(chats(3))
    scripted.ended(batch_id)
    for call in ("pause", "resume", "cancel"):
        assert "is completed" in refused(scripted, call, batch_id)["message"]


def test_retry_sends_the_failed_rows_again_in_place(scripted: RunningService, vendor: ScriptedVendor) -> None:
    batch_id = scripted.submit([chat("a"), chat("[[status=400 times=1]] b"), chat("c"), 7])  # type: ignore[list-item]
    status = scripted.ended(batch_id)
    assert (status["state"], status["error_kinds"]) == ("partial", {"invalid_request": 1, "invalid_row": 1})
    sent = len(vendor.hits)
    data = done(scripted, "retry", batch_id)
    assert (data["retried_count"], data["round"]) == (1, 1)
    again = scripted.ended(batch_id)
    assert (again["completed_count"], again["round"], len(vendor.hits)) == (3, 1, sent + 1)
    assert [item["ok"] for item in scripted.results(batch_id)] == [True, True, True, False]
    assert done(scripted, "retry", batch_id)["retried_count"] == 0, "the row that is none is never sent"


def test_retry_chooses_by_kind_and_flag(scripted: RunningService) -> None:
    rows = [
        chat("[[status=400 times=1]] a"),
        chat("[[status=404 code=model_not_found times=1]] b"),
        chat("[[finish=length]] c"),
    ]
    batch_id = scripted.submit(rows)
    first = scripted.ended(batch_id)
    assert first["error_kinds"] == {"invalid_request": 1, "model_not_found": 1}
    assert done(scripted, "retry", batch_id, {"kinds": ["model_not_found"]})["retried_count"] == 1
    assert scripted.ended(batch_id)["error_kinds"] == {"invalid_request": 1}
    assert done(scripted, "retry", batch_id, {"flags": ["truncated"], "batch_timeout": "5m"})["retried_count"] == 1
    assert scripted.ended(batch_id)["completed_count"] == 2


def test_a_retry_of_a_round_that_is_over_is_refused(scripted: RunningService) -> None:
    batch_id = scripted.submit([chat("[[status=400]] a"), chat("b")])
    scripted.ended(batch_id)
    assert done(scripted, "retry", batch_id, {"round": 0})["round"] == 1
    scripted.ended(batch_id)
    error = refused(scripted, "retry", batch_id, {"round": 0})
    assert ("round 1" in error["message"], error["param"]) == (True, "round")


def test_a_batch_that_runs_is_not_retried_nor_deleted(scripted: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)
    batch_id = scripted.submit(chats(2))
    scripted.until(batch_id, lambda status: status["state"] in ("queued", "running"))
    for call, body in (("retry", None), ("retry", {"as": "new"}), ("delete", None)):
        message = refused(scripted, call, batch_id, body)["message"]
        assert "is queued" in message or "is running" in message
    vendor.set(hold=False)
    scripted.ended(batch_id)


def test_failed_rows_become_a_batch_of_their_own(scripted: RunningService) -> None:
    rows = [
        chat("a"),
        chat("[[status=400 times=1]] b"),
        chat("c"),
        chat("[[status=400 times=1]] d", custom_id="dd"),
        {"no": 1},
    ]
    batch_id = scripted.submit(rows, metadata={"job": "j"})
    before = scripted.ended(batch_id)
    data = done(scripted, "retry", batch_id, {"as": "new"})
    assert data["batch_id"] != batch_id
    assert (data["total_count"], data["retried_count"]) == (2, 2)
    assert data["metadata"] == {"job": "j", "retry_of": batch_id}
    assert scripted.ended(data["batch_id"])["state"] == "completed"
    items = scripted.results(data["batch_id"])
    assert [(item["request_index"], item["source_index"]) for item in items] == [(0, 1), (1, 3)]
    assert [item.get("custom_id") for item in items] == [None, "dd"]
    assert [item["result"]["content"] for item in items] == ["b", "d"]
    assert scripted.status(batch_id) == before, "the old batch stands as it was"
    assert not any("source_index" in item for item in scripted.results(batch_id))


def test_a_retry_as_new_is_asked_twice_and_made_once(scripted: RunningService) -> None:
    batch_id = scripted.submit([chat("[[status=400]] a"), chat("b")])
    scripted.ended(batch_id)
    asked = {"as": "new", "idempotency_key": "k"}
    first, again = (scripted.post(f"{BATCH}/retry/{batch_id}", asked) for _ in range(2))
    assert first.json()["data"]["batch_id"] == again.json()["data"]["batch_id"]
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    other = scripted.post(f"{BATCH}/retry/{batch_id}", asked | {"kinds": ["invalid_request"]})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")


def test_nothing_to_retry_makes_no_new_batch(scripted: RunningService) -> None:
    batch_id = scripted.submit(chats(2))
    scripted.ended(batch_id)
    assert "completed" in refused(scripted, "retry", batch_id, {"as": "new"})["message"]


@pytest.mark.parametrize(
    ("call", "body", "param"),
    [
        ("retry", {"kinds": ["nonsense"]}, "kinds"),
        ("retry", {"flags": ["nonsense"]}, "flags"),
        ("retry", {"as": "other"}, "as"),
        ("retry", {"batch_timeout": "soon"}, "batch_timeout"),
        ("retry", {"max_cost_usd": 1}, "max_cost_usd"),
        ("retry", {"idempotency_key": "k"}, "idempotency_key"),
        ("retry", {"round": -1}, "round"),
        ("retry", {"kind": ["timeout"]}, "kind"),
        ("retry", {"kinds": "timeout"}, "kinds"),
        ("pause", {"reason": ""}, "reason"),
        ("resume", {"max_cost_usd": -1}, "max_cost_usd"),
        ("priority", {"priority": 101}, "priority"),
        ("priority", {"priority": -101}, "priority"),
        ("priority", {"priority": 0.5}, "priority"),
        ("priority", {"priority": "1"}, "priority"),
        ("cancel", {"force": True}, "force"),
        ("delete", {"force": True}, "force"),
    ],
)
def test_what_a_call_cannot_do_is_refused_by_name(
    scripted: RunningService, call: str, body: dict[str, object], param: str
) -> None:
    batch_id = scripted.submit([chat("[[status=400]] a")])
    scripted.ended(batch_id)
    answer = scripted.post(f"{BATCH}/{call}/{batch_id}", body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_REQUEST"), answer.text
    assert answer.json()["error"]["param"] == param
    assert scripted.status(batch_id)["round"] == 0


def test_rows_that_can_never_be_sent_are_no_choice(scripted: RunningService) -> None:
    batch_id = scripted.submit([chat("a"), 5])  # type: ignore[list-item]
    scripted.ended(batch_id)
    answer = scripted.post(f"{BATCH}/retry/{batch_id}", {"kinds": ["invalid_row"]})
    assert (answer.status_code, "invalid_row" in answer.json()["error"]["message"]) == (400, True)


def test_a_deleted_batch_is_gone_in_every_route(scripted: RunningService) -> None:
    batch_id = scripted.submit(chats(2))
    scripted.ended(batch_id)
    assert done(scripted, "delete", batch_id) == {"batch_id": batch_id, "deleted": True}
    gone = [scripted.get(f"{BATCH}/{route}/{batch_id}") for route in ("status", "results")]
    gone += [scripted.post(f"{BATCH}/{route}/{batch_id}") for route in ("cancel", "pause", "resume", "retry", "delete")]
    never = scripted.get(f"{BATCH}/status/batch_{'0' * 24}").json()["error"]
    for answer in gone:
        assert (answer.status_code, answer.json()["error"]) == (404, never)


def test_a_copy_of_a_runs_failed_rows_is_not_taken_for_the_run(tmp_path: Path, vendor: ScriptedVendor) -> None:
    """`batchwright run` knows its batches by what they were made from; a copy of some rows is something else."""
    command = CommandLine(tmp_path)
    rows = command.write("rows.jsonl", [chat_row("[[status=400 times=1]] a"), chat_row("b")])
    run = ("run", rows, "--base-url", vendor.base_url, "-o", "out.jsonl", "--json")
    first = command(*run).report["batch_id"]
    with serving(tmp_path, vendor) as service:
        assert service.status(first)["state"] == "partial"
        copied = done(service, "retry", first, {"as": "new"})["batch_id"]
        assert service.ended(copied)["state"] == "completed"
    assert command(*run).report["batch_id"] == first


def test_two_retries_at_once_begin_one_round(scripted: RunningService, vendor: ScriptedVendor) -> None:
    batch_id = scripted.submit([chat("[[status=400 times=1]] a"), chat("b")])
    scripted.ended(batch_id)
    vendor.set(hold=True)
    clients = [scripted.client() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda client: client.post(f"{BATCH}/retry/{batch_id}"), clients))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert scripted.status(batch_id)["round"] == 1
    vendor.set(hold=False)
    assert scripted.ended(batch_id)["completed_count"] == 2


def test_rows_that_all_fail_alike_stop_the_batch_unless_it_is_to_pause(scripted: RunningService) -> None:
    rows = [chat(f"[[status=400 code=no]] {number}") for number in range(200)]
    stopped = scripted.ended(scripted.submit(rows))
    assert (stopped["state"], stopped["failed_count"]) == ("failed", 200)
    assert stopped["error_kinds"].keys() == {"invalid_request", "stopped"}
    batch_id = scripted.submit(rows, on_gate="pause")
    paused = scripted.until(batch_id, lambda status: status["state"] == "paused")
    assert paused["error_kinds"].keys() == {"invalid_request"}
    assert paused["paused_reason"]
    assert done(scripted, "cancel", batch_id)["state"] in ("cancelling", "cancelled")
    assert scripted.ended(batch_id)["state"] == "cancelled"


def test_a_round_that_the_gate_stops_says_how_many_rows_it_left(
    scripted: RunningService, vendor: ScriptedVendor
) -> None:
    rows = [*chats(20), *(chat(f"[[status=400 code=no]] {number}") for number in range(30))]
    batch_id = scripted.submit(rows)
    first = scripted.ended(batch_id)
    assert (first["failed_count"], first["closed_as"], first["left_count"]) == (30, None, 0)
    sent = len(vendor.hits)
    done(scripted, "retry", batch_id)
    stopped = scripted.ended(batch_id)
    assert (stopped["failed_count"], stopped["closed_as"], stopped["left_count"]) == (30, "stopped", 5)
    assert len(vendor.hits) - sent == 25
    done(scripted, "retry", batch_id, {"gate": False})
    whole = scripted.ended(batch_id)
    assert (whole["failed_count"], whole["closed_as"], whole["left_count"]) == (30, None, 0)
    assert len(vendor.hits) - sent == 55
    again = done(scripted, "retry", batch_id, {"gate": False, "as": "new"})["batch_id"]
    assert scripted.ended(again)["error_kinds"] == {"invalid_request": 30}


@pytest.mark.parametrize(
    ("call", "content", "code"),
    [
        ("retry", b"{", "INVALID_JSON"),
        ("retry", b"[" * 10_000, "INVALID_REQUEST"),
        ("retry", b'{"kinds": ' + b"[" * 10_000, "INVALID_REQUEST"),
        ("retry", b'{"round": NaN}', "INVALID_JSON"),
        ("retry", b'{"round": 1e400}', "INVALID_REQUEST"),
        ("retry", b'{"round": ' + b"9" * 400 + b"}", "INVALID_REQUEST"),
        ("retry", b"\xff\xfe", "INVALID_JSON"),
        ("retry", b'"retry"', "INVALID_REQUEST"),
        ("pause", b'{"reason": 1}', "INVALID_REQUEST"),
        ("pause", b'{"reason": "\\ud800"}', "WRONG_STATE"),
        ("pause", b'{"reason": "' + b"x" * 70_000 + b'"}', "BODY_TOO_LARGE"),
        ("resume", b'{"max_cost_usd": 1e308}', "INVALID_REQUEST"),
        ("resume", b'{"max_cost_usd": "nan"}', "INVALID_REQUEST"),
        ("delete", b"null", "INVALID_REQUEST"),
    ],
)
def test_odd_bodies_are_told_what_is_wrong_and_change_nothing(
    scripted: RunningService, call: str, content: bytes, code: str
) -> None:
    batch_id = scripted.submit([chat("[[status=400]] a")])
    before = scripted.ended(batch_id)
    answer = scripted.clients[0].post(f"{BATCH}/{call}/{batch_id}", content=content)
    assert answer.json()["error"]["code"] == code, answer.text
    assert scripted.status(batch_id) == before
