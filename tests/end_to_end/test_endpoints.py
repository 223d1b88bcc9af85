"""Rows of every endpoint that is understood: flags, usage, cost and text, from one file into both kinds of output."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from support.command_line import CommandLine
from support.scripted_vendor import ScriptedVendor

PRICES = '[[price]]\npattern = "*"\ninput = "1"\ncached = "0.5"\noutput = "10"\n'
"""USD per million tokens: the vendor's ten input tokens are 0.00001, its two of output 0.00002."""
TEXTS = {"/v1/responses": "input", "/v1/completions": "prompt", "/v1/embeddings": "input"}


def row(url: str, text: str, **body: object) -> dict[str, object]:
    return {"custom_id": f"{url} {text}", "url": url, "body": {"model": "m", TEXTS[url]: text, **body}}


@pytest.fixture
def priced(tmp_path: Path) -> CommandLine:
    (tmp_path / "prices.toml").write_text(PRICES)
    return CommandLine(tmp_path, BATCHWRIGHT_PRICES=str(tmp_path / "prices.toml"))


def run(command: CommandLine, vendor: ScriptedVendor, rows: list[dict[str, object]], *options: str) -> dict[str, Any]:
    command.write("rows.jsonl", rows)
    endpoint = ("--base-url", vendor.base_url, "--api-key-env", "")
    ended = command("run", "rows.jsonl", *endpoint, "--mixed-endpoints", "--progress", "none", "--json", *options)
    assert ended.code in (0, 3), ended.err
    return ended.report


def test_every_endpoint_is_understood(priced: CommandLine, vendor: ScriptedVendor) -> None:
    rows = [
        row("/v1/responses", "say plain"),
        row("/v1/responses", "[[finish=length]] cut"),
        row("/v1/responses", "[[finish=content_filter]] away"),
        row("/v1/responses", "[[refusal]] no"),
        row("/v1/responses", "[[content=empty]]"),
        row("/v1/responses", "[[error200 times=1 code=server_error]] again"),
        row("/v1/completions", "say plain"),
        row("/v1/completions", "[[finish=length]] cut"),
        row("/v1/completions", "[[content=empty]]"),
        row("/v1/embeddings", "plain"),
        row("/v1/embeddings", "[[content=empty]]"),
        row("/v1/embeddings", "[[usage=none]] uncounted"),
    ]
    report = run(priced, vendor, rows, "-o", "out.jsonl")
    lines = priced.lines()
    assert [line["flags"] for line in lines] == [
        *([], ["truncated"], ["filtered"], ["refused"], ["empty"], []),
        *([], ["truncated"], ["empty"]),
        *([], ["empty"], []),
    ]
    results = [line["result"] for line in lines]
    assert [(found["content"], found["finish_reason"]) for found in results] == [
        ("plain", "completed"),
        ("cut", "max_output_tokens"),
        ("away", "content_filter"),
        (None, "completed"),
        ("", "completed"),
        ("again", "completed"),
        ("plain", "stop"),
        ("cut", "length"),
        ("", "stop"),
        ([0.25, -0.5], None),
        (None, None),
        ([0.25, -0.5], None),
    ]
    assert all(found["model"] == "m" for found in results)
    # What came from the vendor's cache costs half; the answer that was an error object came without usage.
    assert [line["cost_usd"] for line in lines] == [3e-5, *[2.8e-5] * 4, 3e-5, *[3e-5] * 3, 1e-5, 1e-5, None]
    assert sum(line["cost_usd"] or 0 for line in lines) == pytest.approx(report["cost"]["known_usd"])
    assert lines[5]["attempts"] == 2

    assert priced("export", "@last", "-o", "out.csv").code == 0
    with (priced.folder / "out.csv").open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert [record["answer"] for record in table][8:] == ["", "[0.25, -0.5]", "", "[0.25, -0.5]"]
    assert [(record["prompt_tokens"], record["completion_tokens"]) for record in table][:1] == [("10", "2")]
    assert table[9]["completion_tokens"] == "0"


def test_a_cap_holds_for_every_endpoint(priced: CommandLine, vendor: ScriptedVendor) -> None:
    """Vectors need no bound; what answers with text does, by the name it has there."""
    bounded = [
        row("/v1/embeddings", "a"),
        row("/v1/responses", "b", max_output_tokens=10),
        row("/v1/completions", "c", max_tokens=10),
    ]
    report = run(priced, vendor, bounded, "-o", "out.jsonl", "--max-cost", "0.01")
    assert report["ok"] == 3
    priced.write("unbounded.jsonl", [row("/v1/responses", "b"), row("/v1/responses", "c", conversation="conv_1")])
    endpoint = ("--base-url", vendor.base_url, "--api-key-env", "", "--max-cost", "0.01")
    refused = priced("run", "unbounded.jsonl", "-o", "no.jsonl", *endpoint)
    assert refused.code == 2
    assert "it has no max_output_tokens" in refused.err
    filled = priced("run", "unbounded.jsonl", "-o", "no.jsonl", *endpoint, "--max-tokens", "10")
    assert filled.code == 2
    assert "conversation stands for input of unknown length" in filled.err
    assert "it has no max_output_tokens" not in filled.err
    assert len(vendor.hits) == 3


def test_findings_name_what_the_endpoint_needs(priced: CommandLine, vendor: ScriptedVendor) -> None:
    rows = [
        row("/v1/embeddings", "fine"),
        {"url": "/v1/embeddings", "body": {"model": "m", "prompt": "misplaced"}},
        {"url": "/v1/embeddings", "body": {"model": "m", "input": []}},
    ]
    priced.write("rows.jsonl", rows)
    checked = priced("validate", "rows.jsonl", "--base-url", vendor.base_url, "--api-key-env", "")
    assert checked.code == 2
    assert [line[0] for line in checked.out.splitlines()] == ["2", "3"]
    assert "needs input: a text or a non-empty list; it has prompt" in checked.out
    assert vendor.hits == []


def test_the_simulator_knows_them(command: CommandLine) -> None:
    rows = [
        row("/v1/responses", "one"),
        {"url": "/v1/completions", "body": {"model": "m", "prompt": ["two", "three"]}},
        {"url": "/v1/embeddings", "body": {"model": "m", "input": ["four", "five"]}},
        {"url": "/v1/embeddings", "body": {"model": "m", "input": [1, 2, 3]}},
    ]
    command.write("rows.jsonl", rows)
    ended = command("run", "rows.jsonl", "-o", "out.jsonl", "--mixed-endpoints", "--simulate", "--json")
    assert ended.code == 0, ended.err
    lines = command.lines()
    assert lines[0]["result"]["content"].startswith("Simulated answer to: one")
    assert [choice["text"] for choice in lines[1]["response"]["choices"]] == [
        "Simulated answer to: two",
        "Simulated answer to: three",
    ]
    assert [len(vector) for vector in lines[2]["result"]["content"]] == [8, 8]
    assert len(lines[3]["result"]["content"]) == 8
    assert ended.report["cost"]["known_usd"] > 0
