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


def created_elsewhere(vendor: SlowBatchVendor, rows: list[dict[str, object]]) -> str:
    """As somebody's own script would have done it."""
    file_id = vendor.add_file("".join(f"{json.dumps(row)}\n" for row in rows).encode(), purpose="batch")
    vendor.create({"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"})
    return next(reversed(vendor.batches))


def test_a_batch_that_was_created_elsewhere_is_taken_over(ready: CommandLine, vendor: SlowBatchVendor) -> None:
    rows = [chat_row(word, f"id-{word}", model="m-small") for word in WORDS]
    ready.write("rows.jsonl", rows)
    batch_id = created_elsewhere(vendor, rows)
    ended = ready("attach", batch_id, "rows.jsonl", "-o", "out.jsonl", SLOW_KEY=KEY)
    check_all(ready, ended)
    assert list(vendor.batches) == [batch_id]
    again = ready("attach", batch_id, "rows.jsonl", "-o", "again.jsonl", SLOW_KEY=KEY)
    assert "is complete; nothing is sent" in again.err


def test_what_a_batch_elsewhere_did_not_bring_can_be_sent_again(ready: CommandLine, vendor: SlowBatchVendor) -> None:
    rows = [chat_row(word, f"id-{word}", model="m-small") for word in WORDS]
    ready.write("rows.jsonl", rows)
    batch_id = created_elsewhere(vendor, rows[:-2])
    ended = ready("attach", batch_id, "rows.jsonl", "-o", "out.jsonl", SLOW_KEY=KEY)
    assert ended.code == 3, ended.err
    assert "missing_from_upstream" in ended.err
    retried = ready("retry", "@last", "-o", "out.jsonl", SLOW_KEY=KEY)
    check_all(ready, retried)
    assert len(vendor.batches) == 2
    assert vendor.done() == dict.fromkeys(WORDS, 1)


def test_rows_without_an_id_cannot_be_attached(ready: CommandLine, vendor: SlowBatchVendor) -> None:
    ended = ready("attach", "batch_1", "rows.jsonl", "-o", "out.jsonl", SLOW_KEY=KEY)
    assert ended.code == 2
    assert "no custom_id" in ended.err
    assert not vendor.calls


def test_a_batch_that_the_vendor_does_not_know(ready: CommandLine, vendor: SlowBatchVendor) -> None:
    ready.write("rows.jsonl", [chat_row(word, f"id-{word}", model="m-small") for word in WORDS])
    ended = ready("attach", "batch_gone", "rows.jsonl", "-o", "out.jsonl", SLOW_KEY=KEY)
    assert ended.code == 4
    assert "knows no batch batch_gone" in ended.err
