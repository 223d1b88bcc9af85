"""What hosting costs: CPU a row of the same workers as processes and as actors of Ray, and of two against one.

    python benchmarks/hosts.py [--rounds 5] [--workers 2] [--rows 40000] [--few 2000]

Each figure is marginal, as in `run.py`: the CPU of the workers' own processes with many rows less that with few, over
the difference; so no start is in it. What hosts the workers is told apart and in no ratio: the command and its driver,
and with Ray the raylet, the head, its agents and the actor that keeps the fleet, which cost by the second and not by
the row. The threads that Ray has within an actor's process are in. Rounds are interleaved, figures medians. Batches
are in a fresh state folder; with `--database URL` of an empty database each round leaves its batches there. Linux only,
nginx as for `run.py`; run it with Python's -P.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import vendor
from measure import CommandFailed, median, process_cpu_s
from ours import Bench, batchwright

SAMPLE_EVERY_S = 0.1
DELAY_MS = 50
WORKERS = ("spawn_main", "ray::WorkerActor")
"""In the command lines of the processes that send rows."""


@dataclass(frozen=True, slots=True)
class Used:
    rows: int
    """That were left to do."""
    workers_s: float
    around_s: float
    """By everything else that the command began, and itself."""


class Hosting:
    def __init__(self, bench: Bench, url: str, database: str) -> None:
        self._bench, self._url = bench, url
        tree = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
        self._environ = bench.environ(tree | ({"BATCHWRIGHT_DATABASE": database} if database else {}))

    def marginal_us(self, few: int, many: int, *options: str) -> tuple[float, float]:
        """CPU a row: of the workers, and of all that is around them."""
        with_few, with_many = self._work(few, *options), self._work(many, *options)
        rows = with_many.rows - with_few.rows
        return (
            (with_many.workers_s - with_few.workers_s) / rows * 1e6,
            (with_many.around_s - with_few.around_s) / rows * 1e6,
        )

    def _work(self, rows: int, *options: str) -> Used:
        self._bench.fresh_state()
        left = self._leave_batch(rows)
        command = batchwright("work", *options, "--until-idle", "--progress", "none")
        log = (self._bench.folder / "work.log").open("wb")
        started = subprocess.Popen(command, cwd=self._bench.folder, env=self._environ, stdout=log, stderr=log)
        seen: dict[int, float] = {}
        ours: set[int] = set()
        while started.poll() is None:
            for pid, line in _descendants(started.pid).items():
                try:
                    seen[pid] = process_cpu_s(pid)
                except OSError:
                    continue  # it has just ended
                driver = "--ray" in options and WORKERS[0] in line
                if any(word in line for word in WORKERS) and not driver:
                    ours.add(pid)
            time.sleep(SAMPLE_EVERY_S)
        if started.returncode:
            raise CommandFailed((self._bench.folder / "work.log").read_text(errors="replace")[-2000:])
        if left_over := self._left():
            raise CommandFailed(f"{left_over} rows were not answered")
        return Used(
            left,
            sum(cpu_s for pid, cpu_s in seen.items() if pid in ours),
            sum(cpu_s for pid, cpu_s in seen.items() if pid not in ours),
        )

    def _leave_batch(self, rows: int) -> int:
        """By a `run` that is killed as soon as it has said its batch's id; how many rows it has left to do."""
        self._bench.rows(rows)
        run = subprocess.Popen(
            self._bench.command(rows, self._url, "--fresh"),
            cwd=self._bench.folder,
            env=self._environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert run.stderr is not None
        for line in run.stderr:
            if "batch_" in line:
                break
        run.kill()
        run.communicate()
        return self._left()

    def _left(self) -> int:
        status = subprocess.run(
            batchwright("status", "@last", "--json"),
            cwd=self._bench.folder,
            env=self._environ,
            capture_output=True,
            check=True,
        ).stdout
        found = json.loads(status)
        return int(found["total"]) - int(found["ok"])


def _descendants(pid: int) -> dict[int, str]:
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text()
                lines[int(entry.name)] = Path(entry.path, "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {}
    for child, line in lines.items():
        above = child
        while above in parents and above != pid:
            above = parents[above]
        if above == pid:
            found[child] = line
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--few", type=int, default=2_000)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--port", type=int, default=vendor.DEFAULT_PORT)
    parser.add_argument("--database", default="")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "batchwright-hosts")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(asked.folder)
    bench.warm_up()
    workers = str(asked.workers)
    cases = {
        "1 process": ("--processes", "1"),
        f"{workers} processes": ("--processes", workers),
        f"{workers} actors": ("--ray", "--ray-min", workers, "--ray-max", workers, "--ray-cpus", "0.5"),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    with vendor.start(asked.port) as started:
        hosting = Hosting(bench, started.url(DELAY_MS), asked.database)
        for number in range(asked.rounds):
            for name, options in cases.items():
                found[name].append(hosting.marginal_us(asked.few, asked.rows, *options))
                print(f"round {number + 1}: {name}: {found[name][-1][0]:.1f} us a row", flush=True)
    medians = {name: median([workers_us for workers_us, _ in figures]) for name, figures in found.items()}
    for name, figures in found.items():
        around_us = median([around for _, around in figures])
        print(f"{name}: {medians[name]:.1f} us of CPU a row in workers, {around_us:.1f} around them")
    one, several, actors = medians.values()
    print(f"{workers} processes against 1: {several / one:.3f} (at most 1.1)")
    print(f"{workers} actors against {workers} processes: {actors / several:.3f} (at most 1.03)")


if __name__ == "__main__":
    main()
