"""A key's budget is not passed by what is out under it: rows and calls draw what they can cost before they go."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat, serving

KEYS = "/v1/account/keys"
PRICES = "".join(f'[[price]]\npattern = "{model}"\ninput = "100"\noutput = "500"\n\n' for model in ("m", "n"))
ANSWER_USD = 0.002
"""10 tokens in, 2 out."""
BOUND = 4
"""Tokens of an answer."""
MANY = 64
"""In flight at most, far above what the budgets here cover."""


@pytest.fixture
def service(tmp_path: Path, vendor: ScriptedVendor) -> Iterator[RunningService]:
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES)
    project = f"prices = '{prices}'\nconcurrency = {MANY}\n"
    with serving(tmp_path, vendor, project=project) as service:
        yield service


class Key:
    def __init__(self, service: RunningService, budget_usd: float) -> None:
        made = service.post(f"{KEYS}/create", {"budget_usd": budget_usd, "scopes": ["submit", "read"]}).json()["data"]
        self.key_id: str = made["key_id"]
        self.client: httpx.Client = service.client(made["key"])
        self._service = service

    def submit(self, rows: list[dict[str, Any]]) -> str:
        answer = self.client.post(f"{BATCH}/submit", json={"requests": rows})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["data"]["batch_id"])

    def call(self, **body: Any) -> httpx.Response:
        return self.client.post("/v1/chat/completions", json=chat("call", **body))

    @property
    def spent_usd(self) -> float:
        listed = self._service.get(f"{KEYS}/list").json()["data"]["items"]
        return float(next(item["spent_usd"] for item in listed if item["key_id"] == self.key_id))


def bounded(count: int) -> list[dict[str, Any]]:
    return [chat(f"w{number:04}", max_tokens=BOUND) for number in range(count)]


def worst_usd(service: RunningService) -> float:
    """What one of those can cost."""
    answer = service.post(f"{BATCH}/submit", {"requests": bounded(1)})
    service.ended(answer.json()["data"]["batch_id"])
    return float(answer.json()["data"]["estimated_cost_usd"])


def test_rows_that_are_out_stay_within_the_budget(service: RunningService, vendor: ScriptedVendor) -> None:
    worst = worst_usd(service)
    key = Key(service, budget_usd=round(5.5 * worst, 6))
    vendor.set(hold=True)
    batch_id = key.submit(bounded(200))
    vendor.wait_for(lambda vendor: len(vendor.held) == 5)
    vendor.set(hold=False)
    vendor.release()
    status = service.until(batch_id, lambda status: status["state"] == "paused")
    assert key.key_id in status["paused_reason"]
    assert f"batchwright keys budget {key.key_id} USD" in status["paused_reason"]
    assert 4.5 * worst - ANSWER_USD <= key.spent_usd <= 5.5 * worst, "all of it but what the next row needs"
    assert status["completed_count"] == round(key.spent_usd / ANSWER_USD)
    assert vendor.peak <= 5

    service.post(f"{KEYS}/budget/{key.key_id}", {"budget_usd": None})
    service.post(f"{BATCH}/resume/{batch_id}")
    assert service.ended(batch_id)["completed_count"] == 200


def test_rows_without_a_bound_pass_it_by_one_at_most(service: RunningService, vendor: ScriptedVendor) -> None:
    key = Key(service, budget_usd=round(4.5 * ANSWER_USD, 6))
    batch_id = key.submit([chat(f"w{number}") for number in range(50)])
    status = service.until(batch_id, lambda status: status["state"] == "paused")
    assert status["completed_count"] == 5 == len(vendor.hits)
    assert vendor.peak == 1


def stated(number: int, usd: float = ANSWER_USD) -> dict[str, Any]:
    """A row that no table has a price for, and whose vendor states what it cost. Its answer's tokens have a bound."""
    return chat(f'[[header="x-infrai-cost-usd: {usd}"]] w{number}', model="stated", max_tokens=BOUND)


def test_what_only_the_vendor_states_is_learned_before_many_are_sent(
    service: RunningService, vendor: ScriptedVendor
) -> None:
    key = Key(service, budget_usd=round(40.5 * ANSWER_USD, 6))
    vendor.set(hold=True)
    batch_id = key.submit([stated(number) for number in range(300)])
    vendor.wait_for(lambda vendor: len(vendor.held) == 1)
    vendor.set(hold=False)
    vendor.release()
    status = service.until(batch_id, lambda status: status["state"] == "paused")
    assert 40 <= status["completed_count"] == len(vendor.hits) <= 42
    assert status["completed_count"] == round(key.spent_usd / ANSWER_USD)

    service.post(f"{KEYS}/budget/{key.key_id}", {"budget_usd": round(80.5 * ANSWER_USD, 6)})
    service.post(f"{BATCH}/resume/{batch_id}")
    service.until(batch_id, lambda status: status["state"] == "paused" and status["completed_count"] > 42)
    assert 80 <= round(key.spent_usd / ANSWER_USD) <= 81, "known by now"


