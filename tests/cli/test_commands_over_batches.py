"""The reading and steering commands over batches that stand in every way; data on stdout, words on stderr."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from batchwright.cli import screen
from batchwright.cli.rows import wanted_bytes
from batchwright.cli.status_view import status_facts
from batchwright.core import row_map
from batchwright.core.batch_state import PauseCause
from batchwright.core.errors import UsageError
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import UsageKey, UsageSum
from batchwright.core.tenants import Tenant
from batchwright.ports.stored import Share
from support.batch_samples import ok, status_of
from support.cli_machine import Invoke, Machine

MIXED = (Flag.PLAIN, Flag.TRUNCATED, FailureKind.TIMEOUT, FailureKind.AUTH, FailureKind.CANCELLED, None)
FIRST, SECOND = "batch_aa00", "batch_bb00"


@pytest.fixture
def mixed(machine: Machine) -> Machine:
    asyncio.run(machine.add(FIRST, *MIXED))
    asyncio.run(machine.add(SECOND, Flag.PLAIN, Flag.PLAIN))
    return machine


def test_list_is_newest_first_and_plain_in_a_pipe(mixed: Machine, invoke: Invoke) -> None:
    result = invoke("list")
    assert result.exit_code == 0
    first, second = (line.split("\t") for line in result.stdout.splitlines())
    assert first[:8] == [SECOND, "completed", "2", "0", "0", "0", "2", "0.004"]
    assert second[:7] == [FIRST, "running", "2", "2", "1", "1", "6"]
    assert result.stderr == ""
    shorter = invoke("list", "--json", "--limit", "1")
    assert [json.loads(line)["batch_id"] for line in shorter.stdout.splitlines()] == [SECOND]
    assert shorter.stderr == "There are more than the newest 1; older ones: --limit 10.\n"


def test_a_priority_and_a_share_are_shown_where_there_is_one(
    mixed: Machine, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = dict(line.split("\t") for line in invoke("status", "aa").stdout.splitlines())
    assert not {"priority", "account_weight", "account_in_flight"} & facts.keys()
    assert [line.split("\t")[-1] for line in invoke("list").stdout.splitlines()] == ["0", "0"]
    mixed.batches[FIRST].share = Share(account="local", weight=50, in_flight=4)
    assert invoke("priority", "aa", "-3").exit_code == 0
    facts = dict(line.split("\t") for line in invoke("status", "aa").stdout.splitlines())
    assert (facts["priority"], facts["account_weight"], facts["account_in_flight"]) == ("-3", "0.5", "4")
    read = json.loads(invoke("status", "aa", "--json").stdout)
    assert (read["priority"], read["share"]) == (-3, {"weight": 0.5, "in_flight": 4})
    assert [line.split("\t")[-1] for line in invoke("list").stdout.splitlines()] == ["0", "-3"]
    monkeypatch.setattr(screen, "is_table", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    assert "PRIORITY" in invoke("list").stdout
    invoke("priority", "aa", "0")
    assert "PRIORITY" not in invoke("list").stdout


def test_an_empty_list_says_so_on_stderr(machine: Machine, invoke: Invoke) -> None:
    result = invoke("list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "There are no batches." in result.stderr


def test_status_as_facts_and_as_json(mixed: Machine, invoke: Invoke) -> None:
    mixed.hold(FIRST, PauseCause.LANE, "the key was refused")
    facts = dict(line.split("\t") for line in invoke("status", "aa").stdout.splitlines())
    assert (facts["state"], facts["ok"], facts["failed"], facts["cancelled"], facts["open"]) == (
        "paused",
        "2",
        "2",
        "1",
        "1",
    )
    assert (facts["of_these_truncated"], facts["of_these_timeout"]) == ("1", "1")
    assert facts["paused_by_lane"] == "the key was refused"
    read = json.loads(invoke("status", "aa", "--json").stdout)
    assert read["ok"] + read["failed"] + read["cancelled"] + read["expired"] + read["stopped"] + read["open"] == 6
    assert read["flags"] == {"truncated": 1}
    assert read["kinds"] == {"timeout": 1, "auth": 1, "cancelled": 1}
    assert read["cost"] == {
        "known_usd": 0.004,
        "complete": False,
        "answers_without_price": 3,
        "answers_without_usage": 0,
        "orphan_usd": 0,
        "cap_usd": None,
        "cap_taken_usd": None,
        "soft_cap": False,
    }
    assert read["pauses"][0]["cause"] == "lane"


def test_status_is_of_the_newest_unless_told(mixed: Machine, invoke: Invoke) -> None:
    assert invoke("status").stdout.startswith(f"batch\t{SECOND}\n")
    unknown = invoke("status", "zz")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert "there is no batch 'zz'" in unknown.stderr


def row_numbers(output: str) -> list[int]:
    return [int(line.split("\t")[0]) for line in output.splitlines()]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], [0, 1, 2, 3, 4, 5]),
        (["--outcome", "ok"], [0, 1]),
        (["--outcome", "failed"], [2, 3]),
        (["--outcome", "failed", "--outcome", "open"], [2, 3, 5]),
        (["--outcome", "cancelled"], [4]),
        (["--kind", "timeout", "--kind", "auth"], [2, 3]),
        (["--kind", "timeout", "--flag", "truncated"], [1, 2]),
        (["--outcome", "ok", "--flag", "truncated"], [1]),
        (["--custom-id", "c3"], [3]),
        (["--custom-id", "c3", "--outcome", "ok"], []),
        (["--start", "4"], [4, 5]),
        (["--limit", "2"], [0, 1]),
        (["--start", "1", "--limit", "4"], [1, 2, 3, 4]),
        (["--limit", "0"], [0, 1, 2, 3, 4, 5]),
    ],
)
def test_rows_filtered_and_paged(mixed: Machine, invoke: Invoke, filters: list[str], expected: list[int]) -> None:
    result = invoke("rows", "aa", *filters)
    assert result.exit_code == 0
    assert row_numbers(result.stdout) == expected
    read = [json.loads(line) for line in invoke("rows", "aa", *filters, "--json").stdout.splitlines()]
    assert [one["request_index"] for one in read] == expected


def test_rows_show_answer_or_error_and_never_steer_the_terminal(mixed: Machine, invoke: Invoke) -> None:
    lines = [line.split("\t") for line in invoke("rows", "aa").stdout.splitlines()]
    assert lines[0] == ["0", "c0", "ok", "1", "0.002", "answer 0", ""]
    assert lines[1][2] == "ok, truncated"
    assert lines[2] == ["2", "c2", "timeout", "2", "", "said \ufffd[31mno", ""]
    assert lines[5] == ["5", "c5", "pending", "0", "0", "", ""]


def test_filters_that_no_row_can_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="no row can be ok and timeout"):
        wanted_bytes(["ok"], ["timeout"], [])
    assert wanted_bytes([], [], []) is None
    every = wanted_bytes(["ok", "failed", "cancelled", "expired", "stopped", "open"], [], [])
    assert every == row_map.END_BYTES | {row_map.PENDING, row_map.RESERVED}


def test_a_table_on_a_terminal(mixed: Machine, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "is_table", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    lines = invoke("rows", "aa").stdout.splitlines()
    assert lines[0].split() == ["ROW", "CUSTOM", "ID", "OUTCOME", "SENT", "COST", "ANSWER"]
    assert len(lines) == 7
    assert all(len(line) <= 60 for line in lines)
    assert invoke("status", "aa").stdout.splitlines()[0] == f"batch                  {FIRST}"


@pytest.mark.parametrize("priority", ["10", "-10", "0"])
def test_priority(mixed: Machine, invoke: Invoke, priority: str) -> None:
    result = invoke("priority", FIRST, priority)
    assert result.exit_code == 0
    assert result.stderr == f"{FIRST}: priority {priority}.\n"
    assert mixed.batches[FIRST].priority == int(priority)


@pytest.mark.parametrize(("given", "said"), [("101", "-100<=x<=100"), ("high", "not a valid integer")])
def test_a_priority_out_of_bounds_is_refused(mixed: Machine, invoke: Invoke, given: str, said: str) -> None:
    result = invoke("priority", FIRST, given)
    assert (result.exit_code, said in result.stderr) == (2, True)
    assert not any(batch.priority for batch in mixed.batches.values())


def test_cancel(mixed: Machine, invoke: Invoke) -> None:
    result = invoke("cancel", FIRST)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"cancelled, 2 answers kept. This writes them: batchwright export {FIRST} -o FILE" in result.stderr
    assert mixed.batches[FIRST].open_rows() == []


def test_retry_chooses_by_kind_and_flag_then_goes_on(mixed: Machine, invoke: Invoke) -> None:
    mixed.batches[FIRST].close(FailureKind.CANCELLED)
    result = invoke("retry", "aa", "--kind", "timeout", "--flag", "truncated", "-o", "answers.jsonl", "-c", "9")
    assert result.exit_code == 0
    assert "2 rows in a new round" in result.stderr
    assert mixed.batches[FIRST].open_rows() == [1, 2]
    ((name, asked),) = mixed.asked
    assert (name, asked["arguments"]) == ("go_on", (FIRST,))
    assert (str(asked["delivery"].output), asked["delivery"].nothing) == ("answers.jsonl", False)
    assert asked["delivery"].command[:3] == ("batchwright", "retry", "aa")
    assert asked["pace"].concurrency == 9


def test_retry_may_leave_the_sending_to_others(mixed: Machine, invoke: Invoke) -> None:
    mixed.batches[FIRST].close(FailureKind.CANCELLED)
    assert invoke("retry", "aa", "--no-run").exit_code == 0
    assert mixed.asked == []
    assert mixed.batches[FIRST].open_rows() == [2, 3, 4, 5]
    running = invoke("retry", "aa", "--no-run")
    assert running.exit_code == 0
    assert "round 1 has begun already and has 4 open rows." in running.stderr, "it is not refused"
    assert invoke("retry", "aa", "-o", "answers.jsonl").exit_code == 0
    assert mixed.asked[-1][0] == "go_on", "the same command finishes the round that is there"
    assert mixed.batches[FIRST].round == 1


def test_pause_holds_a_batch_and_says_how_to_go_on(mixed: Machine, invoke: Invoke) -> None:
    paused = invoke("pause", "aa", "--reason", "wrong prompt?")
    assert (paused.exit_code, paused.stderr) == (
        0,
        f"{FIRST}: paused. This goes on: batchwright resume {FIRST}\n",
    )
    assert "wrong prompt?" in invoke("status", "aa").stdout
    assert invoke("pause", "aa", "--reason", " ").exit_code == 2
    assert invoke("resume", "aa", "--no-run").exit_code == 0
    assert "paused" not in invoke("status", "aa").stdout


def test_resume_clears_pauses_and_sets_a_cap(mixed: Machine, invoke: Invoke) -> None:
    mixed.hold(FIRST, PauseCause.BUDGET, "the cap is reached")
    assert invoke("resume", "aa", "--max-cost", "20").exit_code == 0
    assert mixed.batches[FIRST].pauses == []
    assert mixed.batches[FIRST].spec.max_cost_picousd == 20 * 10**12
    assert mixed.asked[0][1]["delivery"].nothing
    assert "expected an amount" in invoke("resume", "aa", "--max-cost", "much").stderr


def test_export_and_watch_hand_on_where_and_how(mixed: Machine, invoke: Invoke) -> None:
    assert invoke("export", "aa", "-o", "out.csv", "--failed", "failed.jsonl", "--strict").exit_code == 0
    assert invoke("watch").exit_code == 0
    (name, exported), (other, watched) = mixed.asked
    assert (name, exported["arguments"], other, watched["arguments"]) == ("export", (FIRST,), "look_on", (SECOND,))
    delivery = exported["delivery"]
    assert (str(delivery.output), str(delivery.failed_output), delivery.strict) == ("out.csv", "failed.jsonl", True)
    assert watched["delivery"].nothing


def test_work_hands_on_its_end(mixed: Machine, invoke: Invoke) -> None:
    assert invoke("work", "--until-idle").exit_code == 0
    assert mixed.asked[0][0] == "work"
    assert mixed.asked[0][1]["until_idle"] is True


@pytest.fixture
def used(machine: Machine) -> Machine:
    def key(day: str, model: str) -> UsageKey:
        return UsageKey(day=day, account="K", model=model, vendor="v")

    machine.used = [
        (key("2026-03-02", "m"), UsageSum(answers=2, prompt_tokens=10, completion_tokens=3, cost_picousd=10**12)),
        (key("2026-03-01", "m"), UsageSum(answers=1, prompt_tokens=5, completion_tokens=1, unpriced=1)),
        (key("2026-03-02", "n"), UsageSum(answers=4, cost_picousd=5 * 10**11)),
    ]
    return machine


@pytest.mark.parametrize(("terminal", "words"), [(True, "(none named)"), (False, "\t")])
def test_answers_to_rows_without_a_model_are_told_so_on_a_terminal(
    machine: Machine, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, terminal: bool, words: str
) -> None:
    machine.used = [(UsageKey(day="2026-03-01", vendor="v", account="", model=""), UsageSum(answers=1))]
    monkeypatch.setattr(screen, "is_table", lambda: terminal)
    shown = invoke("usage", "--by", "model").stdout.splitlines()[-1]
    assert shown.startswith(words)


def test_usage_is_summed_by_what_was_asked(used: Machine, invoke: Invoke) -> None:
    assert [line.split("\t") for line in invoke("usage").stdout.splitlines()] == [
        ["2026-03-01", "v", "m", "1", "5", "0", "1", "", "incomplete"],
        ["2026-03-02", "v", "m", "2", "10", "0", "3", "1", ""],
        ["2026-03-02", "v", "n", "4", "0", "0", "0", "0.5", ""],
    ]
    by_model = [json.loads(line) for line in invoke("usage", "--by", "model", "--json").stdout.splitlines()]
    assert [(one["model"], one["answers"], one["cost"]["known_usd"], one["cost"]["complete"]) for one in by_model] == [
        ("m", 3, 1, False),
        ("n", 4, 0.5, True),
    ]
    assert len(invoke("usage", "--since", "2026-03-02").stdout.splitlines()) == 2
    wrong = invoke("usage", "--by", "modle")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    for day in ("yesterday", "01.03.2026", "2026-13-01", ""):
        wrong = invoke("usage", "--since", day)
        assert (wrong.exit_code, wrong.stdout) == (2, "")
        assert f"expected a date such as 2026-03-01, found {day!r}" in wrong.stderr


def test_what_was_made_up_is_not_summed_with_real_answers(
    machine: Machine, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.used = [
        (UsageKey(day="2026-03-01", account="", model="smollm2", vendor=vendor), UsageSum(answers=answers))
        for vendor, answers in (("local", 3), ("simulated", 40))
    ]
    told = [json.loads(line) for line in invoke("usage", "--by", "model", "--json").stdout.splitlines()]
    assert [(one["model"], one["answers"], one["simulated"]) for one in told] == [
        ("smollm2", 3, False),
        ("smollm2", 40, True),
    ]
    assert [line.split("\t")[-1] for line in invoke("usage", "--by", "day").stdout.splitlines()] == ["", "simulated"]
    monkeypatch.setattr(screen, "is_table", lambda: True)
    _, real, simulated = invoke("usage", "--by", "model").stdout.splitlines()
    assert (real.endswith("$0"), simulated.endswith("$0 simulated")) == (True, True)


@pytest.mark.parametrize("command", ["list", "status", "rows", "watch", "usage", "cancel @last", "work --until-idle"])
def test_batches_that_are_there_need_no_key_of_a_default_vendor(
    mixed: Machine, invoke: Invoke, tmp_path: Path, command: str
) -> None:
    vendor = 'vendor = "corp"\n[vendors.corp]\nbase_url = "https://corp.example/v1"\napi_key_env = "CORP_KEY"\n'
    (tmp_path / "batchwright.toml").write_text(vendor)
    asyncio.run(mixed.add("batch_cc00", None))
    assert invoke(*command.split()).exit_code == 0
    (tmp_path / "rows.jsonl").write_text('{"messages":[{"role":"user","content":"x"}]}\n')
    refused = invoke("run", "rows.jsonl", "-o", "answers.jsonl")
    assert (refused.exit_code, "CORP_KEY" in refused.stderr) == (2, True)


@pytest.mark.parametrize(("account", "told"), [("local", False), ("", True), ("team", True)])
def test_a_deadline_that_a_service_may_have_given_is_told_as_such(account: str, told: bool) -> None:
    status = replace(status_of({ok(): 1}, total=2), deadline_ms=1_767_225_600_000, tenant=Tenant(account))
    cell = dict(status_facts(status))["deadline_at"]
    assert cell.raw == "2026-01-01T00:00:00Z"
    assert ("24 hours where nothing else is asked for" in cell.shown) is told
