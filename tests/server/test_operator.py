"""Whoever owns the state folder is the operator: the commands there see every account's batches, beside `serve`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.command_line import CommandLine
from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, chat, chats, serving

PRICES = '[[price]]\npattern = "m"\ninput = "100"\noutput = "500"\n\n'
ANSWER_PICOUSD = 2_000_000_000
"""10 tokens in, 2 out."""


@dataclass(frozen=True)
class Beside:
    """A service and the commands on its machine."""

    service: RunningService
    command: CommandLine

    def submit(self, key: str, count: int) -> str:
        answer = self.service.client(key).post(f"{BATCH}/submit", json={"requests": chats(count)})
        return str(answer.json()["data"]["batch_id"])


@pytest.fixture
def beside(tmp_path: Path, vendor: ScriptedVendor) -> Iterator[Beside]:
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES)
    with serving(tmp_path, vendor, project=f"prices = '{prices}'\n") as service:
        yield Beside(service, CommandLine(tmp_path))


def test_every_account_s_batches_are_seen_and_may_be_narrowed(beside: Beside) -> None:
    command, bob = beside.command, beside.service.new_key("bob")
    here = beside.service.submit([chat("one")])
    beside.service.ended(here)
    there = beside.submit(bob, 2)
    assert command("watch", there).code == 0, "another account's batch is followed to its end"

    listed = [line.split("\t") for line in command("list").out.splitlines()]
    assert [(line[0], line[-2]) for line in listed] == [(there, "bob"), (here, "local")]
    assert command("list", "--account", "bob").out.split("\t")[0] == there
    assert command("list", "--account", "local").out.split("\t")[0] == here
    assert "There are no batches of the account nobody." in command("list", "--account", "nobody").err

    status = json.loads(command("status", there[6:14], "--json").out)
    assert (status["batch_id"], status["account"], status["ok"]) == (there, "bob", 2)
    assert command("status", there, "--account", "local").code == 2
    assert len(command("rows", "@last").out.splitlines()) == 2
    assert command("export", there, "-o", "out.jsonl").code == 0
    assert len(command.lines()) == 2

    used = [json.loads(line) for line in command("usage", "--by", "account,key", "--json").out.splitlines()]
    assert [(line["account"], line["answers"]) for line in used] == [("bob", 2), ("local", 1)]
    assert all(line["key"].startswith("key_") for line in used)
    only = [json.loads(line) for line in command("usage", "--by", "account", "--account", "bob", "--json").out.split()]
    assert [line["account"] for line in only] == ["bob"]
    none = command("usage", "--account", "nobody", "--since", "2026-01-01")
    assert (none.out, "There is no usage of the account nobody since 2026-01-01." in none.err) == ("", True)

    assert command("delete", there, "--yes").code == 0
    gone = beside.service.client(bob).get(f"{BATCH}/status/{there}")
    assert gone.status_code == 404


def test_what_a_spent_budget_paused_is_resumed_by_the_operator(beside: Beside) -> None:
    bob = beside.service.new_key("bob", budget_picousd=5 * ANSWER_PICOUSD // 2)
    batch_id = beside.submit(bob, 6)
    paused = beside.command("watch", batch_id)
    assert paused.code == 5, paused.err
    status = json.loads(beside.command("status", batch_id, "--json").out)
    key_id = status["key_id"]
    more, resume = f"batchwright keys budget {key_id} USD", f"batchwright resume {batch_id}"
    assert status["pauses"][0]["cause"] == "key_budget"
    assert status["goes_on_with"] == f"{more} && {resume}"
    assert f"Once its key may spend more ({more}), this goes on: {resume}\n" in paused.err
    early = beside.command(*resume.split()[1:], "--no-run")
    assert early.code != 0
    assert more in early.err, "a budget that is still spent holds it back, in the same words"
    assert beside.command("keys", "budget", key_id, "1").code == 0
    resumed = beside.command("resume", batch_id, "--no-run")
    assert resumed.code == 0, resumed.err
    assert beside.command("watch", batch_id).code == 0


def test_at_a_service_the_key_says_whose_batches_are_seen(beside: Beside) -> None:
    refused = beside.command("list", "--account", "bob", "--service", beside.service.base_url)
    assert refused.code == 2
    assert "its key says whose batches are seen" in refused.err


def test_at_a_service_a_pause_has_its_cause_and_a_cap_what_is_taken_of_it(beside: Beside) -> None:
    there = ("--service", beside.service.base_url)
    rows = [chat(f"w{number}", max_tokens=4) for number in range(50)]
    batch_id = beside.service.submit(rows, max_cost_usd=0.02)
    beside.service.until(batch_id, lambda status: status["state"] == "paused")
    command = CommandLine(beside.command.folder / "elsewhere", BATCHWRIGHT_SERVICE_KEY=beside.service.key)
    resume = f"batchwright resume {batch_id} --service {beside.service.base_url} --max-cost 0.04"

    watched = command("watch", batch_id, *there)
    assert watched.code == 5
    assert "Paused (budget): the cap of $0.02 leaves $0." in watched.err
    assert watched.err.rstrip().endswith(f"With a higher cap it goes on: {resume}")
    status = json.loads(command("status", batch_id, "--json", *there).out)
    assert status["goes_on_with"] == resume
    assert (status["pauses"][0]["cause"], status["account"]) == ("budget", None)
    assert status["cost"]["cap_taken_usd"] >= status["cost"]["known_usd"] > 0
    assert "paused_by_budget\t" in command("status", batch_id, *there).out
    assert command("list", *there).out.rstrip("\n").split("\t")[-3:] == ["no", "", "0"], "nobody holds rows of it"
    assert command(*resume.split()[1:]).code in (0, 5)
