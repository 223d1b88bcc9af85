"""The benchmarks still run: in sizes that say nothing about speed, and nothing about speed is asked here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.postgres import PostgresServer

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


def claims(*arguments: str) -> list[dict[str, Any]]:
    """Its figures; the plans after them are for people."""
    sizes = ("--segments", "400", "--accounts", "20", "--claims", "120")
    command = [sys.executable, str(BENCHMARKS / "claims.py"), *sizes, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "first accounts:" in ended.stdout
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def test_claims_are_counted_by_account() -> None:
    _, speed, fair = claims()
    assert speed["claims"] >= 120
    assert fair["tokens_apart"] <= fair["tokens_a_segment"]


def test_claims_on_a_server_are_as_fair(postgres: PostgresServer) -> None:
    with postgres.database() as url:
        _, speed, fair = claims("--database", url)
        assert speed["claims"] >= 120
        assert fair["tokens_apart"] <= fair["tokens_a_segment"]


def test_claims_of_several_workers_on_a_server(postgres: PostgresServer) -> None:
    """How far they are apart is not asked: an account that one is claiming from is passed over by the other, for as
    long as the first one's transaction takes."""
    with postgres.database() as url:
        _, speed, fair = claims("--database", url, "--workers", "2")
        assert (speed["workers"], speed["claims"] >= 120) == (2, True)
        assert fair["segments_held_an_account"][0] >= 1


@pytest.mark.parametrize("where", [[], ["--postgres"]], ids=["a state file", "a server"])
def test_a_soak_of_claims_looks_at_plans_and_at_what_is_left_behind(where: list[str]) -> None:
    _, *windows = claims("--soak", "0.01", *where)
    assert windows[0]["claims"] > 0
    assert all(window["plans"] == "by index" for window in windows)
    assert all(window["left_behind"] for window in windows)
