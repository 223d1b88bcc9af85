"""Runs a command as a child and says what it cost: wall time, CPU of all its threads and children, peak memory.

    python benchmarks/measure.py -- batchwright --version

A fixed cost (start, imports) is kept apart from the cost of a row by measuring the same command twice, with few rows
and with many: `Marginal`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FEW_ROWS = 500
MANY_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class Cost:
    wall_s: float
    cpu_s: float
    """User and system, of the process and of the children it waited for."""
    peak_mib: float
    """The largest of the process itself. Linux counts from the moment of the fork, so a measuring process must stay
    smaller than what it measures: this one is about 15 MiB."""


@dataclass(frozen=True, slots=True)
class Marginal:
    """What a row costs beyond a run's fixed cost."""

    cpu_us: float
    rows_per_s: float
    peak_mib: float


class CommandFailed(Exception):
    """The command under test did not do its work; a figure of it would mean nothing."""


def measure(command: Sequence[str], *, cwd: Path, environ: Mapping[str, str], exit_codes: Sequence[int] = (0,)) -> Cost:
    """Its output goes to `command.log` in `cwd`. Raises CommandFailed, with the end of that output."""
    log = cwd / "command.log"
    with log.open("wb") as file:
        started_s = time.perf_counter()
        child = subprocess.Popen(
            command, cwd=cwd, env=dict(environ), stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - started_s
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in exit_codes:
        raise CommandFailed(f"{command[0]} ended with {child.returncode}:\n{log.read_text(errors='replace')[-2000:]}")
    kib = used.ru_maxrss / 1024 if sys.platform == "darwin" else used.ru_maxrss
    return Cost(wall_s, used.ru_utime + used.ru_stime, kib / 1024)


def process_cpu_s(pid: int) -> float:
    """CPU of all threads of a running process so far (Linux and FreeBSD: the clock behind clock_getcpuclockid)."""
    return time.clock_gettime((~pid << 3) | 2)


def marginal(few: Cost, many: Cost, rows: int) -> Marginal:
    """`rows`: how many more rows the second run had."""
    return Marginal(
        cpu_us=(many.cpu_s - few.cpu_s) / rows * 1e6,
        rows_per_s=rows / max(1e-9, many.wall_s - few.wall_s),
        peak_mib=many.peak_mib,
    )


def median(figures: Sequence[float]) -> float:
    return statistics.median(figures)


def spread(figures: Sequence[float], digits: int = 0) -> str:
    """`54 (51-58)`: the median, then the least and the largest."""
    if len(figures) == 1:
        return f"{figures[0]:,.{digits}f}"
    return f"{median(figures):,.{digits}f} ({min(figures):,.{digits}f}-{max(figures):,.{digits}f})"


def main() -> None:
    command = sys.argv[2:] if sys.argv[1:2] == ["--"] else sys.argv[1:]
    if not command:
        raise SystemExit("usage: python benchmarks/measure.py -- COMMAND [ARGUMENT ...]")
    started_s = time.perf_counter()
    child = subprocess.Popen(command)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - started_s
    cpu_s = used.ru_utime + used.ru_stime
    print(f"wall {wall_s:.2f} s, CPU {cpu_s:.2f} s, peak {used.ru_maxrss / 1024:.0f} MiB", file=sys.stderr)
    raise SystemExit(child.returncode)


if __name__ == "__main__":
    main()
