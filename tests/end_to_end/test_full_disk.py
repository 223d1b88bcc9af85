"""A disk that is full while rows are at a vendor: a `run` waits for room with the answers it holds, and goes on."""

from __future__ import annotations

from pathlib import Path

from support.command_line import CommandLine
from support.scripted_vendor import ScriptedVendor

ROWS = 200
IN_FLIGHT = 16


def test_a_run_waits_for_room_and_pays_for_no_answer_again(tmp_path: Path) -> None:
    with ScriptedVendor() as vendor:
        vendor.set(latency_s=0.02)
        command = CommandLine(tmp_path)
        command.write("rows.jsonl", [{"prompt": f"Say word{row}"} for row in range(ROWS)])
        full = tmp_path / "full"
        endpoint = ("--base-url", vendor.base_url, "--api-key-env", "", "-m", "m", "-c", str(IN_FLIGHT))
        line = ("run", "rows.jsonl", "-o", "out.jsonl", *endpoint, "--json", "--progress", "none")
        run = command.start(*line, program=("-m", "support.small_disk", str(full)))
        try:
            run.until(vendor, lambda vendor: len(vendor.hits) > ROWS // 4)
            full.touch()
            run.wait_for("waits for room on the disk")
            full.unlink()
            ended = run.end()
        finally:
            run.kill()
        assert ended.code == 0, ended.err
        assert "room on the disk is there again" in ended.err
        assert ended.report["ok"] == ROWS
        assert len(vendor.hits) == ROWS