def test_answers_that_grow_dearer_pass_it_by_few(service: RunningService, vendor: ScriptedVendor) -> None:
    key = Key(service, budget_usd=200.0)
    batch_id = key.submit([stated(number, usd=round(0.1 * (1 + number // 20), 6)) for number in range(1000)])
    service.until(batch_id, lambda status: status["state"] == "paused")
    dearest = 0.1 * (1 + len(vendor.hits) // 20)
    assert 200.0 - dearest <= key.spent_usd <= 200.0 + 3 * dearest


def test_calls_whose_cost_nobody_knows_yet_go_one_at_a_time(service: RunningService, vendor: ScriptedVendor) -> None:
    key = Key(service, budget_usd=round(3.5 * ANSWER_USD, 6))
    call = stated(0)
    vendor.set(hold=True)
    answers: list[httpx.Response] = []
    calling = threading.Thread(target=lambda: answers.append(key.client.post("/v1/chat/completions", json=call)))
    calling.start()
    vendor.wait_for(lambda vendor: len(vendor.held) == 1)
    assert key.client.post("/v1/chat/completions", json=call).status_code == 429
    vendor.set(hold=False)
    vendor.release()
    calling.join()
    assert answers[0].status_code == 200
    codes = [key.client.post("/v1/chat/completions", json=call).status_code for _ in range(6)]
    assert codes == [200, 200, 200, 402, 402, 402]
    assert round(key.spent_usd / ANSWER_USD) == 4, "the last may pass it"


def test_rows_without_a_price_spend_nothing_and_run(service: RunningService) -> None:
    key = Key(service, budget_usd=ANSWER_USD)
    assert (
        service.ended(key.submit([chat(f"w{number}", model="unpriced") for number in range(50)]))["state"]
        == "completed"
    )


def test_batches_of_one_key_share_it_and_wait_for_each_other(service: RunningService, vendor: ScriptedVendor) -> None:
    worst = worst_usd(service)
    key = Key(service, budget_usd=round(3.5 * worst, 6))
    vendor.set(hold=True)
    first = key.submit(bounded(3))
    vendor.wait_for(lambda vendor: len(vendor.held) == 3)
    second = key.submit([chat("other", max_tokens=BOUND)])
    calls = key.call(max_tokens=BOUND)
    assert (calls.status_code, calls.headers["Retry-After"]) == (429, "1"), "what is left is held for rows"
    vendor.set(hold=False)
    vendor.release()
    assert service.ended(first)["completed_count"] == 3
    assert service.ended(second)["completed_count"] == 1, "it waited and did not pause"


def test_a_batch_whose_vendor_asks_to_wait_keeps_no_budget_from_the_others(service: RunningService) -> None:
    worst = worst_usd(service)
    key = Key(service, budget_usd=round(3.5 * worst, 6))
    held_up = key.submit([chat("[[status=429 ra=600]] later", max_tokens=BOUND)] * 20)
    service.until(held_up, lambda status: [wait["cause"] for wait in status["waiting"]] == ["rate_limit"])
    elsewhere = key.submit([chat("other", model="n", max_tokens=BOUND)])
    assert service.ended(elsewhere)["completed_count"] == 1
    assert key.call(model="n", max_tokens=BOUND).status_code == 200


def test_single_calls_draw_as_well(service: RunningService, vendor: ScriptedVendor) -> None:
    worst = worst_usd(service)
    key = Key(service, budget_usd=round(1.5 * worst, 6))
    vendor.set(hold=True)
    answers: list[httpx.Response] = []
    calling = threading.Thread(target=lambda: answers.append(key.call(max_tokens=BOUND)))
    calling.start()
    vendor.wait_for(lambda vendor: len(vendor.held) == 1)
    assert key.call(max_tokens=BOUND).status_code == 429
    vendor.set(hold=False)
    vendor.release()
    calling.join()
    assert answers[0].status_code == 200
    codes = [key.call(max_tokens=BOUND).status_code for _ in range(30)]
    spends = codes.count(200)
    assert codes == [200] * spends + [402] * (30 - spends), "what a call did not cost is there for the next"
    assert key.spent_usd <= 1.5 * worst
    assert 0 < spends < 30
    failed = key.client.post("/v1/chat/completions", json=chat("[[status=400]] no", max_tokens=BOUND))
    assert failed.status_code == 402


def test_a_call_that_fails_gives_back_what_it_drew(service: RunningService) -> None:
    worst = worst_usd(service)
    key = Key(service, budget_usd=round(1.5 * worst, 6))
    for _ in range(5):
        answer = key.client.post("/v1/chat/completions", json=chat("[[status=400]] no", max_tokens=BOUND))
        assert answer.status_code == 400, answer.text
    assert key.call(max_tokens=BOUND).status_code == 200
