"""A cancel or a pause reaches the worker at once, whoever asks: it does not wait for a row to end.

Every answer is held, so that no checkpoint brings the news, and the worker's own look once a second is put off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchwright.assemble.batches import open_batches
from batchwright.assemble.home import store_place
from batchwright.core.row_map import RESERVED
from batchwright.engine import worker
from batchwright.store.open import open_store
from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chats, serving

OUT = 4
ROWS = 60
NEVER_S = 1e9


@pytest.fixture
def service(tmp_path: Path, vendor: ScriptedVendor, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningService]:
    monkeypatch.setattr(worker, "LOOK_EVERY_S", NEVER_S)
    vendor.set(hold=True)
    with serving(tmp_path, vendor, vendor_settings=f"concurrency = {OUT}\n", project="gate = false\n") as service:
        yield service


def begin(service: RunningService, vendor: ScriptedVendor) -> str:
    batch_id = service.submit(chats(ROWS))
    vendor.wait_for(lambda vendor: len(vendor.held) == OUT)
    assert reserved(service, batch_id) > OUT, "rows stand ready behind those that are out"
    return batch_id


def reserved(service: RunningService, batch_id: str) -> int:
    """Rows that may be at a vendor, as the store has it: a worker that stops gives back those that are not."""
    store = open_store(store_place(service.settings))
    try:
        return sum(segment.reserved.count(RESERVED) for segment in store.read_segments(batch_id))
    finally:
        store.close()


def until_given_back(service: RunningService, batch_id: str) -> None:
    for _ in range(2_000):
        if reserved(service, batch_id) == OUT:
            return
    raise AssertionError("the worker never heard of it")


def let_go(vendor: ScriptedVendor) -> None:
    vendor.set(hold=False)
    vendor.release()


def test_a_cancel_by_another_process(service: RunningService, vendor: ScriptedVendor) -> None:
    batch_id = begin(service, vendor)

    async def cancel() -> None:
        async with open_batches(service.settings) as batches:
            await batches.cancel(batch_id)

    asyncio.run(cancel())
    until_given_back(service, batch_id)
    let_go(vendor)
    status = service.ended(batch_id)
    assert (status["completed_count"], status["cancelled_count"]) == (OUT, ROWS - OUT)
    assert len(vendor.hits) == OUT


def test_a_cancel_through_the_workers_own_process(service: RunningService, vendor: ScriptedVendor) -> None:
    batch_id = begin(service, vendor)
    service.post(f"{BATCH}/cancel/{batch_id}")
    until_given_back(service, batch_id)
    let_go(vendor)
    assert service.ended(batch_id)["completed_count"] == OUT == len(vendor.hits)


def test_a_pause_and_then_it_goes_on(service: RunningService, vendor: ScriptedVendor) -> None:
    batch_id = begin(service, vendor)
    service.post(f"{BATCH}/pause/{batch_id}")
    until_given_back(service, batch_id)
    let_go(vendor)
    service.until(batch_id, lambda status: status["completed_count"] == OUT)
    assert len(vendor.hits) == OUT
    service.post(f"{BATCH}/resume/{batch_id}")
    assert service.ended(batch_id)["completed_count"] == ROWS
