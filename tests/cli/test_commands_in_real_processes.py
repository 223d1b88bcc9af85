"""The commands as people run them: processes of their own, the real store, the simulated vendor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]
ROWS = 40


@pytest.fixture
def command(tmp_path: Path) -> Command:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("BATCHWRIGHT_", "OPENAI_"))}
    environment = {**kept, "HOME": str(tmp_path), "BATCHWRIGHT_HOME": str(tmp_path / "state"), "NO_COLOR": "1"}

    def run(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "batchwright", *arguments],
            cwd=tmp_path,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def rows_text() -> str:
    return "".join(json.dumps({"custom_id": f"c{row}", "prompt": f"word{row}"}) + "\n" for row in range(ROWS))


def test_a_batch_through_every_verb(command: Command, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(rows_text())
    run = ["run", "rows.jsonl", "-o", "out.jsonl", "-m", "some", "--simulate", "--progress", "plain"]
    first = command(*run)
    assert (first.returncode, first.stdout) == (0, ""), first.stderr
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["custom_id"] for line in lines] == [f"c{row}" for row in range(ROWS)]
    assert "\x1b" not in first.stderr

    (listed,) = [line.split("\t") for line in command("list").stdout.splitlines()]
    assert listed[1:7] == ["completed", str(ROWS), "0", "0", "0", str(ROWS)]
    batch_id = listed[0]
    status = json.loads(command("status", batch_id.removeprefix("batch_")[:6], "--json").stdout)
    assert (status["batch_id"], status["terminal"], status["cost"]["complete"]) == (batch_id, True, True)
    assert [line.split("\t")[1] for line in command("rows", "--start", "38").stdout.splitlines()] == ["c38", "c39"]
    assert command("rows", "--limit", "0", "--json").stdout == (tmp_path / "out.jsonl").read_text()
    (used,) = [json.loads(line) for line in command("usage", "--by", "model", "--json").stdout.splitlines()]
    assert (used["model"], used["answers"], used["cost"]["known_usd"]) == ("some", ROWS, status["cost"]["known_usd"])
    assert command("export", "-o", "-").stdout == (tmp_path / "out.jsonl").read_text()

    again = command(*run, "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["batch_id"] == batch_id
    cancelled = command("cancel", "@last")
    assert cancelled.returncode == 2
    assert "completed" in cancelled.stderr
    retried = command("retry", "--no-run")
    assert (retried.returncode, retried.stdout) == (0, "")
    assert "; none is sent" in retried.stderr
    assert command("work", "--until-idle", "--progress", "none").returncode == 0


def test_from_standard_input_to_standard_output(command: Command) -> None:
    ended = command("run", "-", "-m", "some", "--simulate", given=rows_text())
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == ROWS
    assert all(json.loads(line)["ok"] for line in ended.stdout.splitlines())


def test_refused_input_leaves_no_batch_and_no_file(command: Command, tmp_path: Path) -> None:
    ended = command("run", "-", "-m", "some", "--simulate", "-o", "out.jsonl", given=rows_text() + "nonsense\n")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"line {ROWS + 1}: " in ended.stderr
    assert not (tmp_path / "out.jsonl").exists()
    assert command("list").stdout == ""


def test_no_batch_at_all(command: Command) -> None:
    for verb in (["status"], ["retry"], ["cancel", "@last"]):
        ended = command(*verb)
        assert (ended.returncode, ended.stdout) == (2, ""), verb
        assert "@last" in ended.stderr
