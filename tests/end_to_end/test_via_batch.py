"""Rows through a vendor's own batch API, by the real command over real HTTP: slower, and nothing is paid twice."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from support.command_line import CommandLine, Ended, Started, chat_row
from support.slow_batch_vendor import KEY, SlowBatchVendor

ROWS = 300
WORDS = [f"w{row}" for row in range(ROWS)]
RUN = ("run", "rows.jsonl", "-o", "out.jsonl")


@pytest.fixture
def vendor() -> Iterator[SlowBatchVendor]:
    with SlowBatchVendor() as vendor:
        yield vendor


@pytest.fixture
def ready(command: CommandLine, vendor: SlowBatchVendor) -> CommandLine:
    (command.folder / "prices.toml").write_text(
        '[[price]]\nvendor = "slow"\npattern = "*"\ninput = "10"\noutput = "20"\nbatch_factor = "0.5"\n'
    )
    command.write("rows.jsonl", [chat_row(word, model="m-small") for word in WORDS])
    user_file = command.folder / "config" / "batchwright" / "config.toml"
    user_file.parent.mkdir(parents=True)
    user_file.write_text(
        f'prices = "{command.folder / "prices.toml"}"\n'
        f'[vendors.slow]\nbase_url = "{vendor.base_url}"\napi_key_env = "SLOW_KEY"\nprofile = "openai"\n'
    )
    return command


def run(command: CommandLine, *more: str) -> Ended:
    return command(*RUN, *more, SLOW_KEY=KEY)


def start(command: CommandLine, *more: str) -> Started:
    return command.start(*RUN, *more, SLOW_KEY=KEY)


def check_all(command: CommandLine, ended: Ended) -> list[dict[str, object]]:
    assert ended.code == 0, ended.err
    lines = command.lines()
    assert [line["result"]["content"] for line in lines] == WORDS
    return lines


def test_rows_go_as_one_batch_at_its_price(ready: CommandLine, vendor: SlowBatchVendor) -> None:
    ended = run(ready, "--via", "batch")
    lines = check_all(ready, ended)
    assert len(vendor.batches) == 1
    assert vendor.batched == dict.fromkeys(WORDS, 1)
    assert not vendor.live
    assert {line["vendor"] for line in lines} == {"slow-batch"}
    assert {line["cost_usd"] for line in lines} == {(7 * 10 + 2 * 20) / 2 / 10**6}, "half of the live price"
    assert f"{ROWS} rows are at slow-batch as batch_" in ended.err


def test_a_killed_run_s_batch_is_not_created_twice(ready: CommandLine, vendor: SlowBatchVendor) -> None:
    vendor.rows_per_s = 0
    killed = start(ready, "--via", "batch")
    killed.wait_for("rows are at slow-batch as")
    killed.kill()
    killed.end()
    vendor.rows_per_s = 10_000
    ended = run(ready, "--via", "batch")
    check_all(ready, ended)
    assert len(vendor.batches) == 1
    assert vendor.done() == dict.fromkeys(WORDS, 1)
    assert "double" not in ended.err


def test_an_interrupted_run_leaves_its_rows_there(ready: CommandLine, vendor: SlowBatchVendor) -> None:
    vendor.rows_per_s = 0
    running = start(ready, "--via", "batch")
    running.wait_for("rows are at slow-batch as")
    running.interrupt()
    assert running.end().code == 130
    assert [batch["status"] for batch in vendor.batches.values()] == ["in_progress"]
    vendor.rows_per_s = 10_000
    check_all(ready, run(ready, "--via", "batch"))
    assert len(vendor.batches) == 1
    assert vendor.done() == dict.fromkeys(WORDS, 1)


def test_what_is_not_back_in_time_goes_live(ready: CommandLine, vendor: SlowBatchVendor) -> None:
    vendor.rows_per_s = 15
    ended = run(ready, "--via", "auto", "--deadline", "18s")
    lines = check_all(ready, ended)
    assert vendor.done() == dict.fromkeys(WORDS, 1)
    ways = [line["vendor"] for line in lines]
    assert ways.count("slow-batch") == len(vendor.batched) > 0
    assert ways.count("slow") == len(vendor.live) > 0
    split = f"answered by: slow {len(vendor.live)} rows, $"
    assert split in ended.err, ended.err
    assert f"; slow-batch {len(vendor.batched)} rows, $" in ended.err
    usage = {line["vendor"]: line for line in map(json.loads, ready("usage", "--json").out.splitlines())}
    assert usage["slow-batch"]["answers"] == len(vendor.batched)
    assert usage["slow"]["answers"] == len(vendor.live)


def test_a_cancel_ends_it_there_too(ready: CommandLine, vendor: SlowBatchVendor) -> None:
    vendor.rows_per_s = 0
    running = start(ready, "--via", "batch")
    running.wait_for("rows are at slow-batch as")
    assert ready("cancel", "@last").code == 0
    assert running.end().code == 4
    assert [batch["status"] for batch in vendor.batches.values()] == ["cancelled"]


def test_it_is_refused_where_it_would_do_nothing(ready: CommandLine) -> None:
    simulated = ready(*RUN, "--via", "batch", "--simulate")
    assert simulated.code == 2
    assert "--simulate sends nothing" in simulated.err
    unknown = ready(*RUN, "--via", "batch", "--base-url", "http://127.0.0.1:9/v1", "--api-key-env", "")
    assert unknown.code == 2
    assert "no batch API of 127.0.0.1:9 is known" in unknown.err
    assert 'profile = "openai"' in unknown.err
