"""Rows of a route through real processes and two vendors: what the first cannot take, the second answers."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from support.command_line import CommandLine, chat_row, content
from support.scripted_vendor import ScriptedVendor
from support.service import chats
from support.service_process import ServiceProcess

ROWS = 60
RUN = ("run", "rows.jsonl", "-o", "out.jsonl", "--failed", "failed.jsonl", "--progress", "plain")
KEY = {"NORTH_KEY": "sk-north"}

PAIR = tuple[ScriptedVendor, ScriptedVendor]


@pytest.fixture
def pair() -> Iterator[PAIR]:
    with ScriptedVendor() as north, ScriptedVendor() as south:
        yield north, south


def write_project(command: CommandLine, pair: PAIR, *, weights: str = "", south: str = "") -> None:
    north, other = pair
    (command.folder / "batchwright.toml").write_text(
        f"[vendors.north]\nbase_url = '{north.base_url}'\n"
        f"[vendors.south]\nbase_url = '{other.base_url}'\n{south}"
        f"[routes.fast]\nto = ['north/large', 'south/small']\n{weights}"
    )


def write_rows(command: CommandLine, count: int = ROWS) -> None:
    command.write("rows.jsonl", [chat_row(f"w{row}", f"id-{row}", model="fast") for row in range(count)])


def answers(command: CommandLine, count: int = ROWS) -> list[dict[str, Any]]:
    """One line a row, in order, each its own answer, from the vendor and the model that the line names."""
    lines = command.lines()
    assert [line["request_index"] for line in lines] == list(range(count))
    assert [content(line) for line in lines] == [f"w{row}" for row in range(count)]
    models = {"north": "large", "south": "small"}
    assert all(line["result"]["model"] == models[line["vendor"]] for line in lines)
    return lines


def asked_for(vendor: ScriptedVendor) -> set[str]:
    return {json.loads(hit.body)["model"] for hit in vendor.hits}


@pytest.mark.parametrize(
    ("mode", "met"),
    [
        ("refuse", "north: unreachable"),
        ("overloaded", "north: overloaded 503"),
        ("quota_empty", "north: quota_exhausted 429"),
        ("key_refused", "north: auth 401"),
    ],
)
def test_the_second_vendor_answers_what_the_first_cannot(command: CommandLine, pair: PAIR, mode: str, met: str) -> None:
    north, south = pair
    north.set(**{mode: True})
    write_project(command, pair)
    write_rows(command)
    ended = command(*RUN)
    assert ended.code == 0, ended.err
    lines = answers(command)
    assert {line["vendor"] for line in lines} == {"south"}
    assert asked_for(south) == {"small"}
    assert len(south.hits) == ROWS, "none was answered twice"
    told = [line["attempts_met"] for line in lines if "attempts_met" in line]
    assert told
    assert all(entry.startswith(met) for entries in told for entry in entries)
    cells = [line.split("\t")[-1] for line in command("rows", "--limit", "0").out.splitlines()]
    assert cells == ["; ".join(line.get("attempts_met", ())) for line in lines]
    shown = command("rows", "--limit", "0", "--json")
    assert shown.out.splitlines() == (command.folder / "out.jsonl").read_text().splitlines()


def test_rows_begin_where_the_weights_say_and_always_at_the_same(command: CommandLine, pair: PAIR) -> None:
    write_project(command, pair, weights="weights = [3, 1]\n")
    write_rows(command)
    first = command(*RUN)
    assert first.code == 0, first.err
    vendors = [line["vendor"] for line in answers(command)]
    assert Counter(vendors)["south"] == pytest.approx(ROWS / 4, abs=2)
    again = command(*RUN, "--fresh")
    assert again.code == 0, again.err
    assert [line["vendor"] for line in answers(command)] == vendors


def test_a_vendor_that_is_well_again_gets_rows_again(command: CommandLine, pair: PAIR) -> None:
    north, south = pair
    north.set(overloaded=True)
    write_project(command, pair)
    write_rows(command, 200)
    running = command.start(*RUN, "-c", "4", "--max-attempts", "100")
    running.until(south, lambda vendor: len(vendor.hits) >= 20)
    south.set(hold=True)
    north.set(overloaded=False)
    running.until(north, lambda vendor: sum(hit.outcome == "200" for hit in vendor.hits) >= 20)
    south.set(hold=False)
    ended = running.end()
    assert ended.code == 0, ended.err
    assert {line["vendor"] for line in answers(command, 200)} == {"north", "south"}


def test_the_second_vendors_limits_hold_for_what_is_sent_on(command: CommandLine, pair: PAIR) -> None:
    north, south = pair
    north.set(refuse=True)
    write_project(command, pair, south="rpm = 300\nconcurrency = 2\n")
    south.set(latency_s=0.02)
    write_rows(command, 15)
    ended = command(*RUN)
    assert ended.code == 0, ended.err
    answers(command, 15)
    assert south.peak <= 2
    lasted_s = south.hits[-1].at - south.hits[0].at
    assert len(south.hits) <= 5 * lasted_s + 6, f"more than 300 a minute: {len(south.hits)} in {lasted_s} s"


@pytest.mark.parametrize("mode", ["refuse", "overloaded"])
def test_killed_on_the_way_and_gone_on_with(command: CommandLine, pair: PAIR, mode: str) -> None:
    north, south = pair
    north.set(**{mode: True})
    south.set(latency_s=0.05)
    write_project(command, pair)
    write_rows(command, 200)
    for hits in (20, 60):
        running = command.start(*RUN, "-c", "8")
        running.until(south, lambda vendor, hits=hits: len(vendor.hits) >= hits)  # type: ignore[misc]
        running.kill()
        assert running.end().code == -signal.SIGKILL
    ended = command(*RUN, "-c", "8")
    assert ended.code == 0, ended.err
    assert {line["vendor"] for line in answers(command, 200)} == {"south"}
    twice = sum(times - 1 for times in Counter(south.texts()).values())
    assert twice <= 2 * (8 + 16), "more than was out, or answered since the last checkpoint"


def test_a_row_that_fails_everywhere_ends_as_the_last_failed_and_is_written_as_it_came(
    command: CommandLine, pair: PAIR
) -> None:
    write_project(command, pair)
    command.write("rows.jsonl", [chat_row("[[status=503]] w", "a", model="fast"), chat_row("w1", "b", model="fast")])
    ended = command(*RUN, "--max-attempts", "4")
    assert ended.code == 3, ended.err
    failed, answered = command.lines()
    assert (failed["ok"], failed["error"]["code"], failed["attempts"]) == (False, "VENDOR_OVERLOADED", 4)
    assert {entry.split(" (")[0] for entry in failed["attempts_met"]} == {
        "north: overloaded 503",
        "south: overloaded 503",
    }
    assert content(answered) == "w1"
    (again,) = command.lines("failed.jsonl")
    assert (again["custom_id"], again["body"]["model"]) == ("a", "fast")


def test_a_vendor_without_its_key_is_passed_over(command: CommandLine, pair: PAIR) -> None:
    north, south = pair
    user = command.folder / "config" / "batchwright" / "config.toml"
    user.parent.mkdir(parents=True)
    user.write_text(
        f"[vendors.north]\nbase_url = '{north.base_url}'\napi_key_env = 'NORTH_KEY'\n"
        f"[vendors.south]\nbase_url = '{south.base_url}'\n[routes.fast]\nto = ['north/large', 'south/small']\n"
    )
    write_rows(command, 10)
    ended = command(*RUN)
    assert ended.code == 0, ended.err
    assert {line["vendor"] for line in answers(command, 10)} == {"south"}
    ended = command(*RUN, "--fresh", **KEY)
    assert ended.code == 0, ended.err
    assert {line["vendor"] for line in answers(command, 10)} == {"north"}


def test_another_route_is_another_run(command: CommandLine, pair: PAIR) -> None:
    write_project(command, pair)
    write_rows(command, 5)
    assert command(*RUN).code == 0
    same = command(*RUN)
    assert "nothing is sent" in same.err
    project = command.folder / "batchwright.toml"
    project.write_text(project.read_text().replace("'north/large', ", ""))
    other = command(*RUN)
    assert other.code == 0, other.err
    assert f"rows of the model fast now go to small at south {pair[1].base_url}" in other.err
    assert {line["vendor"] for line in answers(command, 5)} == {"south"}


def price_table(command: CommandLine, **rates: str) -> None:
    """By model: USD for a million tokens of input, and twice that for output."""
    entries = (
        f'[[price]]\npattern = "{model}"\ninput = "{rate}"\noutput = "{2 * int(rate)}"\n'
        for model, rate in rates.items()
    )
    (command.folder / "prices.toml").write_text("".join(entries))
    command.environment["BATCHWRIGHT_PRICES"] = str(command.folder / "prices.toml")


def test_money_is_that_of_the_model_which_answered(command: CommandLine, pair: PAIR) -> None:
    north, _ = pair
    north.set(refuse=True)
    write_project(command, pair)
    write_rows(command, 6)
    price_table(command, large="1")
    assert command(*RUN).code == 0
    assert [line["cost_usd"] for line in answers(command, 6)] == [None] * 6, "nothing is known of small's price"
    price_table(command, large="1", small="10")
    assert command("reprice", "@last").code == 0
    assert command("export", "@last", "-o", "out.jsonl").code == 0
    assert [line["cost_usd"] for line in answers(command, 6)] == [0.00014] * 6, "10 tokens in, 2 out"
    assert command(*RUN, "--fresh").code == 0
    assert [line["cost_usd"] for line in answers(command, 6)] == [0.00014] * 6
    usage = command("usage", "--by", "model", "--json").out
    assert ("small" in usage, "large" in usage) == (True, False)


def test_a_cap_holds_for_the_dearest_choice(command: CommandLine, pair: PAIR) -> None:
    write_project(command, pair)
    write_rows(command, 1)
    price_table(command, large="1")
    capped = ("--max-tokens", "10", "--max-cost", "0.0005")
    refused = command(*RUN, *capped)
    assert (refused.code, "no known price for model 'small' at south" in refused.err) == (2, True), refused.err
    price_table(command, large="1", small="50")
    paused = command(*RUN, *capped)
    assert (paused.code, "cap" in paused.err) == (5, True), paused.err
    assert [len(vendor.hits) for vendor in pair] == [0, 0], "the second choice would cost more than there is"
    assert command("resume", "@last", "--max-cost", "0.05", "-o", "out.jsonl").code == 0
    assert answers(command, 1)[0]["vendor"] == "north"


# ------------------------------------------------------------------------------------------------------- the service


def test_the_service_sends_rows_on_and_lives_through_a_kill(command: CommandLine, pair: PAIR) -> None:
    north, south = pair
    north.set(overloaded=True)
    south.set(latency_s=0.05)
    with ServiceProcess(command, south) as service:
        write_project(command, pair, south="concurrency = 8\n")
        service.kill()
        service.start()  # now with routes
        batch_id = service.submit(chats(200, model="fast"))
        service.running.until(south, lambda vendor: len(vendor.hits) >= 30)
        service.kill()
        service.start()
        assert service.ended(batch_id)["completed_count"] == 200
        items = service.results(batch_id)
        assert [content(item) for item in items] == [f"w{row}" for row in range(200)]
        assert {item["vendor"] for item in items} == {"south"}
        assert any("north: overloaded 503" in item.get("attempts_met", ()) for item in items)

        north.set(overloaded=False)
        for _ in range(200):  # a short batch does not wait for the next probe
            found_out = service.submit(chats(8, model="fast"))
            assert service.ended(found_out)["completed_count"] == 8
            if "north" in {item["vendor"] for item in service.results(found_out)}:
                break
        later = service.submit(chats(40, model="fast"))
        assert service.ended(later)["completed_count"] == 40
        assert {item["vendor"] for item in service.results(later)} == {"north"}
