"""Whoever comes with a few rows to a lane on which others have many is served beside them, not after them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat, chats, serving

SLOW = "[[sleep=0.1]] w"
MANY = 400
"""Two at once: they take twenty times as long as it is between two looks for newcomers."""


@pytest.fixture
def slow(tmp_path: Path, vendor: ScriptedVendor) -> Iterator[RunningService]:
    with serving(tmp_path, vendor, vendor_settings="concurrency = 2") as service:
        yield service


def few_are_done(service: RunningService, key: str) -> dict[str, Any]:
    """Submits a few rows and waits until they are done."""
    client = service.client(key)
    batch_id = client.post(f"{BATCH}/submit", json={"requests": chats(3)}).json()["data"]["batch_id"]
    status: dict[str, Any] = {"terminal": False}
    while not status["terminal"]:
        status = client.get(f"{BATCH}/status/{batch_id}", params={"wait": 20}).json()["data"]
    return status


@pytest.mark.parametrize("whose", ["another account's", "the same account's"])
def test_a_few_rows_do_not_wait_for_many(slow: RunningService, whose: str) -> None:
    many_id = slow.submit([chat(f"{SLOW}{number}") for number in range(MANY)])
    slow.until(many_id, lambda status: status["completed_count"] > 0)
    few = few_are_done(slow, slow.new_key("beside") if whose.startswith("another") else slow.key)
    assert few["completed_count"] == 3
    assert slow.status(many_id)["pending_count"] > MANY // 4


def test_many_batches_of_one_account_leave_room_for_another(slow: RunningService) -> None:
    many_ids = [slow.submit([chat(f"{SLOW}{n}.{number}") for number in range(MANY // 8)]) for n in range(8)]
    slow.until(many_ids[0], lambda status: status["completed_count"] > 0)
    few = few_are_done(slow, slow.new_key("beside"))
    assert few["completed_count"] == 3
    assert sum(slow.status(many_id)["pending_count"] for many_id in many_ids) > MANY // 4
