"""A service as a process: what SIGTERM ends in order, and what a second one cuts short."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.command_line import CommandLine
from support.patience import PATIENCE_S
from support.scripted_vendor import ScriptedVendor
from support.service import chats
from support.service_process import BATCH, ServiceProcess

ROWS = 40
OUT = 8


@pytest.fixture
def vendor() -> Any:
    with ScriptedVendor() as vendor:
        yield vendor


def service_of(folder: Path, vendor: ScriptedVendor) -> ServiceProcess:
    return ServiceProcess(CommandLine(folder), vendor, concurrency=OUT)


def test_sigterm_lets_requests_and_rows_finish(tmp_path: Path, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)
    with service_of(tmp_path, vendor) as service:
        batch_id = service.submit(chats(ROWS))
        vendor.wait_for(lambda vendor: vendor.in_flight == OUT)
        before = service.status(batch_id)
        answers: list[httpx.Response] = []
        waiting = threading.Thread(
            target=lambda: answers.append(service.client.get(f"{BATCH}/status/{batch_id}", params={"wait": 25}))
        )
        waiting.start()
        until_s = time.monotonic() + PATIENCE_S
        while "batchwright_http_in_flight 2\n" not in service.client.get("/metrics").text:
            assert time.monotonic() < until_s, "the long poll never arrived"
        service.signal(signal.SIGTERM)
        service.running.wait_for("rows in flight may finish")
        vendor.set(hold=False)
        ended = service.end()
        waiting.join(PATIENCE_S)
        assert ended.code == 0, ended.err
        assert "Traceback" not in ended.err
        assert before["completed_count"] == 0
        assert [answer.status_code for answer in answers] == [200]
        assert len(vendor.hits) == OUT, "nothing was sent after the signal"

        service.start()
        assert service.ended(batch_id)["completed_count"] == ROWS
        assert service.status(batch_id)["possible_double_payments"] == 0
        assert len(vendor.hits) == ROWS, "what was out was answered, and is not sent again"
        service.signal(signal.SIGTERM)
        assert service.end().code == 0


def test_a_second_signal_does_not_wait(tmp_path: Path, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)
    with service_of(tmp_path, vendor) as service:
        batch_id = service.submit(chats(ROWS))
        vendor.wait_for(lambda vendor: vendor.in_flight == OUT)
        service.signal(signal.SIGTERM)
        service.running.wait_for("rows in flight may finish")
        service.signal(signal.SIGTERM)
        ended = service.end()
        assert ended.code == 130, ended.err
        vendor.set(hold=False)
        service.start()
        assert service.ended(batch_id)["completed_count"] == ROWS
        assert service.status(batch_id)["possible_double_payments"] >= OUT
