"""`run --stop-after-failures`: as processes against a vendor that refuses rows, alone and with a second worker."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest

from support.command_line import CommandLine, Ended, chat_row
from support.scripted_vendor import ScriptedVendor

BAD = "[[status=400 code=bad_row]] row"


class Runs:
    def __init__(self, command: CommandLine, vendor: ScriptedVendor) -> None:
        self.command, self.vendor = command, vendor
        self.endpoint = ("--base-url", vendor.base_url, "--api-key-env", "", "--progress", "none")

    def line(self, *options: str) -> tuple[str, ...]:
        return ("run", "rows.jsonl", "-o", "out.jsonl", *self.endpoint, *options)

    def __call__(self, *options: str) -> Ended:
        return self.command(*self.line(*options))

    def write(self, texts: list[str]) -> None:
        self.command.write("rows.jsonl", [chat_row(text, f"r{number}") for number, text in enumerate(texts)])

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.command("status", "--json").out)
        return found


@pytest.fixture
def runs(command: CommandLine, vendor: ScriptedVendor) -> Runs:
    return Runs(command, vendor)


def mixed(rows: int, every: int) -> list[str]:
    """Each `every`th is refused."""
    return [f"{BAD} {number}" if number % every == 0 else f"row w{number}" for number in range(rows)]


def test_so_many_failures_end_it_and_a_retry_opens_the_rest(runs: Runs) -> None:
    runs.write(mixed(3_000, 10))
    runs.vendor.set(latency_s=0.02)
    ended = runs("--stop-after-failures", "20", "-c", "8")
    assert ended.code == 3, ended.err
    assert "stopped by --stop-after-failures 20" in ended.err
    assert "adds up" in ended.err
    assert "batchwright retry" in ended.err
    assert "A wrong model name" not in ended.err, "that is said of the gate"
    status = runs.status()
    assert (status["state"], status["closed_as"]) == ("partial", "stopped")
    assert 20 <= status["failed"] < 300
    assert status["stopped"] > 0
    assert len(runs.vendor.hits) < 3_000
    assert "stopped by --stop-after-failures 20" in runs.command("status").out
    lines = runs.command.lines()
    assert len(lines) == 3_000
    assert sum(line.get("error", {}).get("kind") == "stopped" for line in lines) == status["stopped"]
    # The rows that failed stay as they are and count no more: the round begins at 0.
    again = runs.command("retry", "@last", "--kind", "stopped", "-o", "out.jsonl", "--progress", "none")
    after = runs.status()
    assert again.code == 3, again.err
    assert after["ok"] > status["ok"] + 50
    assert status["failed"] + 20 <= after["failed"]


def test_a_share_is_of_the_rows_that_ended_and_of_a_hundred_at_least(runs: Runs) -> None:
    runs.write([f"{BAD} {number}" for number in range(20)] + [f"row w{number}" for number in range(480)])
    runs.vendor.set(latency_s=0.01)
    ended = runs("--stop-after-failures", "5%", "--no-gate", "-c", "1")
    assert ended.code == 3, ended.err
    status = runs.status()
    assert (status["failed"], status["stopped"] > 300) == (20, True), "20 of the first 100 are more than 5%"
    assert status["ok"] >= 80
    runs.write(mixed(500, 50))
    whole = runs("--stop-after-failures", "5%")
    assert whole.code == 3
    assert runs.status()["stopped"] == 0, "2% are fewer"


def test_two_workers_count_together_and_each_lets_what_is_out_finish(runs: Runs) -> None:
    runs.write([f"row w{number}" for number in range(40)] + [f"{BAD} {number}" for number in range(2_960)])
    runs.vendor.set(hold=True)
    first = runs.command.start(*runs.line("--stop-after-failures", "30", "--no-gate", "-c", "8"))
    first.until(runs.vendor, lambda vendor: len(vendor.held) >= 8)
    second = runs.command.start("work", "--until-idle", "--progress", "none")
    first.until(runs.vendor, lambda vendor: len(vendor.held) >= 16)
    runs.vendor.set(hold=False, latency_s=0.02)
    ended = first.end()
    assert ended.code == 3, ended.err
    assert second.end().code == 0
    status = runs.status()
    assert status["ok"] + status["failed"] + status["stopped"] == 3_000
    assert 30 <= status["failed"] < 600
    assert status["attempts"] == len(runs.vendor.hits), "no row was sent twice, or after the end"


def test_whoever_takes_the_batch_over_counts_before_it_sends_on(runs: Runs) -> None:
    """A worker may die between the failure that was one too many and the stop."""
    runs.write([f"{BAD} {number}" for number in range(30)] + [f"[[hold]] row w{number}" for number in range(970)])
    started = runs.command.start(*runs.line("--stop-after-failures", "1000", "--no-gate", "-c", "4"))
    started.until(runs.vendor, lambda vendor: len(vendor.held) >= 4)
    while runs.status()["failed"] < 30:
        pass
    started.kill()
    started.end()
    sent = len(runs.vendor.hits)
    with sqlite3.connect(runs.command.state / "batchwright.sqlite") as connection:  # as if the limit had been that
        changed = connection.execute("UPDATE batch SET spec = replace(spec, '\"rows\":1000', '\"rows\":30')")
        assert changed.rowcount == 1
    ended = runs("--stop-after-failures", "30", "--no-gate", "-c", "4")
    assert ended.code == 4, ended.err
    assert runs.status()["stopped"] >= 900
    assert len(runs.vendor.hits) - sent <= 64, "no more than what was reserved at once"


def test_a_batch_keeps_its_limit(runs: Runs) -> None:
    runs.write(["[[hold]] row w0", "row w1"])
    started = runs.command.start(*runs.line("--stop-after-failures", "7"))
    started.until(runs.vendor, lambda vendor: len(vendor.held) >= 1)
    started.kill()
    started.end()
    runs.vendor.release()
    other = runs.command.start(*runs.line("--stop-after-failures", "5%"))
    other.wait_for("It keeps what it was submitted with: --stop-after-failures 7 (not --stop-after-failures 5%)")
    other.until(runs.vendor, lambda vendor: len(vendor.held) >= 1)
    runs.vendor.release()
    assert other.end().code == 0


@pytest.mark.parametrize("value", ["0", "-3", "0%", "101%", "many", "5 of 10"])
def test_what_is_no_limit_is_refused_before_anything_is_read(runs: Runs, value: str) -> None:
    runs.write(["row w0"])
    ended = runs(f"--stop-after-failures={value}")
    assert ended.code == 2
    assert "expected a number of rows from 1 on, or a share" in ended.err
    assert not runs.vendor.hits
