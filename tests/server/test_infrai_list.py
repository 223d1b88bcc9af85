"""The account's batches: newest first, at once, page by page, filtered."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat, chats


def listed(service: RunningService, **parameters: Any) -> list[str]:
    """Ids, over all pages."""
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = service.get(f"{BATCH}/list", **parameters, **({"cursor": cursor} if cursor else {}))
        assert answer.status_code == 200, answer.text
        found += [item["batch_id"] for item in answer.json()["data"]["items"]]
        cursor = answer.json()["data"]["next_cursor"]
    return found


def test_a_batch_is_listed_as_soon_as_it_is_submitted(scripted: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)
    ids: list[str] = []
    for _ in range(3):
        ids.insert(0, scripted.submit(chats(1)))
        assert listed(scripted) == ids
    item = scripted.get(f"{BATCH}/list").json()["data"]["items"][0]
    assert item.keys() == scripted.status(ids[0]).keys()
    vendor.set(hold=False)


def test_pages_hold_each_batch_once(scripted: RunningService) -> None:
    ids = [scripted.submit(chats(1)) for _ in range(5)][::-1]
    assert listed(scripted, limit=2) == ids
    first = scripted.get(f"{BATCH}/list", limit=2).json()["data"]
    assert first["next_cursor"] == first["items"][-1]["batch_id"] == ids[1]
    assert scripted.get(f"{BATCH}/list", limit=5).json()["data"]["next_cursor"] is None


def test_filters_by_state_and_metadata(scripted: RunningService) -> None:
    good = scripted.submit(chats(1), metadata={"job": "a", "n": 1})
    bad = scripted.submit([chat("[[status=400]] x")], metadata={"job": "a"})
    mixed = scripted.submit([chat("[[status=400]] x"), chat("y")], metadata={"job": "b"})
    for batch_id in (good, bad, mixed):
        scripted.ended(batch_id)
    for limit in (1, 50):
        assert listed(scripted, state="completed", limit=limit) == [good]
        assert listed(scripted, state="failed,partial", limit=limit) == [mixed, bad]
        assert listed(scripted, **{"metadata.job": "a"}, limit=limit) == [bad, good]
        assert listed(scripted, **{"metadata.job": "a", "metadata.n": "1"}, limit=limit) == [good]
        assert listed(scripted, **{"metadata.job": "a"}, state="partial", limit=limit) == []


def test_filters_by_time(scripted: RunningService) -> None:
    ids = [scripted.submit(chats(1)) for _ in range(3)][::-1]
    moments = [datetime.fromisoformat(scripted.status(batch_id)["created_at"]) for batch_id in ids]
    a_second = timedelta(seconds=1)
    assert listed(scripted, created_after=(moments[0] + a_second).isoformat()) == []
    assert listed(scripted, created_after=(moments[-1] - a_second).isoformat()) == ids
    assert listed(scripted, created_before=str(moments[-1].timestamp())) == []
    expected = [batch_id for batch_id, moment in zip(ids, moments, strict=True) if moment >= moments[1]]
    assert listed(scripted, created_after=moments[1].strftime("%Y-%m-%dT%H:%M:%S.%fZ")) == expected


def test_each_account_sees_its_own(scripted: RunningService) -> None:
    other = scripted.client(scripted.new_key("other"))
    mine = scripted.submit(chats(1))
    theirs = other.post(f"{BATCH}/submit", json={"requests": chats(1)}).json()["data"]["batch_id"]
    assert listed(scripted) == [mine]
    assert [item["batch_id"] for item in other.get(f"{BATCH}/list").json()["data"]["items"]] == [theirs]
    foreign, nowhere = (other.get(f"{BATCH}/list", params={"cursor": cursor}) for cursor in (mine, f"batch_{'0' * 24}"))
    assert foreign.status_code == nowhere.status_code == 400
    assert foreign.json()["error"] == nowhere.json()["error"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", "1001"),
        ("limit", "ten"),
        ("cursor", "nonsense"),
        ("state", "complete"),
        ("created_after", "yesterday"),
        ("created_before", "9" * 30),
        ("created_before", "2026-13-01"),
        ("states", "completed"),
        ("metadata.", "x"),
    ],
)
def test_what_no_filter_is_refused(scripted: RunningService, name: str, value: str) -> None:
    answer = scripted.get(f"{BATCH}/list", **{name: value})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "INVALID_REQUEST", name)
