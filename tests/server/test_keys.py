"""Keys of the service: what each may do, how often, how long, and for how much money."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from batchwright.core.tenants import Scope
from support.patience import PATIENCE_S
from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat, chats, serving

KEYS = "/v1/account/keys"
PRICES = '[[price]]\npattern = "m"\ninput = "100"\noutput = "500"\n'
ANSWER_USD = 0.002
"""10 tokens in, 2 out."""


@pytest.fixture
def priced(tmp_path: Path, vendor: ScriptedVendor) -> Any:
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES)
    with serving(tmp_path, vendor, project=f"prices = '{prices}'\nconcurrency = 4\n") as service:
        yield service


def code_of(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    assert body["ok"] is False
    return answer.status_code, body["error"]["code"]


def asked_until(ask: Callable[[], httpx.Response], status: int) -> httpx.Response:
    until_s = time.monotonic() + PATIENCE_S
    while (answer := ask()).status_code != status:
        assert time.monotonic() < until_s, answer.text
    return answer


# ---------------------------------------------------------------------------------------------------------- budgets


def test_a_spent_key_is_refused_new_work_and_its_batches_pause(priced: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(latency_s=0.02)
    made = priced.post(f"{KEYS}/create", {"name": "small", "budget_usd": "0.01", "scopes": ["submit", "read"]}).json()
    key_id, client = made["data"]["key_id"], priced.client(made["data"]["key"])
    answer = client.post(f"{BATCH}/submit", json={"requests": chats(200), "idempotency_key": "once"})
    batch_id = answer.json()["data"]["batch_id"]
    status = priced.until(batch_id, lambda status: status["state"] == "paused")
    assert key_id in status["paused_reason"]
    assert f"batchwright keys budget {key_id} USD" in status["paused_reason"]
    assert 5 <= status["completed_count"] < 200

    refused = client.post(f"{BATCH}/submit", json={"requests": chats(1)})
    assert code_of(refused) == (402, "INSUFFICIENT_CREDIT")
    assert refused.json()["error"]["retryable"] is False
    again = client.post(f"{BATCH}/submit", json={"requests": chats(200), "idempotency_key": "once"})
    assert (again.status_code, again.json()["data"]["batch_id"]) == (200, batch_id), "the first answer is no new work"
    other = priced.submit(chats(3))
    assert priced.ended(other)["state"] == "completed", "another key of the account goes on"

    assert priced.post(f"{KEYS}/budget/{key_id}", {"budget_usd": None}).json()["data"]["budget_usd"] is None
    assert client.post(f"{BATCH}/submit", json={"requests": chats(1)}).status_code == 200


def test_what_a_key_has_spent_is_its_usage_to_the_last_digit(priced: RunningService) -> None:
    key = priced.post(f"{KEYS}/create", {"budget_usd": 1}).json()["data"]
    client = priced.client(key["key"])
    batches = [
        client.post(f"{BATCH}/submit", json={"requests": chats(count)}).json()["data"]["batch_id"] for count in (7, 11)
    ]
    costs = [priced.ended(batch_id)["cost_usd"] for batch_id in batches]
    listed = {item["key_id"]: item for item in priced.get(f"{KEYS}/list").json()["data"]["items"]}
    assert listed[key["key_id"]]["spent_usd"] == pytest.approx(18 * ANSWER_USD, abs=1e-12)
    assert sum(costs) == pytest.approx(listed[key["key_id"]]["spent_usd"], abs=1e-12)
    assert listed[key["key_id"]]["budget_usd"] == 1


def test_a_budget_of_nothing_allows_nothing(priced: RunningService, vendor: ScriptedVendor) -> None:
    client = priced.client(priced.new_key(budget_picousd=0))
    assert code_of(client.post(f"{BATCH}/submit", json={"requests": chats(1)})) == (402, "INSUFFICIENT_CREDIT")
    assert vendor.hits == []


# ------------------------------------------------------------------------------------------ pace, time, revocation


def test_a_key_is_asked_to_wait_when_it_asks_too_often(service: RunningService) -> None:
    client = service.client(service.new_key(rpm=1))
    answers = [client.get(f"{KEYS}/list") for _ in range(6)]
    limited = [answer for answer in answers if answer.status_code == 429]
    assert limited
    assert code_of(limited[-1]) == (429, "RATE_LIMITED")
    assert 1 <= int(limited[-1].headers["Retry-After"]) <= 61
    assert limited[-1].json()["error"]["retryable"] is True
    assert service.get(f"{KEYS}/list").status_code == 200, "another key has a pace of its own"


def test_a_fair_burst_goes_through(service: RunningService) -> None:
    client = service.client(service.new_key(rpm=600))
    assert [client.get(f"{KEYS}/list").status_code for _ in range(60)] == [200] * 60


def test_an_expired_key_is_refused(service: RunningService) -> None:
    client = service.client(service.new_key(expires_s=0.001))
    refused = asked_until(lambda: client.get(f"{KEYS}/list"), 401)
    assert "has expired" in refused.json()["error"]["message"]
    assert refused.headers["WWW-Authenticate"] == "Bearer"


def test_a_revoked_key_is_refused_whoever_revoked_it(service: RunningService) -> None:
    made = [service.post(f"{KEYS}/create", {}).json()["data"] for _ in range(2)]
    clients = [service.client(key["key"]) for key in made]
    for client in clients:
        assert client.get(f"{BATCH}/status/batch_{'0' * 24}").status_code == 404
    service.revoke(made[0]["key_id"])
    for _ in range(2):  # harmless when asked twice
        assert service.post(f"{KEYS}/revoke/{made[1]['key_id']}").json()["data"]["revoked"] is True
    for client in clients:
        refused = asked_until(lambda client=client: client.get(f"{BATCH}/status/batch_{'0' * 24}"), 401)  # type: ignore[misc]
        assert "was revoked" in refused.json()["error"]["message"]


def test_when_a_key_was_last_used_is_kept(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        first = service.key
        used, unused = (service.post(f"{KEYS}/create", {"name": name}).json()["data"] for name in ("used", "unused"))
        service.client(used["key"]).get(f"{BATCH}/status/batch_{'0' * 24}")
    with serving(tmp_path, key=first) as service:
        listed = {item["name"]: item for item in service.get(f"{KEYS}/list").json()["data"]["items"]}
        assert listed["used"]["last_used_at"] >= listed["used"]["created_at"]
        assert listed["unused"]["last_used_at"] is None
        assert unused["last_used_at"] is None


# ----------------------------------------------------------------------------------------------------------- routes


def test_a_key_is_shown_once(service: RunningService) -> None:
    asked = {"name": "a", "scopes": ["read"], "expires": "30d", "budget_usd": "2.5", "rpm": 60}
    made = service.post(f"{KEYS}/create", asked).json()["data"]
    assert made["key"].startswith(made["shown"])
    assert (made["scopes"], made["budget_usd"], made["rpm"], made["spent_usd"]) == (["read"], 2.5, 60, 0)
    assert made["expires_at"] > made["created_at"]
    listed = service.get(f"{KEYS}/list").text
    assert made["key_id"] in listed
    assert made["key"] not in listed


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"scopes": ["root"]}, "scopes"),
        ({"scopes": []}, "scopes"),
        ({"budget_usd": -1}, "budget_usd"),
        ({"budget_usd": "much"}, "budget_usd"),
        ({"expires": "soon"}, "expires"),
        ({"rpm": 0}, "rpm"),
        ({"name": 5}, "name"),
        ({"name": "n" * 1000}, "name"),
    ],
)
def test_a_key_that_cannot_be_made_is_refused_by_field(
    service: RunningService, body: dict[str, object], param: str
) -> None:
    before = service.get(f"{KEYS}/list").json()["data"]["items"]
    refused = service.post(f"{KEYS}/create", body)
    assert code_of(refused) == (400, "INVALID_REQUEST")
    assert refused.json()["error"]["param"] == param
    assert len(service.get(f"{KEYS}/list").json()["data"]["items"]) == len(before)


def test_keys_without_the_scope_are_told_which_one_is_needed(service: RunningService) -> None:
    reader = service.client(service.new_key(scopes=frozenset({Scope.READ})))
    refused = reader.post(f"{BATCH}/submit", json={"requests": [chat("a")]})
    assert code_of(refused) == (403, "FORBIDDEN")
    assert "the scope submit" in refused.json()["error"]["message"]
