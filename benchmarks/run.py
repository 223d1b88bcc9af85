"""The benchmarks of Batchwright; what they mean is in docs/benchmarks.md.

    python benchmarks/run.py plain          CPU a row and rows/s, marginal: plain HTTP at 50 ms, 512 in flight
    python benchmarks/run.py tls            the same over TLS
    python benchmarks/run.py competitors    the same beside other clients, interleaved
    python benchmarks/run.py memory         peak memory at 10,000 and at 1,000,000 rows
    python benchmarks/run.py start          CPU until the first row reaches the vendor; --version; --help
    python benchmarks/run.py validate       `validate` of 1,000,000 rows
    python benchmarks/run.py faults         a vendor with 2% each of 429, 500 and drops, against a clean one
    python benchmarks/run.py all

Every figure is a median of `--rounds`, with the least and the largest in brackets. Linux only.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import vendor
from checks import check_competitor
from competitors import COMPETITORS, Competitor, prepare, versions
from measure import Cost, Marginal, marginal, measure, median, process_cpu_s, spread
from ours import CONCURRENCY, Bench, batchwright


class Benchmarks:
    """One method a case; each starts and stops its own vendor."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._rounds: int = arguments.rounds
        self._port: int = arguments.port
        self._many: int = arguments.many
        self._fault_rows: int = arguments.fault_rows
        self._memory_rows: list[int] = arguments.memory_rows
        self._bench = Bench(arguments.folder)
        arguments.folder.mkdir(parents=True, exist_ok=True)
        self._bench.warm_up()

    def plain(self) -> None:
        with vendor.start(self._port) as started:
            _show("plain HTTP, 50 ms", [self._bench.marginal(started.url(50)) for _ in range(self._rounds)])

    def tls(self) -> None:
        with vendor.start(self._port) as started:
            trust = {"SSL_CERT_FILE": str(started.ca_file)}
            _show("TLS, 50 ms", [self._bench.marginal(started.tls_url(50), trust) for _ in range(self._rounds)])

    def competitors(self) -> None:
        for competitor in COMPETITORS:
            prepare(competitor)
            print(f"{competitor.name}: {competitor.what} ({versions(competitor)})")
        figures: dict[str, list[Marginal]] = {name: [] for name in ("batchwright", *(r.name for r in COMPETITORS))}
        with vendor.start(self._port) as started:
            url = started.url(50)
            for _ in range(self._rounds):
                figures["batchwright"].append(self._bench.marginal(url))
                for competitor in COMPETITORS:
                    figures[competitor.name].append(self._rival(competitor, url))
        ours_us = median([figure.cpu_us for figure in figures["batchwright"]])
        for name, found in figures.items():
            _show(name, found)
            print(f"    {median([figure.cpu_us for figure in found]) / ours_us:.1f} times the CPU of batchwright")

    def _rival(self, competitor: Competitor, url: str) -> Marginal:
        """As ours, with fewer rows where a row costs so much that thousands say the same."""
        few, many = competitor.rows
        costs: list[Cost] = []
        for count in (few, many):
            output = self._bench.folder / f"{competitor.name}.jsonl"
            command = competitor.command(self._bench.rows(count), output, url, CONCURRENCY)
            costs.append(measure(command, cwd=self._bench.folder, environ=self._bench.environ()))
            check_competitor(output, count)
        return marginal(costs[0], costs[1], many - few)

    def memory(self) -> None:
        with vendor.start(self._port) as started:
            for delay_ms, count in itertools.product((50, 0), self._memory_rows):
                cost = self._bench.run(count, started.url(delay_ms))
                rate = count / cost.wall_s
                print(
                    f"peak memory at {delay_ms} ms, {count:,} rows: {cost.peak_mib:.0f} MiB"
                    f" (whole run {rate:,.0f} rows/s)",
                    flush=True,
                )

    def start(self) -> None:
        first = [self._first_row() for _ in range(self._rounds)]
        print(f"CPU until the first of 10,000 rows is at the vendor: {spread(first, 2)} s")
        for option in ("--version", "--help"):
            costs = [self._small(batchwright(option)) for _ in range(2 * self._rounds)]
            print(f"CPU of {option}: {spread([cost.cpu_s * 1000 for cost in costs])} ms")

    def _first_row(self) -> float:
        command = self._bench.command(10_000, "http://127.0.0.1:{}/v1")
        self._bench.fresh_state()
        with socket.create_server(("127.0.0.1", 0)) as server, (self._bench.folder / "command.log").open("wb") as log:
            server.settimeout(60)
            command = [word.replace("{}", str(server.getsockname()[1])) for word in command]
            child = subprocess.Popen(
                command, env=self._bench.environ(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            try:
                peer, _ = server.accept()
                with peer:
                    peer.recv(1)
                    return process_cpu_s(child.pid)
            finally:
                child.kill()
                child.wait()

    def validate(self) -> None:
        rows = self._bench.rows(self._many)
        size_mib = rows.stat().st_size / 2**20
        command = batchwright("validate", str(rows), "--base-url", "http://127.0.0.1:9/v1", "--api-key-env", "")
        costs = [self._small(command) for _ in range(self._rounds)]
        print(
            f"validate of {self._many:,} rows ({size_mib:,.0f} MiB): {spread([cost.wall_s for cost in costs], 1)} s, "
            f"CPU {spread([cost.cpu_s for cost in costs], 1)} s, peak {spread([cost.peak_mib for cost in costs])} MiB"
        )

    def _small(self, command: list[str]) -> Cost:
        return measure(command, cwd=self._bench.folder, environ=self._bench.environ())

    def faults(self) -> None:
        """Clean and faulty in turns: the same vendor program, the same delay of 50 ms."""
        clean: list[float] = []
        faulty: list[float] = []
        for _ in range(self._rounds):
            for share, found in ((0.0, clean), (0.02, faulty)):
                with _faulty_vendor(share) as url:
                    # Of so many rows one may fail five times, by chance alone; here every row is to be answered.
                    cost = self._bench.run(self._fault_rows, url, options=("--max-attempts", "20"))
                    found.append(cost.wall_s)
        rows = f"{self._fault_rows:,} rows"
        print(f"{rows}, clean vendor: {spread(clean, 1)} s; 2% 429, 2% 500, 2% drops: {spread(faulty, 1)} s")
        print(f"    {median(faulty) / median(clean):.2f} times the time of a clean vendor")


@contextmanager
def _faulty_vendor(share: float) -> Iterator[str]:
    script = str(Path(__file__).with_name("faulty_vendor.py"))
    with subprocess.Popen(
        [sys.executable, script, str(share)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()  # it ends with it


def _show(name: str, figures: list[Marginal]) -> None:
    print(
        f"{name}: {spread([figure.cpu_us for figure in figures])} us of CPU a row, "
        f"{spread([figure.rows_per_s for figure in figures])} rows/s, "
        f"peak {spread([figure.peak_mib for figure in figures])} MiB",
        flush=True,
    )


CASES = ("plain", "tls", "competitors", "memory", "start", "validate", "faults")


def main() -> None:
    parser = argparse.ArgumentParser(description="the benchmarks of Batchwright")
    parser.add_argument("case", choices=(*CASES, "all"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=vendor.DEFAULT_PORT)
    parser.add_argument("--many", type=int, default=1_000_000, help="rows of `validate`")
    parser.add_argument("--fault-rows", type=int, default=10_000)
    parser.add_argument("--memory-rows", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "batchwright-bench")
    arguments = parser.parse_args()
    benchmarks = Benchmarks(arguments)
    cases = CASES if arguments.case == "all" else (arguments.case,)
    for case in cases:
        before = os.getloadavg()[0]
        started_s = time.monotonic()
        getattr(benchmarks, case)()
        took_s = time.monotonic() - started_s
        after = os.getloadavg()[0]
        print(
            f"    [{case}: {took_s:.0f} s; {os.cpu_count()} cores, load {before:.1f} before and {after:.1f} after, "
            f"some 2 of it the benchmark itself; Python {platform.python_version()}]",
            flush=True,
        )


if __name__ == "__main__":
    main()
