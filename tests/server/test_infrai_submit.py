"""Submit, status and results of Infrai's face: what its users read, and what is said where it cannot be."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat, chats, serving


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


def test_a_submit_says_how_often_a_row_is_tried(scripted: RunningService) -> None:
    rows = [chat("[[status=500]] no"), chat("yes")]
    batch_id = scripted.post(f"{BATCH}/submit", {"requests": rows, "max_attempts": 1}).json()["data"]["batch_id"]
    assert scripted.ended(batch_id)["state"] == "partial"
    assert [item["attempts"] for item in scripted.results(batch_id)] == [1, 1]


def test_rows_that_are_none_fail_alone(scripted: RunningService) -> None:
    batch_id = scripted.submit([chat("a"), 5, {"model": "m"}, chat("b")])  # type: ignore[list-item]
    status = scripted.ended(batch_id)
    assert (status["state"], status["completed_count"], status["failed_count"]) == ("partial", 2, 2)
    assert status["error_kinds"] == {"invalid_row": 2}
    assert [item["ok"] for item in scripted.results(batch_id)] == [True, False, False, True]


def priced(folder: Path, vendor: ScriptedVendor) -> AbstractContextManager[RunningService]:
    table = folder / "prices.toml"
    folder.mkdir(exist_ok=True)
    table.write_text(
        '[[price]]\npattern = "m"\nvendor = "scripted"\ninput = "1"\noutput = "2"\n'
        '[[price]]\npattern = "free"\nvendor = "scripted"\nzero_rated = true\n'
    )
    return serving(folder, vendor, project=f'prices = "{table}"\n')


def test_the_estimate_is_the_most_that_the_rows_can_cost(tmp_path: Path, vendor: ScriptedVendor) -> None:
    rows = [chat("a", max_tokens=10), chat("b", max_tokens=20)]
    with priced(tmp_path, vendor) as service:
        answer = service.post(f"{BATCH}/submit", {"requests": rows}).json()["data"]
        status = service.ended(answer["batch_id"])
        body_bytes = sum(len(hit.body) for hit in vendor.hits)
        assert answer["estimated_cost_usd"] == pytest.approx((body_bytes + 2 * 30) / 1e6)
        assert 0 < status["cost_usd"] <= status["estimated_cost_usd"] == answer["estimated_cost_usd"]


@pytest.mark.parametrize(
    ("row", "estimate"),
    [
        (chat("a"), None),
        (chat("a", model="unpriced", max_tokens=10), None),
        (chat("a", model="free"), 0),
        (chat("a", max_tokens=10**15), None),
        ({"no": "row"}, 0),
    ],
    ids=["no bound", "no price", "free", "beyond all bounds", "never sent"],
)
def test_what_cannot_be_estimated_is_null(
    tmp_path: Path, vendor: ScriptedVendor, row: dict[str, Any], estimate: float | None
) -> None:
    with priced(tmp_path, vendor) as service:
        answer = service.post(f"{BATCH}/submit", {"requests": [row]})
        assert answer.json()["data"]["estimated_cost_usd"] == estimate
        service.ended(answer.json()["data"]["batch_id"])


def test_an_item_says_where_its_vendor_is_if_the_settings_do(tmp_path: Path, vendor: ScriptedVendor) -> None:
    rows = [chat("a"), chat("[[status=400]] b"), {"no": "row"}]
    for folder, settings, region in (("told", "region = 'china'\n", "china"), ("not", "", None)):
        with serving(tmp_path / folder, vendor, vendor_settings=settings) as service:
            batch_id = service.submit(rows)
            service.ended(batch_id)
            assert [item["region"] for item in service.results(batch_id)] == [region, region, None]
            assert [item["region"] for item in service.results(batch_id, include="response")] == [region, region, None]


def test_one_batch_may_ask_for_different_things(service: RunningService) -> None:
    batch_id = service.submit(
        [
            chat("hello"),
            {"capability": "ai.chat", "body": chat("hello")},
            {"capability": "embeddings", "body": {"model": "m", "input": "hello"}, "custom_id": "e"},
            {"capability": "ai.responses", "body": {"model": "m", "input": "hello"}},
            {"capability": "completions", "body": {"model": "m", "prompt": "hello"}},
            {"capability": "ai.image.create", "body": {"prompt": "a cat"}},
        ]
    )
    status = service.ended(batch_id)
    items = service.results(batch_id, include="response")
    assert status["error_kinds"] == {"invalid_row": 1}, items
    assert [item["ok"] for item in items] == [True] * 5 + [False]
    assert "ai.image.create" in items[5]["error"]["message"]
    assert items[2]["custom_id"] == "e"
    assert items[4]["result"]["content"] == items[0]["result"]["content"] == "Simulated answer to: hello"
    assert items[2]["response"]["data"][0]["embedding"]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"max_tokens": 1e15}, "max_tokens is 1000000000000000.0, and not a whole number from 1 to 1,099,511,627,775"),
        ({"max_tokens": 10**15}, "max_tokens is 1000000000000000, and not a whole number from 1 to 1,099,511,627,775"),
        ({"max_completion_tokens": 0}, "max_completion_tokens is 0, and"),
        ({"max_tokens": "5"}, 'max_tokens is "5", and'),
        ({"max_tokens": 5, "n": "3"}, 'n is "3", and'),
        ({"max_tokens": 10**9, "n": 10**9}, "its bound times the number of answers"),
        ({"max_tokens": 5, "previous_response_id": "r"}, "previous_response_id stands for input"),
        ({"max_tokens": 5, "image_url": "https://x"}, "input is kept elsewhere"),
        ({}, "it has no max_tokens"),
    ],
)
def test_under_a_cap_a_row_is_told_why_it_has_no_bound(
    tmp_path: Path, vendor: ScriptedVendor, field: dict[str, Any], said: str
) -> None:
    rows = [chat("a", max_tokens=10)] * 1_500
    with priced(tmp_path, vendor) as service:
        answer = service.post(f"{BATCH}/submit", {"requests": [*rows, chat("b", **field)], "max_cost_usd": 1})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "max_cost_usd")
        assert "requests[1500]: " in error["message"]
        assert said in error["message"]


def test_what_is_wrong_with_a_row_names_its_place(service: RunningService) -> None:
    """In an array its index, in lines its line."""
    rows = [chat("a"), {"no": "row"}]
    in_array = service.submit(rows)
    body = b"\n".join(json.dumps(row).encode() for row in rows)
    answer = service.clients[0].post(
        f"{BATCH}/submit", content=b"\n" + body, headers={"content-type": "application/x-ndjson"}
    )
    in_lines = answer.json()["data"]["batch_id"]
    for batch_id, place, line in ((in_array, "requests[1]: ", None), (in_lines, "line 3: ", 3)):
        service.ended(batch_id)
        error = service.results(batch_id)[1]["error"]
        assert error["message"].startswith(place)
        assert error.get("line") == line
    long = [*chats(1), chat("x" * 40_000_000)]
    assert service.post(f"{BATCH}/submit", {"requests": long}).json()["error"]["message"].startswith("requests[1] has ")


def test_a_cap_that_could_not_hold_is_refused(tmp_path: Path, vendor: ScriptedVendor) -> None:
    bounded = chat("a", max_tokens=10)
    with priced(tmp_path, vendor) as service:
        for row, said in ((chat("b"), "no max_tokens"), (chat("b", model="unpriced", max_tokens=1), "'unpriced'")):
            answer = service.post(f"{BATCH}/submit", {"requests": [bounded, row], "max_cost_usd": 1})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == (400, "INVALID_REQUEST", "max_cost_usd")
            assert "1 of its rows" in error["message"]
            assert "requests[1]: " in error["message"]
            assert said in error["message"]
            assert "--" not in answer.text, "words of the command line help nobody here"
        assert not vendor.hits
        batch_id = service.submit([bounded, chat("b", max_tokens=10)], max_cost_usd=0.000001)
        status = service.until(batch_id, lambda status: status["state"] == "paused")
        assert status["max_cost_usd"] == 0.000001
        assert service.post(f"{BATCH}/resume/{batch_id}", {"max_cost_usd": "1"}).status_code == 200
        assert service.ended(batch_id)["completed_count"] == 2
