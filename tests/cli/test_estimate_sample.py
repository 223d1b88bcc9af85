"""`estimate --sample`: the full run's bill lies in the range, whatever the lengths of answers look like.

A real command asks a real vendor on loopback, which answers a row with the usage that the row's text tells it (in a
fixed number of digits, so that a row's size says nothing of its answer). The full run's bill is then exact arithmetic;
one test runs it to see that it is what a run pays.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cli_machine import Invoke
from support.scripted_vendor import ScriptedVendor

ROWS, SAMPLE, TRIALS = 2_000, 200, 20
IN_USD, OUT_USD = 0.15, 0.60
"""For a million tokens."""
CAP = 4_096

Lengths = Callable[[random.Random, int], int]
"""Of one answer, by its row's input tokens."""

DISTRIBUTIONS: dict[str, Lengths] = {
    "lognormal": lambda chance, size: round(chance.lognormvariate(4.8, 0.8)),
    "bimodal": lambda chance, size: round(chance.gauss(30, 5) if chance.random() < 0.7 else chance.gauss(600, 60)),
    "dependent on input": lambda chance, size: round(size * 0.9 * chance.lognormvariate(0, 0.4)),
    "heavy tail with a cap": lambda chance, size: min(CAP, round(60 * chance.paretovariate(1.3))),
    "constant": lambda chance, size: 40,
    "one in a hundred very long": lambda chance, size: (
        2_000 if chance.random() < 0.01 else round(chance.lognormvariate(4.6, 0.3))
    ),
}


class Trial:
    """A file of rows with answers of one distribution, and what they cost in all."""

    def __init__(self, lengths: Lengths, seed: int) -> None:
        chance = random.Random(seed)
        self.rows: list[dict[str, Any]] = []
        self.bill_usd = 0.0
        for number in range(ROWS):
            words = min(2_000, max(5, round(chance.lognormvariate(4.0, 0.9))))
            tokens_in = round(words * chance.uniform(1.2, 1.4)) + 12
            tokens_out = max(1, lengths(chance, tokens_in))
            text = f"[[usage={tokens_in:06},{tokens_out:06}]] " + "word " * words
            self.rows.append({"custom_id": f"r{number:06}", "model": "m", "max_tokens": CAP, "prompt": text})
            self.bill_usd += (tokens_in * IN_USD + tokens_out * OUT_USD) / 10**6

    def write(self, path: Path) -> str:
        path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        return str(path)


@pytest.fixture(scope="module")
def vendor() -> Iterator[ScriptedVendor]:
    with ScriptedVendor(keep=False) as vendor:
        yield vendor


