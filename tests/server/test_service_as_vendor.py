"""A service of this project as the vendor of another: what it states of costs counts as the vendor's own figure."""

from __future__ import annotations

from pathlib import Path

from support.service import chats, serving


def test_costs_that_a_service_states_are_used(tmp_path: Path) -> None:
    with serving(tmp_path / "upstream") as upstream:
        user = f"[vendors.upstream]\nbase_url = '{upstream.base_url}/v1'\napi_key_env = 'UPSTREAM_KEY'\n"
        with serving(
            tmp_path / "here", user=user, simulate=False, environment={"UPSTREAM_KEY": upstream.key}
        ) as service:
            status = service.ended(service.submit(chats(3, model="upstream/m")))
        there = upstream.get("/v1/account/usage").json()["data"]["total"]["cost_usd"]
    assert (status["completed_count"], status["unpriced_count"]) == (3, 0)
    assert status["cost_usd"] == there > 0
