"""Shows that nothing is lost: many rows against a faulty vendor, killed on the way, and through an outage.

    python tools/prove.py                        every form, 100,000 rows each (about ten minutes)
    python tools/prove.py kills --rows 20000     one of: plain, kills, outage
    python tools/prove.py postgres --rounds 50   two services and three workers on one PostgreSQL, killed by chance
    python tools/prove.py resume --rows 1000000  how soon a worker of that batch, killed and begun anew, sends again
    python tools/prove.py formats --rows 1000000 every form of file goes round, with the peak memory of each run

The vendor is the tests' own scripted one, in a process of its own. It echoes the last word of each row and fails 5% of
all requests: 429 without a wait, 500, and a connection dropped after the request was read.

    plain     to the end
    kills     `kill -9` ten times on the way, each time followed by the same command
    postgres  rounds of 300 rows each; in each one of the five processes is killed on the way and begun anew
    outage    on the way it refuses connections for a minute, then it answers only 503 for another
    resume    on one PostgreSQL: `work` is killed and begun anew in the same place, five times; from the start of the
              process to its first request must be 3 s at most, in the middle of five
    formats   each form in, out, and in again; the word of each row must come back (`tools/prove_formats.py`)

Each other form must end with exit code 0 and one line for each row, in order, `ok`, with the row's own word. Prints a
line for each form; exits 1 if any of them does not hold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.command_line import CommandLine, Ended, Started
from support.killed_places import Fleet
from support.postgres import PostgresServer
from support.scripted_vendor import ScriptedVendor
from support.vendor_process import VendorProcess

FORMS = ("plain", "kills", "outage")
ROUNDS = 50
FAULTS_PERCENT = 5.0
LATENCY_S = 0.02
KILLS = 10
OUTAGE_S = 60.0
RESUMES = 5
RESUME_MAX_S = 3.0
LOOK_S = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description="Shows that nothing is lost.")
    parser.add_argument(
        "form", nargs="*", metavar="{plain,kills,outage,postgres,resume,formats}", help="default: the first three"
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--outage-s", type=float, default=OUTAGE_S, help="length of each half of the outage")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the form postgres")
    given = parser.parse_args()
    held = [_prove_one(form, given) for form in given.form or FORMS]
    return 0 if all(held) else 1


def _prove_one(form: str, given: argparse.Namespace) -> bool:
    match form:
        case "postgres":
            return _prove_postgres(given.rounds)
        case "resume":
            return _prove_resume(given.rows)
        case "formats":
            prove = (sys.executable, str(Path(__file__).with_name("prove_formats.py")), "--rows", str(given.rows))
            return subprocess.run(prove, check=False).returncode == 0
        case _:
            return _prove(form, given.rows, given.outage_s)


def _prove(form: str, rows: int, outage_s: float) -> bool:
    with tempfile.TemporaryDirectory(prefix="batchwright-") as folder, VendorProcess() as vendor:
        vendor.set(fail_percent=FAULTS_PERCENT, latency_s=LATENCY_S)
        command = CommandLine(Path(folder))
        _write_rows(Path(folder), rows)
        run = _Run(command, vendor, rows)
        began_s = time.monotonic()
        match form:
            case "plain":
                ended = run.start().end(3600)
            case "kills":
                ended = _with_kills(run)
            case _:
                ended = _with_outage(run, outage_s)
        wall_s = time.monotonic() - began_s
        problems = _problems(ended, command, rows)
        print(f"{form}: {rows:,} rows in {wall_s:.1f} s{_figures(ended, vendor)}", flush=True)
        for problem in problems:
            print(f"  DOES NOT HOLD: {problem}", flush=True)
        return not problems


def _prove_postgres(rounds: int) -> bool:
    """Raises AssertionError where a round does not hold."""
    began_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="batchwright-") as folder,
        closing(PostgresServer()) as server,
        ScriptedVendor() as vendor,
    ):
        vendor.set(fail_percent=FAULTS_PERCENT, latency_s=LATENCY_S)
        with Fleet(Path(folder), server.new_database(), vendor, seed=rounds) as fleet:
            for number in range(rounds):
                fleet.round(number)
            fleet.holds()
            landed = fleet.landed
    print(
        f"postgres: {rounds} rounds in {time.monotonic() - began_s:.1f} s, {landed} kills before their batch had ended"
    )
    return True


def _prove_resume(rows: int) -> bool:
    with (
        tempfile.TemporaryDirectory(prefix="batchwright-") as folder,
        closing(PostgresServer()) as server,
        VendorProcess() as vendor,
    ):
        vendor.set(latency_s=LATENCY_S)
        command = CommandLine(Path(folder), BATCHWRIGHT_DATABASE=server.new_database())
        _write_rows(Path(folder), rows)
        run = _Run(command, vendor, rows)
        started = run.start()
        if not run.until(started, 1):
            raise SystemExit(f"it ended before it was killed: {started.end().err}")
        took_s = []
        for _ in range(RESUMES):
            started.kill()
            started.end()
            vendor.set(hold=True)  # what was out is answered to nobody: every request from here on is of the next
            before = vendor.account()["count"]
            began_s = time.monotonic()
            started = command.start("work", "--progress", "none")
            if not run.until(started, before + 1):
                raise SystemExit(f"it ended and sent nothing: {started.end().err}")
            took_s.append(time.monotonic() - began_s)
            vendor.set(hold=False)
            vendor.release()
        started.kill()
        started.end()
    middle_s = sorted(took_s)[RESUMES // 2]
    each = ", ".join(f"{seconds:.2f}" for seconds in took_s)
    print(f"resume: {rows:,} rows, sends again after {middle_s:.2f} s ({each})", flush=True)
    return middle_s <= RESUME_MAX_S


def _write_rows(folder: Path, rows: int) -> None:
    with (folder / "rows.jsonl").open("w") as out:
        out.writelines(json.dumps({"prompt": f"Say word{row}"}) + "\n" for row in range(rows))


class _Run:
    def __init__(self, command: CommandLine, vendor: VendorProcess, rows: int) -> None:
        self.command, self.vendor, self.rows = command, vendor, rows

    def start(self) -> Started:
        endpoint = ("--base-url", self.vendor.base_url, "--api-key-env", "", "-m", "m")
        return self.command.start("run", "rows.jsonl", "-o", "out.jsonl", *endpoint, "--json", "--progress", "plain")

    def until(self, started: Started, count: int) -> bool:
        """Until the vendor was asked so often; False if the command ended before."""
        while started.process.poll() is None:
            if self.vendor.account()["count"] >= count:
                return True
            time.sleep(LOOK_S)
        return False


def _with_kills(run: _Run) -> Ended:
    for number in range(1, KILLS + 1):
        started = run.start()
        if not run.until(started, number * run.rows // (KILLS + 1)):
            raise SystemExit(f"it ended before kill {number}: {started.end().err}")
        started.kill()
        started.end()
    return run.start().end(3600)


def _with_outage(run: _Run, outage_s: float) -> Ended:
    started = run.start()
    if not run.until(started, run.rows // 3):
        raise SystemExit(f"it ended before the outage: {started.end().err}")
    run.vendor.set(refuse=True)
    time.sleep(outage_s)
    run.vendor.set(refuse=False, overloaded=True)
    time.sleep(outage_s)
    run.vendor.set(overloaded=False)
    return started.end(3600)


def _problems(ended: Ended, command: CommandLine, rows: int) -> list[str]:
    problems = [f"exit code {ended.code}: {ended.err[-2000:]}"] if ended.code else []
    seen, kinds = 0, Counter[str]()
    try:
        with (command.folder / "out.jsonl").open("rb") as lines:
            for expected, line in enumerate(lines):
                row = json.loads(line)
                seen += 1
                if row["request_index"] != expected:
                    problems.append(f"line {expected + 1} is row {row['request_index']}")
                elif not row["ok"]:
                    kinds[row["error"]["kind"]] += 1
                elif row["result"]["content"] != f"word{expected}":
                    problems.append(f"row {expected} has the answer {row['result']['content']!r}")
                if len(problems) > 10:
                    return problems
    except FileNotFoundError:
        problems.append("there is no file")
    if seen != rows:
        problems.append(f"{seen:,} lines")
    problems += [f"{count:,} rows ended as {kind}" for kind, count in kinds.items()]
    return problems


def _figures(ended: Ended, vendor: VendorProcess) -> str:
    account: dict[str, Any] = vendor.account(hits=True)
    answered = Counter(text for _, text, outcome in account["hits"] if outcome == "200")
    twice = sum(count - 1 for count in answered.values())
    text = f"; the vendor was asked {account['count']:,} times and gave {twice:,} answers more than once"
    if ended.out:
        report = ended.report
        text += f"; possible double payments reported: {report['possible_double_payments']:,}"
        text += f"; retries: {report['retries']:,}"
    return text


if __name__ == "__main__":
    sys.exit(main())
