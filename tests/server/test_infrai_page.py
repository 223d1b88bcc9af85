"""docs/protocols/infrai.md lists every field that an answer has and every route there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from batchwright.server.infrai.routes import CAPABILITIES
from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat

PAGE = (Path(__file__).parents[2] / "docs" / "protocols" / "infrai.md").read_text(encoding="utf-8")
LISTED = set(re.findall(r"`([^`\n]+)`", PAGE))
FREE = frozenset(
    {"metadata", "error_kinds", "flags", "response", "content", "billing", "params", "errors", "ceilings", "price"}
)
"""Fields whose own names are the caller's, the vendor's, a kind's, or told by discovery itself."""


def names(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name not in FREE:
                yield from names(inner)
    if isinstance(value, list):
        for inner in value:
            yield from names(inner)


def test_every_field_is_listed(scripted: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)
    rows = [chat("a"), chat("[[status=400 code=c param=p]] b", custom_id="x"), {"no": "row"}]
    submitted = scripted.post(f"{BATCH}/submit", {"requests": rows, "metadata": {"j": "k"}})
    batch_id = submitted.json()["data"]["batch_id"]
    answers = [submitted, scripted.get(f"{BATCH}/results/{batch_id}", include="pending,response")]
    answers.append(scripted.post(f"{BATCH}/pause/{batch_id}"))
    answers.append(scripted.post(f"{BATCH}/resume/{batch_id}"))
    vendor.set(hold=False)
    scripted.ended(batch_id)
    answers.append(scripted.get(f"{BATCH}/results/{batch_id}", include="response"))
    copied = scripted.post(f"{BATCH}/retry/{batch_id}", {"as": "new"})
    new_id = copied.json()["data"]["batch_id"]
    scripted.ended(new_id)
    answers += [copied, scripted.get(f"{BATCH}/results/{new_id}"), scripted.get(f"{BATCH}/list")]
    answers.append(scripted.post(f"{BATCH}/retry/{batch_id}"))
    scripted.ended(batch_id)
    answers += [scripted.post(f"{BATCH}/export/{batch_id}"), scripted.get("/v1/account/usage")]
    key = scripted.post("/v1/account/keys/create", {"name": "k", "scopes": ["read"]})
    key_id = key.json()["data"]["key_id"]
    answers += [key, scripted.get("/v1/account/keys/list")]
    answers.append(scripted.post(f"/v1/account/keys/budget/{key_id}", {"budget_usd": 1}))
    answers.append(scripted.post(f"/v1/account/keys/revoke/{key_id}"))
    answers += [scripted.get("/v1/discovery"), scripted.get("/v1/discovery/ai.batch.submit")]
    answers += [scripted.post(f"{BATCH}/delete/{batch_id}"), scripted.get(f"{BATCH}/status/{batch_id}")]
    answers.append(scripted.get(f"{BATCH}/list", nonsense="1"))
    found = {name for answer in answers for name in names(answer.json())}
    assert {"source_index", "cause", "region", "retried_count", "param", "state"} <= found
    assert found - LISTED == set()


def test_every_route_is_listed() -> None:
    served = {f"{one.method} {one.path}" for one in CAPABILITIES}
    assert served - LISTED == set()
