"""The commands on batches that are there, with `--service`, against a service of this project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.command_line import CommandLine, Ended, Started, content
from support.scripted_vendor import ScriptedVendor
from support.service import RunningService, chat, serving


@dataclass(frozen=True)
class There:
    machine: CommandLine
    service: RunningService
    vendor: ScriptedVendor

    def __call__(self, *arguments: str) -> Ended:
        return self.start(*arguments).end()

    def start(self, *arguments: str) -> Started:
        return self.machine.start(*arguments, "--service", self.service.base_url)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[There]:
    with ScriptedVendor() as vendor, serving(tmp_path / "service", vendor) as service:
        yield There(CommandLine(tmp_path / "machine", BATCHWRIGHT_SERVICE_KEY=service.key), service, vendor)


ROWS = [
    chat("plain"),
    chat("[[status=400 code=odd times=1]] mended"),
    chat("[[finish=length]] cut"),
    {"custom_id": "label", "method": "POST", "url": "/v1/chat/completions", "body": chat("labelled")},
]


def test_a_retry_that_the_gate_stops_says_so_and_can_do_without(there: There) -> None:
    batch_id = there.service.submit([chat("fine"), *(chat(f"[[status=400 code=no]] {number}") for number in range(30))])
    there.service.ended(batch_id)
    stopped = there("retry", batch_id)
    assert "30 rows in a new round" in stopped.err
    assert "round 1 was stopped by the gate after 25 rows" in stopped.err
    assert "5 rows of it got no new outcome" in stopped.err
    assert "5 rows of it" in there("status", batch_id).out
    sent = len(there.vendor.hits)
    whole = there("retry", batch_id, "--no-gate")
    assert "stopped by the gate" not in whole.err
    assert len(there.vendor.hits) - sent == 30


def test_a_batch_is_seen_exported_retried_and_deleted(there: There) -> None:
    batch_id = there.service.submit(ROWS, metadata={"job": "x"})
    watched = there("watch", batch_id)
    assert watched.code == 3, watched.err
    assert "3 ok (1 truncated), 1 failed of 4" in watched.err
    assert f"batchwright retry {batch_id} --service {there.service.base_url}" in watched.err
    assert f"batchwright export {batch_id} -o FILE --service {there.service.base_url}" in watched.err

    status = json.loads(there("status", batch_id, "--json").out)
    assert (status["state"], status["ok"], status["kinds"]) == ("partial", 3, {"invalid_request": 1})
    assert status["metadata"] == {"job": "x"}
    assert batch_id in there("list").out
    failed = there("rows", batch_id[6:12], "--outcome", "failed", "--json")
    assert [json.loads(line)["request_index"] for line in failed.out.splitlines()] == [1]
    assert there("rows", batch_id, "--custom-id", "label").out.split("\t")[0] == "3"
    assert there("rows", batch_id, "--flag", "truncated", "--json").out.count("\n") == 1

    exported = there("export", "@last", "-o", "out.jsonl")
    assert exported.code == 3, exported.err
    lines = there.machine.lines()
    assert [line["request_index"] for line in lines] == [0, 1, 2, 3]
    assert [line["ok"] for line in lines] == [True, False, True, True]
    assert lines[2]["flags"] == ["truncated"]
    assert lines[3]["custom_id"] == "label"
    assert lines[0]["response"]["choices"]

    used = json.loads(there("usage", "--by", "model", "--json").out)
    assert (used["model"], used["answers"]) == ("m", 3)

    retried = there("retry", batch_id, "-o", "out.jsonl")
    assert retried.code == 0, retried.err
    assert [content(line) for line in there.machine.lines()][1] == "mended"

    assert there("delete", batch_id, "--yes").code == 0
    gone = there("status", batch_id)
    assert gone.code == 2
    assert "no such batch" in gone.err


def test_a_batch_is_cancelled_while_it_runs(there: There) -> None:
    batch_id = there.service.submit([chat("[[hold]] x"), chat("[[hold]] y")])
    there.vendor.wait_for(lambda vendor: len(vendor.hits) == 2)
    watching = there.start("watch", batch_id)
    cancelled = there("cancel", batch_id)
    assert cancelled.code == 0, cancelled.err
    there.vendor.release()
    assert watching.end().code in (0, 4), "the rows that were out may have been answered"


def test_a_pause_is_cleared_and_the_end_is_waited_for(there: There) -> None:
    batch_id = there.service.submit([chat("[[hold]] x")])
    there.vendor.wait_for(lambda vendor: len(vendor.hits) == 1)
    paused = there("pause", batch_id, "--reason", "for lunch")
    assert paused.code == 0, paused.err
    assert f"This goes on: batchwright resume {batch_id} --service" in paused.err
    assert "for lunch" in there("status", batch_id).out
    refused = there("retry", batch_id)
    assert refused.code == 2
    there_too = f"{batch_id} --service {there.service.base_url}"
    assert f"It is paused; `batchwright resume {there_too}` goes on with it" in refused.err
    assert "POST" not in refused.err
    assert there("watch", batch_id).code == 5, "a watcher does not sit in a pause"
    resuming = there.start("resume", batch_id, "-o", "out.jsonl")
    there.service.until(batch_id, lambda status: status["state"] != "paused")
    there.vendor.release()
    resumed = resuming.end()
    assert resumed.code == 0, resumed.err
    assert len(there.machine.lines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("status", "batch_" + "0" * 24), "no such batch"),
        (("status", "zz"), "no batch of this account begins with 'zz'"),
        (("status", "@last"), "has none yet"),
        (("list", "--source", "in.jsonl"), "does not know which file"),
        (("export", "@last", "-o", "x", "--failed", "y"), "does not give the requests back"),
    ],
)
def test_what_cannot_be_is_said(there: There, arguments: tuple[str, ...], said: str) -> None:
    ended = there(*arguments)
    assert ended.code == 2, ended.err
    assert said in ended.err


def test_a_state_that_does_not_allow_it_is_told_with_commands(there: There) -> None:
    batch_id = there.service.submit(ROWS[:1])
    there.service.ended(batch_id)
    for arguments in (("pause", batch_id), ("resume", batch_id), ("priority", batch_id, "5")):
        refused = there(*arguments)
        assert refused.code == 2, refused.err
        assert f"It has ended; `batchwright retry {batch_id} --service {there.service.base_url}` sends" in refused.err


def test_a_key_that_the_service_does_not_know_is_named(there: There) -> None:
    machine = CommandLine(there.machine.folder, BATCHWRIGHT_SERVICE_KEY="wrong", OTHER_KEY="wrong")
    refused = machine("list", "--service", there.service.base_url)
    assert refused.code == 2, refused.err
    assert f"{there.service.base_url} does not take the key in BATCHWRIGHT_SERVICE_KEY: " in refused.err
    other = machine("list", "--service", there.service.base_url, "--service-key-env", "OTHER_KEY")
    assert "the key in OTHER_KEY" in other.err


def test_a_service_that_is_not_there(tmp_path: Path) -> None:
    machine = CommandLine(tmp_path, INFRAI_API_KEY="k")
    ended = machine("list", "--service", "ftp://nowhere")
    assert ended.code == 2
    assert "expected the address of a service" in ended.err
    assert not machine.state.exists(), "nothing is opened here for it"
