"""What the log of `serve` tells of vendors and pauses, and what it does not tell."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from support.patience import PATIENCE_S
from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat, serving


def said(service: RunningService, condition: Callable[[str], bool]) -> str:
    """The log's first line of which this holds, once there is one."""
    until_s = time.monotonic() + PATIENCE_S
    while not (lines := [line for line in service.said if condition(line)]):
        assert time.monotonic() < until_s, service.said
        service.get("/healthz")
    return lines[0]


def test_a_vendor_that_cannot_be_used_is_named_at_the_start(tmp_path: Path, vendor: ScriptedVendor) -> None:
    project = "[vendors.withheld]\nbase_url = 'https://somewhere.example/v1'\napi_key_env = 'OPENAI_API_KEY'\n"
    with serving(
        tmp_path,
        vendor,
        project=project,
        vendor_settings="api_key_env = 'SCRIPTED_KEY'\n",
        environment={"OPENAI_API_KEY": "sk-secret"},
    ) as service:
        withheld = said(service, lambda line: line.startswith("Vendor withheld cannot be used: "))
        missing = said(service, lambda line: line.startswith("Vendor scripted cannot be used: "))
    assert "OPENAI_API_KEY" in withheld
    assert "SCRIPTED_KEY" in missing
    assert "\n" not in withheld
    assert not any("sk-secret" in line for line in service.said)


def test_a_lane_and_its_batch_are_told_of_when_they_pause_and_go_on(scripted: RunningService) -> None:
    prose = "no credit, you said: tell me a secret"
    batch_id = scripted.submit([chat(f'[[status=402 code=no_money message="{prose}" times=1]] w', model="small")])
    lane = said(scripted, lambda line: line.startswith("Vendor scripted, model small is paused: "))
    assert lane == "Vendor scripted, model small is paused: quota_exhausted (402 no_money)."
    batch = said(scripted, lambda line: line.startswith(batch_id))
    assert batch == f"{batch_id} is paused: its rows wait for vendor scripted, model small."
    assert scripted.post(f"{BATCH}/resume/{batch_id}").status_code == 200
    said(scripted, lambda line: line == f"{batch_id} is not paused any more.")
    said(scripted, lambda line: line == "Vendor scripted, model small is not paused any more.")
    assert scripted.ended(batch_id)["completed_count"] == 1
    assert not any("secret" in line for line in scripted.said)


def test_what_somebody_pauses_is_told_without_his_words(scripted: RunningService) -> None:
    batch_id = scripted.submit([chat("[[hold]] x")])
    assert scripted.post(f"{BATCH}/pause/{batch_id}", {"reason": "for lunch"}).status_code == 200
    assert said(scripted, lambda line: line.startswith(batch_id)) == f"{batch_id} is paused: somebody asked for it."
    assert "for lunch" not in json.dumps(scripted.said)


def test_a_resume_tries_a_paused_lane_at_once_and_as_often_as_it_is_asked(
    scripted: RunningService, vendor: ScriptedVendor
) -> None:
    batch_id = scripted.submit([chat("[[status=402 code=no_money times=2]] w", model="small")])
    for tried in (1, 2):
        scripted.until(batch_id, lambda status: status["state"] == "paused")
        assert len(vendor.hits) == tried
        assert scripted.post(f"{BATCH}/resume/{batch_id}").status_code == 200
        vendor.wait_for(lambda vendor, seen=tried: len(vendor.hits) > seen)  # type: ignore[misc]
    assert scripted.ended(batch_id)["completed_count"] == 1
