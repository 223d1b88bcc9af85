"""The benchmarks still run: in sizes that say nothing about speed, and nothing about speed is asked here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


def run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / "run.py"), *arguments, "--rounds", "1", "--folder", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="the clocks of other processes are read as Linux names them")
def test_start_finds_the_first_row_at_a_vendor(folder: Path) -> None:
    said = run(folder, "start")
    assert "until the first of 10,000 rows is at the vendor" in said
    assert "CPU of --help" in said


def test_validate_reads_its_rows(folder: Path) -> None:
    assert "validate of 300 rows" in run(folder, "validate", "--many", "300")


def test_a_faulty_vendor_is_compared_with_a_clean_one(folder: Path) -> None:
    said = run(folder, "faults", "--fault-rows", "300")
    assert "times the time of a clean vendor" in said


def test_rows_are_the_same_every_time_and_none_like_another(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one.jsonl", "two.jsonl")]
    for file in files:
        subprocess.run(
            [sys.executable, str(BENCHMARKS / "rows.py"), "200", str(file)], check=True, env=dict(os.environ)
        )
    one, two = (file.read_bytes() for file in files)
    assert one == two
    texts = {json.loads(line)["body"]["messages"][1]["content"] for line in one.splitlines()}
    assert len(texts) == 200
