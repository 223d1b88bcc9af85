"""Usage: every list adds up to the total, and the total is what the rows' items say."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat, serving


def exact(service: RunningService, path: str, **parameters: Any) -> dict[str, Any]:
    """`data`, with its numbers as they stand."""
    data: dict[str, Any] = json.loads(service.get(path, **parameters).text, parse_float=Decimal)["data"]
    return data


def test_usage_is_the_sum_of_the_items(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        assert exact(service, "/v1/account/usage")["total"]["answers"] == 0
        cost, tokens = Decimal(0), 0
        for batch in range(2):
            batch_id = service.submit([chat(f"{batch} {row}", model=f"m-{row % 3}") for row in range(20)])
            service.ended(batch_id)
            for item in exact(service, f"{BATCH}/results/{batch_id}")["items"]:
                cost += Decimal(item["cost_usd"])
                tokens += item["result"]["usage"]["total_tokens"]
        used = exact(service, "/v1/account/usage", days=1)
        assert used["total"]["cost_usd"] == cost > 0
        assert used["total"]["total_tokens"] == tokens
        assert used["total"]["answers"] == 40
        for group in ("by_capability", "by_model", "by_vendor", "by_key", "by_day"):
            assert sum(line["cost_usd"] for line in used[group]) == cost, group
            assert sum(line["answers"] for line in used[group]) == 40, group
        assert [line["model"] for line in used["by_model"]] == ["m-0", "m-1", "m-2"]
        assert [line["name"] for line in used["by_key"]] == ["first"]


def test_usage_of_mixed_batches_and_single_calls_is_their_sum(tmp_path: Path, vendor: ScriptedVendor) -> None:
    """Rows of a batch came by the batch, whatever each asked for; a call by its own route."""
    prices = tmp_path / "prices.toml"
    prices.write_text('[[price]]\npattern = "*"\nvendor = "scripted"\ninput = "1.1"\noutput = "2.3"\n')
    rows = [
        chat("a"),
        chat("[[status=500 times=1]] b", model="n"),
        chat("[[status=400]] never paid for"),
        {"capability": "embeddings", "body": {"model": "e", "input": "a text"}},
        {"capability": "responses", "body": {"model": "r", "input": "a text"}},
    ]
    calls = {
        "chat.completions": [("/v1/chat/completions", chat("c", model=model)) for model in ("m", "n", "m")],
        "embeddings": [("/v1/embeddings", {"model": "e", "input": "a text"})],
        "responses": [("/v1/responses", {"model": "r", "input": "a text"})],
    }
    with serving(tmp_path / "service", vendor, project=f'prices = "{prices}"\n') as service:
        spent: dict[str, list[tuple[Decimal, int]]] = {}
        batches = [service.submit(rows), service.submit(rows[:2])]
        for batch_id in batches:
            service.ended(batch_id)
        retried = service.post(f"{BATCH}/retry/{batches[0]}", {})
        assert retried.status_code == 200, retried.text
        service.ended(batches[0])
        for batch_id in batches:
            for item in exact(service, f"{BATCH}/results/{batch_id}")["items"]:
                tokens = item["result"]["usage"]["total_tokens"] if item["ok"] else 0
                spent.setdefault("ai.batch.submit", []).append((Decimal(item["cost_usd"]), tokens))
        for capability, asked in calls.items():
            for path, body in asked:
                answer = service.post(path, body)
                usage = answer.json()["usage"]
                cost = Decimal(answer.headers["x-infrai-cost-usd"])
                spent.setdefault(capability, []).append((cost, usage["total_tokens"]))
        used = exact(service, "/v1/account/usage", days=2)
    found = {line["capability"]: (line["cost_usd"], line["total_tokens"]) for line in used["by_capability"]}
    assert found == {
        capability: (sum(cost for cost, _ in each), sum(tokens for _, tokens in each))
        for capability, each in spent.items()
    }
    assert all(cost > 0 for cost, _ in found.values())
    for group in ("by_capability", "by_model", "by_vendor", "by_key", "by_day", "lines"):
        for name in ("cost_usd", "answers", "total_tokens", "unpriced_count"):
            assert sum(line[name] for line in used[group]) == used["total"][name], (group, name)
    assert used["total"]["unpriced_count"] == 0
    assert [line["model"] for line in used["by_model"]] == ["e", "m", "n", "r"]


def test_another_account_sees_nothing_of_it(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        service.ended(service.submit([chat("one")]))
        used = service.client(service.new_key("other")).get("/v1/account/usage").json()["data"]
        assert used["total"]["answers"] == 0
        assert used["by_key"] == []
