"""A run whose key was the wrong one goes on with another: the key is no part of what makes a batch."""

from __future__ import annotations

import pytest

from support.command_line import CommandLine, Ended, chat_row
from support.scripted_vendor import ScriptedVendor
from support.service import chats
from support.service_process import ServiceProcess

KEYS = {"K1": "sk-wrong", "K2": "sk-right"}
ROWS = 30


def bearers(vendor: ScriptedVendor, since: int = 0) -> set[str]:
    return {hit.headers.get("authorization", "") for hit in vendor.hits[since:]}


def write_rows(command: CommandLine) -> None:
    command.write("rows.jsonl", [chat_row(f"w{row}") for row in range(ROWS)])


def run(command: CommandLine, vendor: ScriptedVendor, *more: str, **variables: str) -> Ended:
    return command("run", "rows.jsonl", "-o", "out.jsonl", "--base-url", vendor.base_url, *more, **variables)


def refused_first(command: CommandLine, vendor: ScriptedVendor, *more: str, **variables: str) -> int:
    """Returns how many requests the vendor had refused."""
    write_rows(command)
    vendor.set(key_refused=True)
    paused = run(command, vendor, *more, **variables)
    assert paused.code == 5, paused.err
    vendor.set(key_refused=False)
    return len(vendor.hits)


def check_all(command: CommandLine, ended: Ended) -> None:
    assert ended.code == 0, ended.err
    assert [line["result"]["content"] for line in command.lines()] == [f"w{row}" for row in range(ROWS)]
    assert len(command("list", "--json").out.splitlines()) == 1, "it is the same batch"


def test_another_variable_on_the_same_command(command: CommandLine, vendor: ScriptedVendor) -> None:
    refused = refused_first(command, vendor, "--api-key-env", "K1", **KEYS)
    assert bearers(vendor) == {"Bearer sk-wrong"}
    ended = run(command, vendor, "--api-key-env", "K2", K2="sk-right")  # the first is not even set any more
    check_all(command, ended)
    assert bearers(vendor, refused) == {"Bearer sk-right"}
    assert "with the key in K2 now (before: the key in K1)" in ended.err


def test_a_key_that_was_not_there_at_first(command: CommandLine, vendor: ScriptedVendor) -> None:
    refused = refused_first(command, vendor)
    assert bearers(vendor) == {""}
    ended = run(command, vendor, OPENAI_API_KEY="sk-right")
    check_all(command, ended)
    assert bearers(vendor, refused) == {"Bearer sk-right"}


def named(command: CommandLine, vendor: ScriptedVendor, key_env: str) -> None:
    config = command.folder / "config" / "batchwright" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"[vendors.house]\nbase_url = '{vendor.base_url}'\napi_key_env = '{key_env}'\n")


@pytest.mark.parametrize("verb", ["run", "resume"])
def test_a_named_vendors_other_variable(command: CommandLine, vendor: ScriptedVendor, verb: str) -> None:
    write_rows(command)
    named(command, vendor, "K1")
    vendor.set(key_refused=True)
    assert command("run", "rows.jsonl", "-o", "out.jsonl", **KEYS).code == 5
    vendor.set(key_refused=False)
    refused = len(vendor.hits)
    named(command, vendor, "K2")
    words = ("run", "rows.jsonl") if verb == "run" else ("resume", "@last")
    check_all(command, command(*words, "-o", "out.jsonl", **KEYS))
    assert bearers(vendor, refused) == {"Bearer sk-right"}


def test_a_new_round_goes_by_the_key_of_now(command: CommandLine, vendor: ScriptedVendor) -> None:
    command.write("rows.jsonl", [chat_row("[[status=400]] w0"), *(chat_row(f"w{row}") for row in range(1, ROWS))])
    named(command, vendor, "K1")
    assert command("run", "rows.jsonl", "-o", "out.jsonl", **KEYS).code == 3
    sent = len(vendor.hits)
    named(command, vendor, "K2")
    retried = command("retry", "@last", "-o", "out.jsonl", **KEYS)
    assert retried.code == 3, retried.err
    assert bearers(vendor, sent) == {"Bearer sk-right"}
    assert "Its rows go to house with the key in K2 now (before: the key in K1)." in retried.err


def test_another_address_is_another_run(command: CommandLine, vendor: ScriptedVendor) -> None:
    """Only the key may be another: rows never leave for a place that they were not submitted for."""
    refused_first(command, vendor, "--api-key-env", "K1", **KEYS)
    with ScriptedVendor() as other:
        ended = run(command, other, "--api-key-env", "K2", **KEYS)
        assert ended.code == 0, ended.err
        assert bearers(other) == {"Bearer sk-right"}
    assert bearers(vendor) == {"Bearer sk-wrong"}


def test_rows_that_need_a_key_which_is_not_set_are_not_taken_in(command: CommandLine, vendor: ScriptedVendor) -> None:
    write_rows(command)
    named(command, vendor, "K1")
    refused = command("run", "rows.jsonl", "-o", "out.jsonl")
    assert refused.code == 2, refused.err
    assert f"The variable K1 with the key for house is not set here, and {ROWS} rows go there." in refused.err
    assert (command("list").out, vendor.hits) == ("", [])
    check_all(command, command("run", "rows.jsonl", "-o", "out.jsonl", **KEYS))


def test_a_service_that_simulates_sends_nothing_for_batches_that_were_there(
    command: CommandLine, vendor: ScriptedVendor
) -> None:
    """A run that was broken off is gone on with by whoever works on all batches, but not by make-believe."""
    write_rows(command)
    vendor.set(hold=True)
    run_ = command.start("run", "rows.jsonl", "-o", "out.jsonl", "--base-url", vendor.base_url)
    run_.until(vendor, lambda vendor: vendor.in_flight > 0)
    run_.kill()
    run_.end()
    sent = len(vendor.hits)
    vendor.set(hold=False)
    with ServiceProcess(command) as service:
        service.running.wait_for("What goes to real vendors is left alone (--simulate).")
        service.running.wait_for("this process simulates and sends nothing to")
        assert service.ended(service.submit(chats(3)))["completed_count"] == 3
        assert len(vendor.hits) == sent
    ended = run(command, vendor)
    assert (ended.code, "Going on with batch_" in ended.err) == (0, True), ended.err
    assert len(vendor.hits) == sent + ROWS


def test_the_gate_may_be_switched_off_once_it_has_shut(command: CommandLine, vendor: ScriptedVendor) -> None:
    command.write("rows.jsonl", [chat_row(f"[[status=400]] w{row}") for row in range(ROWS)])
    shut = run(command, vendor)
    assert shut.code == 5, shut.err
    ended = run(command, vendor, "--no-gate")
    assert ended.code == 4, ended.err
    assert "Its first rows are judged no more (--no-gate)." in ended.err
    assert len(vendor.hits) == ROWS
