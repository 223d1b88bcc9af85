"""A lane that a worker has paused for good, since its key was refused, is tried again as soon as somebody resumes a
batch of it, whoever asks and wherever the worker runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from batchwright.cli.running import with_batches
from batchwright.ports.batches import Batches
from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat, chats, serving


def paused(service: RunningService, vendor: ScriptedVendor) -> str:
    """A batch of two lanes, both of which stand still; the key is good again."""
    vendor.set(key_refused=True)
    batch_id = service.submit([*chats(4, model="scripted/a"), *chats(4, model="scripted/b")])
    status = service.until(batch_id, lambda status: status["state"] == "paused")
    assert "invalid_api_key" in status["paused_reason"] or "401" in status["paused_reason"]
    vendor.set(key_refused=False)
    return batch_id


def ask_here(service: RunningService, batch_id: str) -> None:
    assert service.post(f"{BATCH}/resume/{batch_id}").status_code == 200


def ask_elsewhere(service: RunningService, batch_id: str) -> None:
    """As a command beside the service does it: over a store of its own."""

    async def resume(batches: Batches) -> None:
        await batches.resume(batch_id)

    with_batches(service.settings, resume)


@pytest.mark.parametrize("ask", [ask_here, ask_elsewhere])
def test_a_resume_lets_paused_lanes_try_again(
    tmp_path: Path, vendor: ScriptedVendor, ask: Callable[[RunningService, str], None]
) -> None:
    with serving(tmp_path, vendor) as service:
        batch_id = paused(service, vendor)
        ask(service, batch_id)
        assert service.ended(batch_id)["completed_count"] == 8


def test_single_calls_go_again_too(tmp_path: Path, vendor: ScriptedVendor) -> None:
    with serving(tmp_path, vendor) as service:
        batch_id = paused(service, vendor)
        call = chat("a call", model="scripted/a")
        refused = service.post("/v1/chat/completions", call)
        assert refused.status_code == 503, refused.text
        ask_here(service, batch_id)
        service.ended(batch_id)
        assert service.post("/v1/chat/completions", call).status_code == 200


def test_a_resume_in_vain_sends_one_row_of_a_lane_and_pauses_again(tmp_path: Path, vendor: ScriptedVendor) -> None:
    with serving(tmp_path, vendor) as service:
        batch_id = paused(service, vendor)
        vendor.set(key_refused=True)
        sent, tried = len(vendor.hits), service.status(batch_id)["attempts"]
        ask_here(service, batch_id)
        vendor.wait_for(lambda vendor: len(vendor.hits) > sent)
        status = service.until(batch_id, lambda status: status["state"] == "paused" and status["attempts"] > tried)
        assert status["completed_count"] == 0
        assert 1 <= len(vendor.hits) - sent <= 2
