"""Answers that are there already: `--reuse` and `--cache`, with the real command and a vendor that counts."""

from __future__ import annotations

import csv
import signal
from typing import Any

import pytest

from support.command_line import CommandLine, Ended, chat_row, content
from support.counted_runs import Runs
from support.scripted_vendor import ScriptedVendor

ROWS = 40


@pytest.fixture
def run(command: CommandLine, vendor: ScriptedVendor) -> Runs:
    return Runs(command, vendor)


def rows_of(count: int) -> list[Any]:
    return [chat_row(f"say word{row}", f"r{row}") for row in range(count)]


def kept(ended: Ended) -> dict[str, Any]:
    found: dict[str, Any] = ended.report["reused"]
    return found


def test_unchanged_rows_keep_their_very_answers_and_cost_nothing(run: Runs) -> None:
    rows = rows_of(ROWS)
    first = run(rows)
    answers = {content(line): line["response"] for line in run.lines()}
    run.forget()
    changed = [*rows[5:20], chat_row("say other", "r3"), *reversed(rows[20:]), chat_row("say fresh", "n")]
    ended = run(changed, "--reuse")
    assert sorted(run.asked()) == ["say fresh", "say other"]
    # 35 of 40 are there, in another order; 5 are gone, 2 are others, of which both may stand for one that is gone.
    assert kept(ended) == {"reused": 35, "cached": 0, "again": 0, "changed": 2, "new": 0}
    for index, line in enumerate(run.lines()):
        word = changed[index]["body"]["messages"][0]["content"].split()[-1]
        assert (line["request_index"], content(line)) == (index, word)
        if word in answers:
            assert line["response"] == answers[word]
            assert (line["cost_usd"], line["attempts"]) == (0, 0)
            assert line["reused_from"]["batch_id"] == first.report["batch_id"]
            assert answers[word] == answers[f"word{line['reused_from']['request_index']}"]
        else:
            assert "reused_from" not in line
            assert line["attempts"] == 1
    report = ended.report
    assert (report["attempts"], report["tokens"]["prompt"]) == (2, 2 * first.report["tokens"]["prompt"] // ROWS)
    assert report["adds_up"]
    usage = run.command("usage").out.split("\t")
    assert usage[3] == str(ROWS + 2)
    run.holds()
    run.forget()
    again = run(None)
    assert not run.asked()
    assert kept(again) == kept(ended)


def test_equal_rows_take_equal_answers_one_to_one_in_order(run: Runs) -> None:
    run([chat_row("toss heads", f"s{row}", temperature=1.0) for row in range(3)])
    ids = [line["response"]["id"] for line in run.lines()]
    assert len(set(ids)) == 3
    run.forget()
    ended = run([chat_row("toss heads", f"s{row}", temperature=1.0) for row in range(5)], "--reuse")
    assert run.asked() == {"toss heads": 2}
    found = [line["response"]["id"] for line in run.lines()]
    assert found[:3] == ids
    assert not set(found[3:]) & set(ids)
    assert kept(ended) == {"reused": 3, "cached": 0, "again": 0, "changed": 0, "new": 2}
    # The third batch may take of both, and finds each answer once, however often it was taken over.
    run.forget()
    run([chat_row("toss heads", f"s{row}", temperature=1.0) for row in range(6)], "--reuse")
    assert run.asked() == {"toss heads": 1}
    assert len({line["response"]["id"] for line in run.lines()}) == 6


def test_what_is_not_the_same_request_is_asked(run: Runs) -> None:
    both = {"custom_id": "d", "method": "POST", "url": "/v1/embeddings", "body": {"model": "m", "input": "say d"}}
    rows = [chat_row("say a", "a"), chat_row("say b", "b"), chat_row("say c", "c"), both]
    run(rows, "--mixed-endpoints")
    run.forget()
    alike = (
        '{"url": "/v1/chat/completions", "method": "POST", "custom_id": "other name", "body": '
        '{"messages": [{"role": "user", "content": "say \\u0061"}],   "model": "m"}}'
    )
    others = [
        alike,
        chat_row("say b", "b", temperature=0),
        chat_row("say c", "c", model="m2"),
        {**both, "url": "/v1/responses"},
    ]
    run(others, "--reuse", "--mixed-endpoints")
    assert sorted(run.asked()) == ["say b", "say c", "say d"]
    assert "reused_from" in run.lines()[0]
    # Elsewhere it is another request, too.
    with ScriptedVendor() as elsewhere:
        there = Runs(run.command, elsewhere)
        there(rows, "--reuse", "--mixed-endpoints")
        assert len(elsewhere.hits) == 4


def test_only_plain_successes_are_taken_over(run: Runs) -> None:
    rows = [
        chat_row("say fine", "0"),
        chat_row("[[finish=length times=1]] say cut", "1"),
        chat_row("[[status=400 code=bad times=1]] say no", "2"),
    ]
    run(rows, code=3)
    assert [line["flags"] for line in run.lines()] == [[], ["truncated"], []]
    run.forget()
    ended = run(rows, "--fresh", "--reuse")
    assert kept(ended) == {"reused": 1, "cached": 0, "again": 2, "changed": 0, "new": 0}
    assert sum(run.asked().values()) == 2
    assert all(line["ok"] and not line["flags"] for line in run.lines())


def test_a_named_batch_and_a_batch_that_is_not_there(run: Runs) -> None:
    first = run([chat_row("say one", "1")], file="a.jsonl").report["batch_id"]
    run.forget()
    ended = run([chat_row("say one", "1"), chat_row("say two", "2")], "--reuse", first[6:14], file="b.jsonl")
    assert kept(ended)["reused"] == 1
    assert run.asked() == {"say two": 1}
    assert "no batch begins with" in run([chat_row("say 3")], "--reuse", "0123456789", file="c.jsonl", code=2).err
    assert "give FILE before --reuse" in run.command("run", "--reuse", "a.jsonl", "-o", "x").err
    # Nothing to take over is no error: the same line serves the first time too.
    ended = run([chat_row("say 4")], "--reuse", file="d.jsonl")
    assert ended.report["reused"] is None


def test_the_cache_gives_answers_of_all_batches_a_line_each(run: Runs) -> None:
    run([chat_row("say x", "1"), chat_row("say y", "2")], file="a.jsonl")
    run([chat_row("say z", "1"), chat_row("say y", "2")], file="b.jsonl")
    run.forget()
    mine = [chat_row(f"say {word}", str(row)) for row, word in enumerate("xyyyz")]
    ended = run(mine, "--cache", file="c.jsonl")
    assert run.asked() == {"say y": 1}
    assert kept(ended) == {"reused": 0, "cached": 4, "again": 0, "changed": 0, "new": 1}
    assert [content(line) for line in run.lines()] == list("xyyyz")
    run.forget()
    run(mine[:1], file="off.jsonl")
    assert run.asked() == {"say x": 1}, "the cache is off by default"


def test_a_table_says_which_answers_were_taken_over(run: Runs) -> None:
    path = run.command.folder / "t.csv"
    path.write_text("id,text\n1,say one\n2,say two\n")
    options = ("-t", "{text}", "-m", "m", "-o", "t.out.csv")
    first = run(None, *options, file="t.csv").report["batch_id"]
    path.write_text("id,text\n1,say one\n2,say three\n")
    run(None, *options, "--reuse", file="t.csv")
    with (run.command.folder / "t.out.csv").open(newline="") as file:
        found = [(row["id"], row["answer"], row["reused_from"], row["cost_usd"]) for row in csv.DictReader(file)]
    assert found[0] == ("1", "one", first, "0")
    assert found[1][:3] == ("2", "three", "")


def test_a_run_that_starts_anew_names_reuse_and_one_that_goes_on_says_that_it_does_not(run: Runs) -> None:
    run([chat_row("say one", "1")])
    assert "--fresh --reuse" in run([chat_row("say two", "1")]).err
    run.vendor.set(key_refused=True)
    run([chat_row("say three", "1")], code=5)
    run.vendor.set(key_refused=False)
    assert "no answers taken over" in run(None, "--reuse").err


@pytest.mark.parametrize(
    "point", ["before create_batch:1", "after add_segments:2", "before close_intake:1", "commit:5"]
)
def test_killed_while_answers_are_taken_over(run: Runs, point: str) -> None:
    """Nothing of it is lost and nothing asked that has an answer: the same command goes on."""
    rows = [chat_row(f"say {'x' * 900}{row} word{row}", f"r{row}") for row in range(6000)]
    run.vendor.keep = False
    run(rows)
    first = {content(line): line["response"]["id"] for line in run.lines()}
    run.forget()
    rows[7:9] = [chat_row("say new7", "r7"), chat_row("say new8", "r8")]
    run.command.write("rows.jsonl", rows)
    program = ("-m", "support.watched_command", str(run.command.folder / "account"), point)
    killed = run.command.start(*run.line("--reuse"), program=program).end()
    assert killed.code == -signal.SIGKILL, killed.err
    ended = run(None, "--reuse")
    assert set(run.asked()) == {"say new7", "say new8"}
    assert kept(ended)["reused"] == len(rows) - 2
    found = {content(line): line["response"]["id"] for line in run.lines()}
    assert {word: found[word] for word in first if word in found} == {
        word: first[word] for word in first if word in found
    }
    assert len(found) == len(rows)
    run.holds()
