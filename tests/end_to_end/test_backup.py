"""`batchwright backup` beside a service that works: a copy of one moment, whole, that another folder goes on from."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

from batchwright.store.open import open_store
from support.command_line import CommandLine
from support.scripted_vendor import ScriptedVendor
from support.service import chats
from support.service_process import ServiceProcess

ROWS = 400


def test_a_copy_taken_while_rows_are_sent_is_one_moments(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "here")
    with ScriptedVendor() as vendor:
        vendor.set(latency_s=0.01)
        with ServiceProcess(command, vendor, concurrency=8) as service:
            batch_id = service.submit(chats(ROWS))
            vendor.wait_for(lambda vendor: len(vendor.hits) >= 50)
            vendor.set(hold=True)  # rows are out, and stay out, while the copy is taken
            made = command("backup", "copy.sqlite")
            assert made.code == 0, made.err
            vendor.set(hold=False)
            assert service.ended(batch_id)["completed_count"] == ROWS
        copy = command.folder / "copy.sqlite"
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert [path.name for path in command.folder.glob(".copy*")] == []

        refused = command("backup", "copy.sqlite")
        assert refused.code == 2
        assert "exists already" in refused.err

        there = CommandLine(tmp_path / "there")
        there.state.mkdir()
        shutil.copy(copy, there.state / "batchwright.sqlite")
        store = open_store(there.state / "batchwright.sqlite")
        assert store.check(batch_id) == []
        ended = store.get_batch(batch_id).tally.counts
        assert 0 < sum(ended.values()) < ROWS
        store.close()
        other = ServiceProcess(there, vendor, concurrency=8)
        other.key = service.key
        with other:
            assert other.ended(batch_id)["completed_count"] == ROWS
            assert [item["result"]["content"] for item in other.results(batch_id)] == [f"w{row}" for row in range(ROWS)]


def test_there_has_to_be_something_to_copy(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    refused = command("backup", "copy.sqlite")
    assert refused.code == 2
    assert "no state to back up" in refused.err
    assert not (tmp_path / "copy.sqlite").exists()
