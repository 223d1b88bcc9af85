"""How real processes end, what they say then, and how the same command goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command_line import CommandLine, Ended, Started, chat_row, content
from support.scripted_vendor import ScriptedVendor

KEY = {"SOME_KEY": "sk-test"}
PRICES = '[[price]]\npattern = "m"\ninput = "1000"\noutput = "1000"\n'
LIMITED = """
import resource, signal
from batchwright.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))
main()
"""


class Runs:
    """`run rows.jsonl -o out.jsonl` in one folder against one vendor."""

    def __init__(self, command: CommandLine, vendor: ScriptedVendor) -> None:
        self.command, self.vendor = command, vendor

    def start(self, *options: str, name: str = "rows.jsonl", **variables: str) -> Started:
        key = () if "--api-key-env" in options else ("--api-key-env", "")
        output = () if "-o" in options else ("-o", "out.jsonl")
        line = ("run", name, *output, "--base-url", self.vendor.base_url, *key, "-m", "m")
        return self.command.start(*line, "--progress", "plain", *options, **variables)

    def __call__(self, *options: str, name: str = "rows.jsonl", **variables: str) -> Ended:
        return self.start(*options, name=name, **variables).end()

    def write(self, texts: list[str], name: str = "rows.jsonl") -> None:
        self.command.write(name, [chat_row(text, str(row)) for row, text in enumerate(texts)])

    def contents(self, name: str = "out.jsonl") -> list[object]:
        return [content(line) if line["ok"] else None for line in self.command.lines(name)]


@pytest.fixture
def runs(command: CommandLine, vendor: ScriptedVendor) -> Runs:
    return Runs(command, vendor)


# ------------------------------------------------------------------------------------------------------ exit codes


def test_some_failed_and_the_file_of_failures_runs_again(runs: Runs) -> None:
    runs.write([f"[[status=400 times=1]] w{n}" if n % 3 == 0 else f"w{n}" for n in range(12)])
    ended = runs("--failed", "failed.jsonl")
    assert ended.code == 3
    assert ended.first_line.startswith("8 ok, 4 failed of 12")
    assert "batchwright retry" in ended.err
    again = runs("-o", "again.jsonl", name="failed.jsonl")
    assert again.code == 0, again.err
    assert runs.contents("again.jsonl") == ["w0", "w3", "w6", "w9"]
    assert [line["custom_id"] for line in runs.command.lines("again.jsonl")] == ["0", "3", "6", "9"]


def test_flagged_answers_fail_only_under_strict(runs: Runs) -> None:
    runs.write(["w0", "[[finish=length]] w1"])
    assert runs().code == 0
    assert runs("--strict").code == 3
    assert len(runs.vendor.hits) == 2, "the second command only exported"


def test_usage_errors_send_nothing(runs: Runs, tmp_path: Path) -> None:
    runs.write(["w0"])
    for line in (
        ("run", "missing.jsonl", "-o", "out.jsonl"),
        ("run", "rows.jsonl", "-o", "rows.jsonl"),
        ("run", "rows.jsonl", "--concurrency", "none"),
        ("run", "rows.jsonl", "--api-key", "sk-secret-value", "--base-url", runs.vendor.base_url),
        ("runn", "rows.jsonl"),
    ):
        ended = runs.command(*line)
        assert (ended.code, ended.out) == (2, ""), (line, ended.err)
        assert "sk-secret-value" not in ended.err
    assert runs.vendor.hits == []
    assert not (tmp_path / "out.jsonl").exists()


def test_an_output_folder_that_cannot_be_written_is_refused_before_anything_is_sent(runs: Runs, tmp_path: Path) -> None:
    runs.write(["w0"])
    (tmp_path / "file").write_text("no folder")
    for place in ("missing/out.jsonl", "file/out.jsonl"):
        ended = runs("-o", place)
        assert (ended.code, runs.vendor.hits) == (2, []), ended.err
        assert place.split("/")[0] in ended.err


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 KiB; only root can have one."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no small file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_read_only_output_folder(runs: Runs, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    runs.write(["w0"])
    ended = runs("-o", str(small_disk / "out.jsonl"))
    assert (ended.code, runs.vendor.hits) == (2, []), ended.err
    assert str(small_disk) in ended.err


def test_a_full_disk_under_the_output(runs: Runs, small_disk: Path) -> None:
    """The batch has ended: nothing of it is lost, no half file stays, and the message says how to write it again."""
    runs.write([f"[[big=20000]] {n}" for n in range(40)])
    out = small_disk / "out.jsonl"
    ended = runs("-o", str(out))
    assert (ended.code, list(small_disk.iterdir())) == (1, []), ended.err
    assert str(out) in ended.err
    assert "batchwright export" in ended.err
    assert len(runs.vendor.hits) == 40
    elsewhere = runs("-o", "out.jsonl")
    assert (elsewhere.code, len(runs.contents()), len(runs.vendor.hits)) == (0, 40, 40)


def test_a_full_disk_under_the_output_of_a_user_who_is_not_root(runs: Runs) -> None:
    """As above by a limit on the size of files, which the state keeps within."""
    runs.write([f"[[big=20000]] {n}" for n in range(200)])
    assert runs().code == 0
    (runs.command.folder / "out.jsonl").unlink()
    ended = runs.command.start("export", "-o", "out.jsonl", program=("-c", LIMITED)).end()
    assert (ended.code, (runs.command.folder / "out.jsonl").exists()) == (1, False), ended.err
    assert "out.jsonl" in ended.err
    assert not list(runs.command.folder.glob(".*.part"))


def test_a_full_disk_under_the_state(runs: Runs, small_disk: Path) -> None:
    """Our fault as far as exit codes go; what was answered and durable is not lost once there is room."""
    runs.write([f"[[big=20000]] {n}" for n in range(100)])
    ended = runs(BATCHWRIGHT_HOME=str(small_disk / "state"))
    assert ended.code == 1, ended.err
    assert "Traceback" not in ended.err
    assert str(small_disk) in ended.err or "full" in ended.err
    subprocess.run(["mount", "-o", "remount,size=40m", str(small_disk)], check=True)
    again = runs(BATCHWRIGHT_HOME=str(small_disk / "state"))
    assert (again.code, len(runs.contents())) == (0, 100), again.err


# ---------------------------------------------------------------------------------------------------- interrupts


def test_ctrl_c_once_finishes_what_is_in_flight(runs: Runs) -> None:
    runs.vendor.set(hold=True)
    runs.write([f"w{n}" for n in range(40)])
    started = runs.start("-c", "4")
    started.until(runs.vendor, lambda vendor: vendor.in_flight == 4)
    started.interrupt()
    started.wait_for("stopping")
    runs.vendor.release()
    ended = started.end()
    assert ended.code == 130
    assert "4 of 40 rows are done" in ended.err
    assert "batchwright run rows.jsonl -o out.jsonl" in ended.err
    assert ", running (idle)\n" in ended.err, "our own hold on the batch does not make it one that is worked on"
    assert not (runs.command.folder / "out.jsonl").exists()
    runs.vendor.set(hold=False)
    again = runs("-c", "4")
    assert (again.code, len(runs.vendor.hits)) == (0, 40)
    assert "4 of 40 rows are done" in again.err
    assert runs.contents() == [f"w{n}" for n in range(40)]


@pytest.mark.parametrize(
    ("signals", "options", "code"),
    [
        ([signal.SIGTERM], (), 0),
        ([signal.SIGINT], (), 0),
        ([signal.SIGHUP], (), 0),
        ([signal.SIGHUP], ("--processes", "2"), 0),
        ([signal.SIGTERM], ("--until-idle",), 130),
        ([signal.SIGTERM, signal.SIGINT], (), 130),
    ],
    ids=["SIGTERM", "SIGINT", "SIGHUP", "SIGHUP of processes", "not idle yet", "twice"],
)
def test_a_worker_that_is_told_to_end_has_done_what_it_was_asked(
    runs: Runs, signals: list[signal.Signals], options: tuple[str, ...], code: int
) -> None:
    runs.vendor.set(hold=True)
    runs.write([f"w{n}" for n in range(8)])
    begun = runs.start("-c", "4")
    begun.until(runs.vendor, lambda vendor: vendor.in_flight == 4)
    begun.kill()
    begun.end()
    grace = "0.1" if len(signals) == 1 else "3600"
    worker = runs.command.start("work", "--progress", "none", *options, BATCHWRIGHT_GRACE=grace)
    worker.until(runs.vendor, lambda vendor: len(vendor.hits) > 4)
    for number in signals:
        worker.process.send_signal(number)
    assert worker.end().code == code


def test_ctrl_c_twice_stops_now(runs: Runs) -> None:
    runs.write([f"[[hang times=1]] w{n}" for n in range(8)])
    started = runs.start("-c", "4", BATCHWRIGHT_GRACE="3600")
    started.until(runs.vendor, lambda vendor: vendor.in_flight == 4)
    started.interrupt()
    started.wait_for("stopping")
    started.interrupt()
    ended = started.end()
    assert ended.code == 130
    assert "possible double payments: at most 4" in ended.err
    again = runs.start("-c", "4", "--json", BATCHWRIGHT_GRACE="3600")
    # The four that hung are answered now, and the other four hang.
    again.until(runs.vendor, lambda vendor: (len(vendor.hits), vendor.in_flight) == (12, 4))
    again.interrupt()
    again.wait_for("stopping")
    again.interrupt()
    assert again.end().code == 130
    last = runs("-c", "4", "--json")
    assert last.code == 0, last.err
    assert runs.contents() == [f"w{n}" for n in range(8)]
    assert last.report["possible_double_payments"] == 8


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGHUP], [signal.SIGHUP, signal.SIGHUP]])
def test_other_signals_are_as_ctrl_c(runs: Runs, signals: list[signal.Signals]) -> None:
    runs.vendor.set(hold=True)
    runs.write([f"w{n}" for n in range(10)])
    started = runs.start("-c", "2")
    started.until(runs.vendor, lambda vendor: vendor.in_flight == 2)
    for number in signals:
        os.kill(started.process.pid, number)
        started.wait_for("stopping")
    runs.vendor.release()
    ended = started.end()
    assert ended.code == 130
    assert "2 of 10 rows are done" in ended.err


# --------------------------------------------------------------------------------------- the same command, and others


def test_what_differs_from_an_earlier_batch_is_said(runs: Runs) -> None:
    runs.write([f"w{n}" for n in range(5)])
    assert runs().code == 0
    model = runs("-m", "other")
    assert (model.code, "--model is now other (was m)" in model.err) == (0, True)
    temperature = runs("--param", "temperature=0.5")
    assert "--param temperature is now 0.5 (was not given)" in temperature.err
    asked = len(runs.vendor.hits)
    assert runs("-c", "3", "--param", "temperature=0.5", "--rpm", "100000", "--timeout", "9s").code == 0
    assert len(runs.vendor.hits) == asked, "pace and limits make no other batch"
    runs.write([f"w{n}" for n in range(3)] + ["changed", "w4", "new"])
    changed = runs("--param", "temperature=0.5")
    assert "1 row is changed, 1 row is new" in changed.err
    assert "Starting anew" in changed.err
    assert runs.contents() == ["w0", "w1", "w2", "changed", "w4", "new"]
    asked = len(runs.vendor.hits)
    fresh = runs("--param", "temperature=0.5", "--fresh")
    assert (fresh.code, len(runs.vendor.hits) - asked) == (0, 6)


def test_the_same_command_while_the_first_runs(runs: Runs) -> None:
    runs.vendor.set(hold=True)
    runs.write([f"w{n}" for n in range(6)])
    first = runs.start()
    first.until(runs.vendor, lambda vendor: vendor.in_flight == 6)
    second = runs.start("-o", "second.jsonl")
    second.wait_for(f"rocess {first.process.pid} is running this as batch_")
    runs.vendor.set(hold=False)
    assert (first.end().code, second.end().code) == (0, 0)
    assert len(runs.vendor.hits) == 6
    assert runs.contents() == [f"w{n}" for n in range(6)]
    assert not (runs.command.folder / "second.jsonl").exists()


def test_the_same_command_when_the_first_dies(runs: Runs) -> None:
    runs.vendor.set(hold=True)
    runs.write([f"w{n}" for n in range(6)])
    first = runs.start()
    first.until(runs.vendor, lambda vendor: vendor.in_flight == 6)
    second = runs.start()
    second.wait_for("is running this as batch_")
    first.kill()
    assert first.end().code == -signal.SIGKILL
    second.wait_for("going on with it here")
    runs.vendor.set(hold=False)
    assert second.end().code == 0
    assert runs.contents() == [f"w{n}" for n in range(6)]


def test_two_files_at_once_on_one_state_folder(runs: Runs) -> None:
    runs.vendor.set(latency_s=0.01)
    names = ["one", "two", "three"]
    for name in names:
        runs.write([f"{name}{n}" for n in range(700)], f"{name}.jsonl")
    started = [runs.start("-o", f"{name}.out", name=f"{name}.jsonl") for name in names]
    assert [one.end().code for one in started] == [0, 0, 0]
    for name in names:
        assert runs.contents(f"{name}.out") == [f"{name}{n}" for n in range(700)]
    assert len(runs.vendor.hits) == 2100


# -------------------------------------------------------------------------------------------------------- pauses


def test_a_key_that_is_not_set(runs: Runs) -> None:
    """`run` names the variable and goes on once it is there; `work` leaves the batch alone and names it too."""
    runs.write([f"w{n}" for n in range(30)])
    with_key = ("--api-key-env", "SOME_KEY")
    lacking = runs(*with_key)
    assert lacking.code == 2
    assert "SOME_KEY" in lacking.err
    assert runs.vendor.hits == []
    runs.vendor.set(hold=True)
    started = runs.start(*with_key, "-c", "2", **KEY)
    started.until(runs.vendor, lambda vendor: vendor.in_flight == 2)
    started.kill()
    started.end()
    runs.vendor.set(hold=False)
    without = runs.command("resume", "@last", "--progress", "none")
    assert (without.code, len(runs.vendor.hits)) == (5, 2)
    assert "SOME_KEY" in without.err
    worker = runs.command("work", "--until-idle", "--progress", "plain")
    assert (worker.code, len(runs.vendor.hits)) == (0, 2)
    assert "SOME_KEY" in worker.err
    state = (runs.command.state / "batchwright.sqlite").read_bytes()
    assert b"sk-test" not in state
    assert runs.command("work", "--until-idle", "--progress", "none", **KEY).code == 0
    assert runs(*with_key, **KEY).code == 0
    assert runs.contents() == [f"w{n}" for n in range(30)]


def test_a_cap_on_the_cost(runs: Runs) -> None:
    """Never above it; the pause names it; the same command stays paused; a higher cap goes on."""
    (runs.command.folder / "prices.toml").write_text(PRICES)
    prices = {"BATCHWRIGHT_PRICES": str(runs.command.folder / "prices.toml")}
    runs.write([f"w{n}" for n in range(60)])
    unbounded = runs("--max-cost", "1", **prices)
    assert (unbounded.code, runs.vendor.hits) == (2, [])
    assert "max_tokens" in unbounded.err
    capped = ("--max-tokens", "2", "-c", "4")
    ended = runs(*capped, "--max-cost", "0.5", "--json", **prices)
    assert ended.code == 5, ended.err
    assert 0 < ended.report["cost"]["known_usd"] <= 0.5
    assert "0.5" in ended.err
    assert "--max-cost" in ended.err
    asked = len(runs.vendor.hits)
    assert (runs(*capped, "--max-cost", "0.5", **prices).code, len(runs.vendor.hits)) == (5, asked)
    again = runs(*capped, "--max-cost", "5", "--json", **prices)
    assert (again.code, len(runs.vendor.hits)) == (0, 60), again.err
    assert again.report["cost"]["known_usd"] == pytest.approx(60 * 12e-3)


def test_a_lane_that_is_paused_goes_on_once_it_is_put_right(runs: Runs) -> None:
    runs.vendor.set(quota_empty=True)
    runs.write([f"w{n}" for n in range(40)])
    ended = runs("-c", "4")
    assert ended.code == 5
    assert "insufficient_quota" in ended.err
    assert "batchwright run rows.jsonl" in ended.err
    assert len(runs.vendor.hits) <= 4
    (listed,) = runs.command("list").out.splitlines()
    assert "paused" in listed
    runs.vendor.set(quota_empty=False)
    assert runs("-c", "4").code == 0
    assert runs.contents() == [f"w{n}" for n in range(40)]


def test_the_gate(runs: Runs) -> None:
    runs.write([f"[[status=404 code=model_not_found]] {n}" for n in range(100)])
    ended = runs()
    assert ended.code == 5
    assert "model_not_found" in ended.err
    assert len(runs.vendor.hits) <= 50
    tried = runs()
    assert (tried.code, len(runs.vendor.hits) <= 100) == (5, True), "the same command tries anew, and meets it again"
    assert runs("--no-gate").code in {4, 5}
    status = json.loads(runs.command("status", "--json").out)
    assert status["total"] == 100


def test_a_gate_that_stops_ends_the_batch_and_a_retry_opens_it(runs: Runs) -> None:
    runs.write([f"[[status=404 times=1]] w{n}" if n < 25 else f"w{n}" for n in range(40)])
    ended = runs("--on-gate", "stop", "-c", "1")
    assert ended.code == 4
    assert ended.first_line.startswith("0 ok, 25 failed, 15 stopped of 40")
    assert "stopped by the gate" in ended.err
    assert len(runs.vendor.hits) == 25
    assert runs.command("retry", "@last", "-o", "out.jsonl").code == 0
    assert runs.contents() == [f"w{n}" for n in range(40)]
    both = runs("--on-gate", "stop", "--no-gate")
    assert (both.code, "give one of them" in both.err) == (2, True)


def test_a_retry_that_was_killed_is_finished_by_the_same_command(runs: Runs) -> None:
    runs.write([f"[[status=400 times=1]] w{n}" if n % 2 else f"w{n}" for n in range(12)])
    assert runs("-c", "2").code == 3
    (runs.command.folder / "out.jsonl").unlink()
    runs.vendor.set(hold=True)
    retry = ("retry", "@last", "-o", "out.jsonl", "-c", "2", "--json")
    killed = runs.command.start(*retry)
    killed.until(runs.vendor, lambda vendor: vendor.in_flight == 2)
    killed.kill()
    killed.end()
    runs.vendor.set(hold=False)
    listed = json.loads(runs.command("status", "--json").out)
    assert (listed["state"], listed["live"], listed["round"], listed["open"]) == ("running", False, 1, 6)
    ended = runs.command(*retry)
    assert ended.code == 0, ended.err
    assert (ended.report["round"], ended.report["ok"]) == (1, 12)
    assert runs.contents() == [f"w{n}" for n in range(12)]
    (runs.command.folder / "out.jsonl").unlink()
    assert runs.command(*retry).code == 0, "killed before the file was written: it is written now"
    assert runs.contents() == [f"w{n}" for n in range(12)]


def test_watch_says_at_the_end_what_the_run_says(runs: Runs) -> None:
    runs.write([f"[[status=400 code=bad]] w{n}" if n == 3 else f"w{n}" for n in range(5)])
    ran = runs("--json")
    seen = runs.command("watch", "--json")
    assert (ran.code, seen.code) == (3, 3)
    own = ("output", "wall_s", "rows_per_s", "outcome", "law")
    assert {k: v for k, v in seen.report.items() if k not in own} == {
        k: v for k, v in ran.report.items() if k not in own
    }


def test_a_deadline(runs: Runs) -> None:
    runs.write(["w0", "w1", "[[status=429 ra=600]] late"])
    ended = runs("--deadline", "2s")
    assert ended.code == 4
    assert ended.first_line.startswith("2 ok, 1 expired of 3")
    assert runs.contents() == ["w0", "w1", None]


def test_an_address_where_nobody_listens(runs: Runs) -> None:
    """Waited for, and interrupted by a person; no row was harmed."""
    runs.vendor.set(refuse=True)
    runs.write([f"w{n}" for n in range(30)])
    started = runs.start()
    started.wait_for("outage")
    started.interrupt()
    ended = started.end()
    assert ended.code == 130
    assert ended.first_line.startswith("0 ok, 30 not ended yet of 30")
    runs.vendor.set(refuse=False)
    assert runs().code == 0
    assert runs.contents() == [f"w{n}" for n in range(30)]
