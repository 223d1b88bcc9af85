"""A real `batchwright serve` and the stock `openai` SDK: the example script, many rows in little memory, one bill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from support.command_line import CommandLine
from support.openai_client import CHAT, chat_rows, upload
from support.served_process import served

ROOT = Path(__file__).parents[2]
ANSWERS_WITHIN_S = 60


def run_example(base_url: str, key: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "examples" / "openai_batch.py", path],
        env={**os.environ, "OPENAI_BASE_URL": f"{base_url}/v1", "OPENAI_API_KEY": key},
        capture_output=True,
        text=True,
        timeout=ANSWERS_WITHIN_S,
        check=False,
    )


def test_the_example_runs(command: CommandLine) -> None:
    with served(command) as service:
        ended = run_example(service.base_url, service.key, ROOT / "examples" / "tickets.jsonl")
        assert ended.returncode == 0, ended.stderr
        assert [line.split()[0] for line in ended.stdout.splitlines()] == [f"ticket-{n:02}" for n in range(1, 41)]
        assert "completed: 40 of 40 ok" in ended.stderr
        (batch,) = service.sdk.batches.list().data
        listed = command("list")
        assert batch.id in listed.out + listed.err, "the same batch, whichever face it came by"

        wrong = command.folder / "wrong.jsonl"
        wrong.write_text('{"custom_id": "a"}\n')
        refused = run_example(service.base_url, service.key, wrong)
        assert refused.returncode == 1
        assert "line 1: missing_required_parameter" in refused.stderr
        (batch, _) = service.sdk.batches.list().data
        status = command("status", batch.id)
        assert "refused" in status.out + status.err
        assert command("delete", batch.id, "--yes").code == 0
        with pytest.raises(openai.NotFoundError):
            service.sdk.batches.retrieve(batch.id)


def test_it_ends_when_it_is_interrupted_and_the_next_goes_on(command: CommandLine) -> None:
    with served(command) as service:
        file = upload(service.sdk, chat_rows(*(f"w{number}" for number in range(2_000))))
        batch = service.sdk.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
        service.started.interrupt()
        assert service.started.end().code == 0
    with served(command, key=service.key) as again:
        assert again.ended(batch.id)["total_count"] == 2_000
        ended = again.sdk.batches.retrieve(batch.id)
        assert ended.request_counts is not None
        assert ended.request_counts.total == ended.request_counts.completed + ended.request_counts.failed == 2_000
        ids = [
            json.loads(line)["custom_id"]
            for file_id in (ended.output_file_id, ended.error_file_id)
            if file_id
            for line in again.sdk.files.content(file_id).content.splitlines()
        ]
        assert sorted(ids) == sorted(f"r{number}" for number in range(2_000))
