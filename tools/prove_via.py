"""Shows that rows through a vendor's batch API are lost and paid twice as little as others are.

    python tools/prove_via.py [--rows 20000] [--deadline-s 180]

The vendor is the tests' own, on loopback: its batch API does so many rows a second that less than half are back when
the batch is called back; beside it live rows are answered at once. `--via auto` with the deadline, to the end; and
again with the command killed while the vendor's batch is open. Each time every row must be there once, in order, with
its own word, before the deadline, and the vendor must have done each of them once. Exits 1 if that does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.command_line import CommandLine, Ended, chat_row
from support.slow_batch_vendor import KEY, SlowBatchVendor

SHARE = 0.45
"""Of all rows that the API can do in the two thirds of the time before it is called back."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Shows that nothing is lost or paid twice.")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--deadline-s", type=int, default=180)
    given = parser.parse_args()
    held = [prove(given.rows, given.deadline_s, killed=killed) for killed in (False, True)]
    return 0 if all(held) else 1


def prove(rows: int, deadline_s: int, *, killed: bool) -> bool:
    rate = SHARE * rows / (deadline_s * 2 / 3)
    with tempfile.TemporaryDirectory(prefix="batchwright-") as folder, SlowBatchVendor(rate) as vendor:
        command = ready(Path(folder), vendor, rows)
        arguments = ("run", "rows.jsonl", "-o", "out.jsonl", "--via", "auto", "--deadline", f"{deadline_s}s", "--json")
        began_s = time.monotonic()
        if killed:
            first = command.start(*arguments, SLOW_KEY=KEY)
            first.wait_for("rows are at slow-batch as")
            first.kill()
            first.end()
        ended = command.start(*arguments, SLOW_KEY=KEY).end(2 * deadline_s)
        wall_s = time.monotonic() - began_s
        problems = look(ended, command, vendor, rows)
        if wall_s > deadline_s:
            problems.append(f"it took {wall_s:.0f} s")
        name = "killed" if killed else "plain"
        split = ended.report["answered_by"] if ended.out else {}
        print(f"{name}: {rows:,} rows in {wall_s:.1f} s, {json.dumps(split)}", flush=True)
        for problem in problems:
            print(f"  DOES NOT HOLD: {problem}", flush=True)
        return not problems


def ready(folder: Path, vendor: SlowBatchVendor, rows: int) -> CommandLine:
    command = CommandLine(folder)
    command.write("rows.jsonl", [chat_row(f"word{row}", model="m-small") for row in range(rows)])
    (folder / "prices.toml").write_text(
        '[[price]]\nvendor = "slow"\npattern = "*"\ninput = "10"\noutput = "20"\nbatch_factor = "0.5"\n'
    )
    user_file = folder / "config" / "batchwright" / "config.toml"
    user_file.parent.mkdir(parents=True)
    user_file.write_text(
        f'prices = "{folder / "prices.toml"}"\n'
        f'[vendors.slow]\nbase_url = "{vendor.base_url}"\napi_key_env = "SLOW_KEY"\nprofile = "openai"\n'
    )
    return command


def look(ended: Ended, command: CommandLine, vendor: SlowBatchVendor, rows: int) -> list[str]:
    problems = [f"exit code {ended.code}: {ended.err[-2000:]}"] if ended.code else []
    words = [line["result"]["content"] if line["ok"] else line["error"]["kind"] for line in command.lines()]
    if words != [f"word{row}" for row in range(rows)]:
        problems.append(f"{len(words):,} lines, not each with its own word")
    done = vendor.done()
    if twice := {word: count for word, count in done.items() if count > 1}:
        problems.append(f"{len(twice):,} rows were done more than once")
    if len(vendor.batched) in (0, rows):
        problems.append(f"{len(vendor.batched):,} rows went through the batch API: nothing was to be seen")
    if ended.out and ended.report["possible_double_payments"]:
        problems.append(f"{ended.report['possible_double_payments']:,} possible double payments")
    return problems


if __name__ == "__main__":
    sys.exit(main())
