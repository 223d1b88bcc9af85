"""Equal rows of one file, asked once (`--dedup`), with the real command and a vendor that counts."""

from __future__ import annotations

import csv
import signal
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.command_line import CommandLine, Ended, Started, chat_row, content
from support.counted_runs import Runs
from support.postgres import PostgresServer
from support.scripted_vendor import ScriptedVendor


@pytest.fixture
def run(command: CommandLine, vendor: ScriptedVendor) -> Runs:
    return Runs(command, vendor)


def row_of(text: str, row: int) -> Any:
    return chat_row(text, f"r{row}", temperature=0)


def test_equal_rows_are_asked_once_and_each_has_its_line(run: Runs) -> None:
    words = [f"word{row % 7}" for row in range(1300)]
    ended = run([row_of(f"say {word}", row) for row, word in enumerate(words)], "--dedup")
    assert run.asked() == {f"say word{number}": 1 for number in range(7)}
    lines = run.lines()
    assert [(line["request_index"], line["custom_id"], content(line)) for line in lines] == [
        (row, f"r{row}", word) for row, word in enumerate(words)
    ]
    assert [line["attempts"] for line in lines[:8]] == [1] * 7 + [0]
    assert [line.get("shares_answer_of") for line in lines[:8]] == [None] * 7 + [0]
    assert all(line["response"] == lines[row % 7]["response"] for row, line in enumerate(lines))
    assert all(line["cost_usd"] == 0 for line in lines[7:])
    report = ended.report
    assert (report["attempts"], report["rows_shared"], report["ok"]) == (7, 1293, 1300)
    assert report["tokens"]["prompt"] == sum(line["response"]["usage"]["prompt_tokens"] for line in lines[:7])
    assert report["adds_up"]
    run.holds()
    # Without it each is asked.
    run.forget()
    run([row_of("say one", 0), row_of("say one", 1)])
    assert run.asked() == {"say one": 2}


def test_samples_are_not_shared_unless_that_is_said(run: Runs) -> None:
    rows = [chat_row("say a", "0", temperature=0.7), chat_row("say b", "1"), chat_row("say b", "2")]
    refused = run([*rows, rows[0] | {"custom_id": "3"}], "--dedup", code=2)
    assert "line 3: the same request as on line 2" in refused.err
    assert "line 4: the same request as on line 1" in refused.err
    assert "--dedup-samples" in refused.err
    assert not run.vendor.hits
    assert run(rows[:2], "--dedup").report["ok"] == 2, "rows that repeat nothing may be samples"
    run.forget()
    run(rows, "--dedup-samples", "--fresh")
    assert run.asked() == {"say a": 1, "say b": 1}
    run.forget()
    run([chat_row("say c", "0"), chat_row("say c", "1")], "--dedup", "--temperature", "0")
    assert run.asked() == {"say c": 1}


def test_a_failure_is_shared_and_a_retry_asks_once_more(run: Runs) -> None:
    bad = "[[status=400 code=bad times=1]] say no"
    rows = [row_of(bad, 0), row_of("say yes", 1), row_of(bad, 2), row_of("say yes", 3), row_of(bad, 4)]
    ended = run(rows, "--dedup", code=3)
    assert run.asked() == {bad: 1, "say yes": 1}
    assert [line["ok"] for line in run.lines()] == [False, True, False, True, False]
    assert {line["error"]["cause"]["code"] for line in run.lines() if not line["ok"]} == {"bad"}
    assert ended.report["failed"] == 3
    run.forget()
    again = run.command("retry", "@last", "-o", "out.jsonl", "--progress", "none", "--json")
    assert again.code == 0, again.err
    assert run.asked() == {bad: 1}
    assert [content(line) for line in run.lines()] == ["no", "yes", "no", "yes", "no"]
    assert [line["attempts"] for line in run.lines()] == [2, 1, 0, 0, 0]
    run.holds()


def test_a_leader_that_was_cancelled_leaves_nobody_waiting(run: Runs) -> None:
    run.vendor.set(hold=True)
    run.command.write("rows.jsonl", [row_of(f"say word{row % 2}", row) for row in range(6)])
    started: Started = run.command.start(*run.line("--dedup"))
    started.until(run.vendor, lambda vendor: len(vendor.hits) == 2)
    assert run.command("cancel", "@last").code == 0
    run.vendor.set(hold=False)
    run.vendor.release()
    started.end()
    assert Counter(hit.text for hit in run.vendor.hits) == {"say word0": 1, "say word1": 1}
    again = run.command("retry", "@last", "-o", "out.jsonl", "--progress", "none")
    assert again.code in (0, 2), again.err
    ended = run.command("export", "@last", "-o", "out.jsonl", "--force")
    assert ended.code == 0, ended.err
    assert [content(line) for line in run.lines()] == ["word0", "word1"] * 3
    run.holds()