@pytest.fixture
def prices(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "prices.toml"
    table.write_text(f'[[price]]\npattern = "m"\ninput = "{IN_USD}"\noutput = "{OUT_USD}"\n')
    monkeypatch.setenv("BATCHWRIGHT_PRICES", str(table))


def endpoint(vendor: ScriptedVendor) -> tuple[str, ...]:
    return ("--base-url", vendor.base_url, "--api-key-env", "", "--progress", "none")


def ask(invoke: Invoke, vendor: ScriptedVendor, path: str, *more: str) -> dict[str, Any]:
    ended = invoke("estimate", path, *endpoint(vendor), "--sample", str(SAMPLE), "--json", *more)
    assert ended.exit_code == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.usefixtures("prices")
def test_the_bill_lies_in_the_range(name: str, tmp_path: Path, vendor: ScriptedVendor, invoke: Invoke) -> None:
    inside, ratios, missed = 0, [], []
    for seed in range(TRIALS):
        trial = Trial(DISTRIBUTIONS[name], seed)
        found = ask(invoke, vendor, trial.write(tmp_path / f"rows{seed}.jsonl"), "--seed", str(seed))
        cost = found["cost_usd"]
        assert found["sample"]["answered"] == SAMPLE
        inside += cost["low"] <= trial.bill_usd <= cost["high"]
        if not cost["low"] <= trial.bill_usd <= cost["high"]:
            missed.append((cost, trial.bill_usd))
        ratios.append(cost["high"] / cost["low"])
    assert inside >= 18, missed
    assert max(ratios) <= 1.5


@pytest.mark.usefixtures("prices")
def test_a_full_run_pays_that_bill_and_the_sample_is_a_batch(
    tmp_path: Path, vendor: ScriptedVendor, invoke: Invoke
) -> None:
    trial = Trial(DISTRIBUTIONS["lognormal"], 7)
    path = trial.write(tmp_path / "rows.jsonl")
    before = len(vendor.hits)
    found = ask(invoke, vendor, path)
    assert len(vendor.hits) == before + SAMPLE
    again = ask(invoke, vendor, path)
    assert len(vendor.hits) == before + SAMPLE, "the same sample is asked once"
    assert again == found
    (listed,) = [json.loads(line) for line in invoke("list", "--json").stdout.splitlines()]
    assert listed["batch_id"] == found["sample"]["batch_id"]
    assert listed["cost"]["known_usd"] == found["sample"]["cost_usd"]
    answers = [json.loads(line) for line in invoke("rows", "@last", "--limit", "0", "--json").stdout.splitlines()]
    places = [int(answer["custom_id"].removeprefix("r")) for answer in answers]
    assert len(places) == SAMPLE
    assert places == sorted(places)
    assert max(places) > ROWS * 0.9
    assert len([place for place in places if place < SAMPLE]) < SAMPLE / 2
    ran = invoke("run", path, "-o", "out.jsonl", *endpoint(vendor), "--json")
    assert ran.exit_code == 0, ran.stderr
    assert json.loads(ran.stdout)["cost"]["known_usd"] == pytest.approx(trial.bill_usd)
    assert found["cost_usd"]["low"] <= trial.bill_usd <= found["cost_usd"]["high"]


@pytest.mark.usefixtures("prices")
def test_each_model_of_a_mixed_file_has_its_rows_asked(tmp_path: Path, vendor: ScriptedVendor, invoke: Invoke) -> None:
    rows = [
        {"model": "m" if number % 20 else "other", "prompt": f"[[usage=000100,000050]] {number:05}"}
        for number in range(1_000)
    ]
    path = tmp_path / "mixed.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = ask(invoke, vendor, str(path))
    lanes = {lane["model"]: lane for lane in found["lanes"]}
    assert {name: lane["rows"] for name, lane in lanes.items()} == {"m": 950, "other": 50}
    assert lanes["other"]["asked"] >= 5
    assert lanes["m"]["asked"] + lanes["other"]["asked"] == SAMPLE
    assert lanes["other"]["cost_usd"] is None
    assert found["rows_without_price"] == 50
    assert lanes["other"]["tokens_out"]["low"] <= 50 * 50 <= lanes["other"]["tokens_out"]["high"]
    bill = 950 * (100 * IN_USD + 50 * OUT_USD) / 10**6
    assert found["cost_usd"]["low"] <= bill <= found["cost_usd"]["high"]


@pytest.mark.usefixtures("prices")
def test_a_sample_that_pauses_gives_no_estimate_and_goes_on(
    tmp_path: Path, vendor: ScriptedVendor, invoke: Invoke
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"model": "m", "prompt": f"row {number}"}) + "\n" for number in range(60)))
    vendor.set(key_refused=True)
    try:
        ended = invoke("estimate", str(path), *endpoint(vendor), "--sample", "30", "--json")
    finally:
        vendor.set(key_refused=False)
    assert ended.exit_code == 5
    assert ended.stdout == ""
    assert "there is no estimate yet" in ended.stderr
    assert ask(invoke, vendor, str(path), "--sample", "30")["sample"]["answered"] == 30


def test_a_file_smaller_than_the_sample_is_asked_whole(tmp_path: Path, invoke: Invoke) -> None:
    path = tmp_path / "few.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"row {number}"}) + "\n" for number in range(9)) + "\n")
    ended = invoke("estimate", str(path), "-m", "any", "--simulate", "--sample", "50", "--json", "--progress", "none")
    assert ended.exit_code == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["rows"], found["sample"]["rows"]) == (9, 9)
    assert found["cost_usd"]["low"] < found["sample"]["cost_usd"] < found["cost_usd"]["high"]


@pytest.mark.parametrize("kind", ["csv", "array", "gz", "limit", "skipped"])
def test_a_sample_of_every_kind_of_input(kind: str, tmp_path: Path, invoke: Invoke) -> None:
    """Of rows that were picked the law holds, and those that cannot be sent are none of them."""
    rows: list[dict[str, Any]] = [{"custom_id": f"r{number}", "prompt": f"row {number}"} for number in range(50)]
    path, more = tmp_path / "rows.jsonl", ["-m", "any"]
    text = "".join(json.dumps(row) + "\n\n" for row in rows)
    match kind:
        case "csv":
            path = tmp_path / "rows.csv"
            text = "custom_id,text\n" + "".join(f'r{number},"row\n{number}"\n' for number in range(50))
            more += ["-t", "{text}"]
        case "array":
            text = json.dumps(rows)
        case "limit":
            more += ["--limit", "30"]
        case "skipped":
            text += '{"custom_id": "bad", "messages": "none"}\n' * 10
            more += ["--skip-invalid"]
        case _:
            path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(text.encode()) if kind == "gz" else text.encode())
    ended = invoke("estimate", str(path), *more, "--simulate", "--sample", "12", "--json", "--progress", "none")
    assert ended.exit_code == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["sample"]["answered"] == 12
    assert found["rows"] - found["refused"] == (30 if kind == "limit" else 50)
    assert "12 rows = 12 ok" in ended.stderr
    shown = [json.loads(line) for line in invoke("rows", "@last", "--limit", "0", "--json").stdout.splitlines()]
    places = [int(line["custom_id"].removeprefix("r")) for line in shown]
    assert places == sorted(set(places))
    if kind == "limit":
        assert max(places) < 30
