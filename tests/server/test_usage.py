"""Usage: every list adds up to the total, and the total is what the rows' items say."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

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


def test_another_account_sees_nothing_of_it(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        service.ended(service.submit([chat("one")]))
        used = service.client(service.new_key("other")).get("/v1/account/usage").json()["data"]
        assert used["total"]["answers"] == 0
        assert used["by_key"] == []