def test_answers_that_were_reused_are_shared_too(run: Runs) -> None:
    run([row_of("say one", 0)])
    run.forget()
    run([row_of("say one", 0), row_of("say one", 1), row_of("say two", 2), row_of("say two", 3)], "--reuse", "--dedup")
    assert run.asked() == {"say two": 1}
    assert [content(line) for line in run.lines()] == ["one", "one", "two", "two"]
    run.holds()


def test_a_table_says_which_rows_share(run: Runs) -> None:
    (run.command.folder / "t.csv").write_text("id,text\n1,say one\n2,say one\n")
    run(None, "-t", "{text}", "-m", "m", "-o", "t.out.csv", "--temperature", "0", "--dedup", file="t.csv")
    with (run.command.folder / "t.out.csv").open(newline="") as file:
        found = [(row["answer"], row["shares_answer_of"], row["attempts"]) for row in csv.DictReader(file)]
    assert found == [("one", "", "1"), ("one", "0", "0")]


POINTS = ("after close_intake:1", "before checkpoint:3", "after checkpoint:4", "commit:6", "before send:9", "commit:9")


@pytest.mark.parametrize("points", [POINTS[:3], POINTS[3:]])
def test_killed_while_answers_are_shared(run: Runs, points: tuple[str, ...]) -> None:
    """After each kill the same command goes on; followers are exact, and never sent."""
    run.vendor.set(latency_s=0.02)
    words = [f"word{row % 60 if row % 3 else row}" for row in range(1800)]
    run.command.write("rows.jsonl", [row_of(f"say {word}", row) for row, word in enumerate(words)])
    killed = 0
    for number, point in enumerate(points):
        program = ("-m", "support.watched_command", str(run.command.folder / f"account{number}"), point)
        ended: Ended = run.command.start(*run.line("--dedup", "-c", "8"), program=program).end()
        killed += ended.code == -signal.SIGKILL
    assert killed == len(points)
    report = run(None, "--dedup", "-c", "8").report
    lines = run.lines()
    assert [content(line) for line in lines] == words
    first = {word: row for row, word in reversed(list(enumerate(words)))}
    assert [line.get("shares_answer_of", row) for row, line in enumerate(lines)] == [first[word] for word in words]
    assert all(line["response"] == lines[first[word]]["response"] for line, word in zip(lines, words, strict=True))
    assert sum(run.asked().values()) - len(first) <= report["possible_double_payments"]
    assert report["rows_shared"] == len(words) - len(first)
    run.holds()


def test_two_workers_share_what_either_was_told(run: Runs) -> None:
    """Leaders of one worker's segments are followed in the other's, and after its death."""
    run.vendor.set(latency_s=0.02)
    words = [f"word{row % 400}" for row in range(4000)]
    run.command.write("rows.jsonl", [row_of(f"say {word}", row) for row, word in enumerate(words)])
    started = run.command.start(*run.line("--dedup", "-c", "4"))
    beside = [run.command.start("work"), run.command.start("work")]
    started.until(run.vendor, lambda vendor: len(vendor.hits) > 100)
    beside[0].kill()
    ended = started.end()
    beside[1].interrupt()
    beside[1].end()
    assert ended.code == 0, ended.err
    assert [content(line) for line in run.lines()] == words
    assert set(run.asked()) == {f"say word{number}" for number in range(400)}
    assert ended.report["rows_shared"] == 3600
    run.holds()


def test_on_a_server_too(tmp_path: Path, vendor: ScriptedVendor) -> None:
    """Taken over, shared, and killed in between, over PostgreSQL."""
    with closing(PostgresServer()) as server:
        url = server.new_database()
        run = Runs(CommandLine(tmp_path, BATCHWRIGHT_DATABASE=url), vendor, database=url)
        words = [f"word{row % 40}" for row in range(900)]
        rows = [row_of(f"say {word}", row) for row, word in enumerate(words)]
        run(rows[:20])
        run.forget()
        run.command.write("rows.jsonl", rows)
        program = ("-m", "support.watched_command", str(tmp_path / "account"), "before checkpoint:4")
        killed = run.command.start(*run.line("--reuse", "--dedup", "-c", "4"), program=program).end()
        assert killed.code == -signal.SIGKILL, killed.err
        report = run(None, "--reuse", "--dedup", "-c", "4").report
        assert [content(line) for line in run.lines()] == words
        assert set(run.asked()) == {f"say word{number}" for number in range(20, 40)}
        assert (report["rows_shared"], report["reused"]["reused"]) == (860, 20)
        run.holds()
