"""Submit, status and results of Infrai's face: what its users read, and what is said where it cannot be."""

from __future__ import annotations

from support.service import RunningService, chat, chats


def test_submit_answers_at_once_and_the_batch_ends(service: RunningService) -> None:
    answer = service.post("/v1/ai/batch/submit", {"requests": chats(20), "metadata": {"job": "nightly"}, "store": True})
    body = answer.json()
    assert (answer.status_code, body["ok"], body["error"]) == (200, True, None)
    assert body["data"]["state"] in ("queued", "running")
    assert body["data"]["total_count"] == 20
    status = service.ended(body["data"]["batch_id"])
    assert (status["state"], status["progress"], status["completed_count"]) == ("completed", 1.0, 20)
    assert status["metadata"] == {"job": "nightly"}
    items = service.results(body["data"]["batch_id"])
    assert [item["request_index"] for item in items] == list(range(20))
    assert all(item["ok"] and item["result"]["content"] for item in items)


def test_results_come_in_pages_of_a_hundred(scripted: RunningService) -> None:
    batch_id = scripted.submit(chats(250))
    scripted.ended(batch_id)
    first = scripted.get(f"/v1/ai/batch/results/{batch_id}", limit=100).json()["data"]
    assert (len(first["items"]), first["next_cursor"], first["total_count"]) == (100, "100", 250)
    assert [item["result"]["content"] for item in scripted.results(batch_id, limit=100)] == [
        f"w{number}" for number in range(250)
    ]


def test_rows_that_are_none_fail_alone(scripted: RunningService) -> None:
    batch_id = scripted.submit([chat("a"), 5, {"model": "m"}, chat("b")])  # type: ignore[list-item]
    status = scripted.ended(batch_id)
    assert (status["state"], status["completed_count"], status["failed_count"]) == ("partial", 2, 2)
    assert status["error_kinds"] == {"invalid_row": 2}
    assert [item["ok"] for item in scripted.results(batch_id)] == [True, False, False, True]
