"""A lane in trouble is seen from everywhere: in the status over HTTP, by another process, in the figures. And no longer
than it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from batchwright.assemble.batches import open_batches
from batchwright.ports.batches import BatchStatus
from support.command_line import CommandLine
from support.scripted_vendor import ScriptedVendor
from support.service import RunningService, chat, chats
from support.service_process import ServiceProcess


def waits(status: dict[str, Any]) -> bool:
    return bool(status["waiting"])


def waits_no_more(status: dict[str, Any]) -> bool:
    return not status["waiting"]


def asked_beside(service: RunningService, batch_id: str) -> BatchStatus:
    """As another process reads it, from the store alone."""

    async def ask() -> BatchStatus:
        async with open_batches(service.settings) as batches:
            return await batches.status(batch_id)

    return asyncio.run(ask())


def test_an_outage_is_told_while_it_lasts_and_no_longer(scripted: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(refuse=True)
    batch_id = scripted.submit([*chats(3, model="small"), chat("[[hold]] w", model="small")])
    status = scripted.until(batch_id, waits)
    (waiting,) = status["waiting"]
    assert (waiting["vendor"], waiting["model"], waiting["cause"]) == ("scripted", "small", "unreached")
    assert waiting["reason"].endswith("tried for 2 min at most: is the address right?")
    assert waiting["since"] < waiting["until"]
    assert status["state"] in ("queued", "running")
    assert status["version"].endswith(".unreached")
    (beside,) = asked_beside(scripted, batch_id).waiting
    assert (beside.vendor, beside.model, beside.cause) == ("scripted", "small", "unreached")
    figures = scripted.get("/metrics").text
    assert 'batchwright_lanes_waiting{vendor="scripted",cause="unreached"} 1\n' in figures

    vendor.set(refuse=False)
    status = scripted.until(batch_id, waits_no_more)
    assert not status["terminal"], "it is over although a row is still out"
    assert "batchwright_lanes_waiting{" not in scripted.get("/metrics").text
    vendor.wait_for(lambda vendor: len(vendor.held) == 1)
    vendor.release()
    scripted.ended(batch_id)


def test_a_vendors_wait_names_its_end(scripted: RunningService) -> None:
    batch_id = scripted.submit([chat("[[status=429 ra=30]] a", model="m"), chat("[[status=429 ra=30]] b", model="m")])
    (waiting,) = scripted.until(batch_id, waits)["waiting"]
    assert waiting["cause"] == "rate_limit"
    assert waiting["reason"].startswith("rate limit: the vendor takes no more for now, next row in ")
    assert waiting["until"] > waiting["since"]


def test_another_batch_is_told_of_its_own_lanes_alone(scripted: RunningService, vendor: ScriptedVendor) -> None:
    waiting_id = scripted.submit([chat("[[status=429 ra=30]] a", model="busy")])
    free_id = scripted.submit([chat("[[hold]] w", model="free")])
    (waiting,) = scripted.until(waiting_id, waits)["waiting"]
    assert waiting["model"] == "busy"
    assert scripted.status(free_id)["waiting"] == []
    vendor.wait_for(lambda vendor: len(vendor.held) == 1)
    vendor.release()
    assert scripted.ended(free_id)["waiting"] == []


def test_who_goes_elsewhere_does_not_wait_for_a_lane_that_has_rows_enough(
    scripted: RunningService, vendor: ScriptedVendor
) -> None:
    many = scripted.submit([chat(f"[[hold]] w{number}", model="slow") for number in range(1_000)])
    vendor.wait_for(lambda vendor: len(vendor.held) >= 1)
    other = scripted.submit([chat("w", model="free")])
    assert scripted.ended(other)["completed_count"] == 1
    assert scripted.status(many)["completed_count"] == 0
    scripted.post(f"/v1/ai/batch/cancel/{many}")
    vendor.release()


def test_a_watcher_is_told_when_it_begins(scripted: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(refuse=True)
    batch_id = scripted.submit(chats(2))
    with scripted.clients[0].stream("GET", f"/v1/ai/batch/events/{batch_id}") as answer:
        for line in answer.iter_lines():
            if line.startswith("data: ") and '"cause":"unreached"' in line:
                break
        else:
            raise AssertionError("the events ended without a word of it")


def test_the_terminal_of_another_process_has_the_words(scripted: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(refuse=True)
    batch_id = scripted.submit(chats(2, model="small"))
    scripted.until(batch_id, waits)
    folder = scripted.settings.state_dir.parent
    command = CommandLine(folder, BATCHWRIGHT_HOME=str(scripted.settings.state_dir))
    said = command("status", batch_id).out
    assert "waiting\tscripted small: " in said
    # After twenty refusals, which a slow machine may have had by now, the same is an outage.
    assert "is the address right?" in said or "small: outage: connection refused" in said
    (waiting,) = command("status", batch_id, "--json").report["waiting"]
    assert (waiting["vendor"], waiting["cause"]) in (("scripted", "unreached"), ("scripted", "outage"))
    watching = command.start("watch", batch_id, "--progress", "plain")
    try:
        watching.wait_for("scripted small: ")
    finally:
        watching.interrupt()
        watching.end()


def test_a_dead_workers_words_do_not_stand(tmp_path: Path, vendor: ScriptedVendor) -> None:
    vendor.set(refuse=True)
    command = CommandLine(tmp_path)
    with ServiceProcess(command, vendor) as service:
        batch_id = service.client.post("/v1/ai/batch/submit", json={"requests": chats(2)}).json()["data"]["batch_id"]
        until(lambda: status_of(service, batch_id)["waiting"])
        service.kill()
    report = command("status", batch_id, "--json").report
    assert report["waiting"] == []
    assert not report["terminal"]


def status_of(service: ServiceProcess, batch_id: str) -> dict[str, Any]:
    answer = service.client.get(f"/v1/ai/batch/status/{batch_id}", params={"wait": 1})
    data: dict[str, Any] = answer.json()["data"]
    return data


def until(condition: Callable[[], object]) -> None:
    for _ in range(30):
        if condition():
            return
    raise AssertionError("it never came true")


def test_a_paused_lane_is_named_with_its_batch(scripted: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(key_refused=True)
    batch_id = scripted.submit(chats(1))
    status = scripted.until(batch_id, lambda status: status["state"] == "paused" and waits(status))
    assert [waiting["cause"] for waiting in status["waiting"]] == ["paused"]
    assert status["waiting"][0]["reason"].startswith("paused: auth (401")
    vendor.set(key_refused=False)
    scripted.post(f"/v1/ai/batch/resume/{batch_id}")
