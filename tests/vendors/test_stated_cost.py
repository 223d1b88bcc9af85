"""Which stored answers may have stated their own cost."""

from __future__ import annotations

import pytest

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.vendors.profiles import entries
from batchwright.vendors.stated_cost import may_state_cost

COST = b'{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "cost": 0.5}}'
NONE = b'{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}'
CHARGE = b'{"choices": [], "infrai": {"cost_usd": "0.5"}}'


def at(profile: str = "", protocol: VendorProtocol = VendorProtocol.OPENAI) -> Destination:
    return Destination(vendor="v", base_url="https://llm.example.com/v1", profile=profile, protocol=protocol)


def profile_with(name: str) -> str:
    return next(entry.name for entry in entries().values() if getattr(entry, name))


@pytest.mark.parametrize("endpoint", ["/chat/completions", "/responses", "/embeddings"])
def test_what_the_body_says(endpoint: str) -> None:
    in_usage = at(profile_with("usage_cost_is_usd"))
    assert may_state_cost(in_usage, endpoint, COST)
    assert not may_state_cost(in_usage, endpoint, NONE)
    assert not may_state_cost(at(), endpoint, COST), "elsewhere the field means something of its own"
    assert may_state_cost(at(), endpoint, CHARGE)


def test_a_head_is_not_kept_and_a_simulator_always_states_one() -> None:
    assert may_state_cost(at(profile_with("states_cost_in_head")), "/chat/completions", NONE)
    assert may_state_cost(at(protocol=VendorProtocol.SIMULATED), "/chat/completions", NONE)


def test_what_is_no_json_states_none() -> None:
    assert not may_state_cost(at(), "/chat/completions", b"<html>")
