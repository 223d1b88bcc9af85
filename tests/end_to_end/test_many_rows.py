"""Many rows against a vendor that fails one request in twenty: none missing, none mixed up, each with its own answer.

`tools/prove.py` shows the same of 100,000 rows, also killed on the way and through an outage.
"""

from __future__ import annotations

import json
import time
from collections import Counter

from support.command_line import CommandLine, chat_row
from support.scripted_vendor import ScriptedVendor
from support.vendor_process import VendorProcess

ROWS = 20_000
ATTEMPTS_LAST_S = 12.0
"""Five of them, with the longest waits in between."""


def test_twenty_thousand_rows_at_a_faulty_vendor(command: CommandLine) -> None:
    command.write("rows.jsonl", [{"prompt": f"Say word{row}"} for row in range(ROWS)])
    with VendorProcess(seed=7) as vendor:
        vendor.set(fail_percent=5)
        endpoint = ("--base-url", vendor.base_url, "--api-key-env", "", "-m", "m")
        ended = command("run", "rows.jsonl", "-o", "out.jsonl", *endpoint, "--json", "--progress", "none")
        hits = vendor.account(hits=True)["hits"]
    assert ended.code == 0, ended.err
    with (command.folder / "out.jsonl").open("rb") as lines:
        for row, line in enumerate(lines):
            answer = json.loads(line)
            assert (answer["request_index"], answer["ok"]) == (row, True)
            assert answer["result"]["content"] == f"word{row}"
    assert row == ROWS - 1
    outcomes = Counter(outcome for _, _, outcome in hits)
    assert all(outcomes[fault] > ROWS // 100 for fault in ("429", "500", "drop")), outcomes
    assert outcomes["200"] == ROWS, "no row was sent again after its answer"
    report = ended.report
    assert (report["ok"], report["attempts"], report["retries"]) == (ROWS, len(hits), len(hits) - ROWS)
    assert report["possible_double_payments"] == outcomes["drop"]


def test_rows_that_fail_each_time_are_no_outage(command: CommandLine, vendor: ScriptedVendor) -> None:
    """Forty rows at which the vendor always breaks, and at the end nothing else is left to send: they use up their
    attempts and end; the lane is not taken for one whose vendor is out, in which attempts are free."""
    bad = range(50, 250, 5)
    command.write(
        "rows.jsonl", [chat_row(f"{'[[status=500]] ' if row in bad else ''}Say word{row}") for row in range(300)]
    )
    endpoint = ("--base-url", vendor.base_url, "--api-key-env", "", "--max-attempts", "4")
    ended = command("run", "rows.jsonl", "-o", "out.jsonl", *endpoint, "--json", "--progress", "none")
    assert ended.code == 3, ended.err
    failed = {line["request_index"]: line for line in command.lines() if not line["ok"]}
    assert sorted(failed) == list(bad)
    assert {(line["error"]["code"], line["attempts"]) for line in failed.values()} == {("VENDOR_OVERLOADED", 4)}
    assert len(vendor.hits) == ended.report["attempts"] == 300 + 3 * len(bad)


def test_an_outage_that_begins_near_the_end_ends_no_row(command: CommandLine, vendor: ScriptedVendor) -> None:
    """What was out as it began is still answered while the first rows fail: that does not make it the rows' own fault,
    and they wait for as long as it takes, longer than all their attempts would have lasted."""
    command.write(
        "rows.jsonl", [chat_row(f"{'[[sleep=3]] ' if row % 8 == 0 else ''}Say word{row}") for row in range(3_000)]
    )
    endpoint = ("--base-url", vendor.base_url, "--api-key-env", "")
    running = command.start("run", "rows.jsonl", "-o", "out.jsonl", *endpoint, "--json", "--progress", "none")
    vendor.wait_for(lambda now: len(now.hits) >= 400)
    vendor.set(overloaded=True)
    began_s = time.monotonic()
    vendor.wait_for(lambda now: time.monotonic() - began_s > ATTEMPTS_LAST_S)
    vendor.set(overloaded=False)
    ended = running.end()
    assert ended.code == 0, ended.err
    assert ended.report["ok"] == 3_000
