"""`batchwright reprice` in words and as JSON."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from batchwright.cli.reprice import result_json, result_lines
from batchwright.core.failures import FailureKind, Flag
from batchwright.ports.batches import KnownCost, RepriceResult
from support.cli_machine import Invoke, Machine

UNKNOWN = KnownCost(picousd=0, unpriced=2, no_usage=0)
ALL = KnownCost(picousd=1_370_000_000_000, unpriced=0, no_usage=0)
DONE = RepriceResult(
    batch_id="batch_a",
    before=UNKNOWN,
    after=ALL,
    priced=2,
    changed=0,
    mixed=0,
    without_price={},
    beyond_reason=0,
    usage_not_kept=0,
)


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        (DONE, ["batch_a: 2 rows got a price; cost not known before, $1.37 now."]),
        (
            replace(DONE, before=ALL, priced=0),
            ["batch_a: 0 rows got a price; cost $1.37 before, $1.37 now."],
        ),
        (
            replace(DONE, before=ALL, priced=0, changed=1, mixed=1),
            [
                "batch_a: 1 row got today's price; cost $1.37 before, $1.37 now.",
                "1 row sent more than once keeps its earlier price: what each attempt cost is not kept.",
            ],
        ),
        (
            replace(
                DONE,
                after=replace(ALL, unpriced=1_010, no_usage=3),
                without_price={"b": 1, "c\x1b[31m": 2, "a": 1_000, "d": 1, "e": 1},
                beyond_reason=1,
                usage_not_kept=4,
            ),
            [
                "batch_a: 2 rows got a price; cost not known before, $1.37+ now.",
                "Cost still not known: 1,000 rows of a (no price); 2 rows of c\ufffd[31m (no price); "
                "1 row of b (no price); 2 rows of 2 more models (no price); "
                "1 row whose price gives over $1,000 for one answer (is it right?); "
                "4 rows with an earlier answer whose usage is not kept; 3 answers without usage.",
            ],
        ),
    ],
)
def test_in_words(result: RepriceResult, lines: list[str]) -> None:
    assert result_lines(result) == lines


def test_what_is_not_known_is_null() -> None:
    told = result_json(DONE)
    assert told["cost_before"]["known_usd"] is None
    assert (told["cost_before"]["complete"], told["cost"]["complete"]) == (False, True)


def test_words_go_to_stderr_and_json_to_stdout(machine: Machine, invoke: Invoke) -> None:
    asyncio.run(machine.add("batch_aa00", Flag.PLAIN, FailureKind.TIMEOUT))
    result = invoke("reprice")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "batch_aa00: 0 rows got a price; cost $0.0020+ before, $0.0020+ now." in result.stderr
    result = invoke("reprice", "aa", "--all", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["models_without_price"] == {"m": 1}
    assert invoke("reprice", "zz").exit_code == 2
