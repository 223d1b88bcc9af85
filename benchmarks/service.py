"""The benchmarks of the service: `serve --no-work` in a process of its own, one `work` beside it where rows are sent.

    python benchmarks/service.py submit     10,000 rows (10 MB) in one JSON array, until the answer is there
    python benchmarks/service.py stream     1,000,000 rows (1 GB) as lines into one batch: time, CPU and peak memory
    python benchmarks/service.py polls      statuses, and pages of 100 results (the same; one after another), a second
    python benchmarks/service.py dispatch   CPU a row of `work` and `serve` together, beside that of `run`
    python benchmarks/service.py export     1,000,000 rows as lines
    python benchmarks/service.py watchers   1,000 event streams on one running batch: CPU of `serve`
    python benchmarks/service.py all

Linux only, for the memory and CPU of a running process. What they mean is in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import platform
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import vendor
from measure import FEW_ROWS, MANY_ROWS, median, process_cpu_s, spread
from ours import CONCURRENCY, Bench, batchwright

POLLERS = 16
POLL_S = 5.0
WALK_ROWS = 250
"""From where one of them starts to where the next does."""
WATCHERS = 1_000
WATCH_S = 10.0
START_S = 30.0
STREAM_BYTES = 1024 * 1024


class Served:
    """A running `serve`, by its address and first key."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, key: str) -> None:
        self.process = process
        self.port = port
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """The envelope's data."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, body, {**self.headers, **(headers or {})})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert answer["ok"], answer
        return answer["data"]

    def until_terminal(self, batch_id: str) -> Any:
        while True:
            status = self.ask("GET", f"/v1/ai/batch/status/{batch_id}?wait=30")
            if status["terminal"]:
                return status

    def peak_mib(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) / 1024


class ServiceBenchmarks:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._rounds: int = arguments.rounds
        self._port: int = arguments.port
        self._many: int = arguments.many
        self._bench = Bench(arguments.folder)
        arguments.folder.mkdir(parents=True, exist_ok=True)
        self._bench.warm_up()

    # ------------------------------------------------------------------------------------------------------- the cases

    def submit(self) -> None:
        body = self._array(10_000)
        with serving(self._bench, "http://127.0.0.1:9/v1") as served:
            served.ask("POST", "/v1/ai/batch/submit", body)  # the first one opens threads and connections
            times_ms = []
            for _ in range(3 * self._rounds):
                started_s = time.perf_counter()
                served.ask("POST", "/v1/ai/batch/submit", body)
                times_ms.append((time.perf_counter() - started_s) * 1000)
        print(f"submit of 10,000 rows, {len(body) / 1e6:.1f} MB: {spread(times_ms)} ms")

    def stream(self) -> None:
        rows = self._bench.rows(self._many)
        with serving(self._bench, "http://127.0.0.1:9/v1") as served:
            idle_mib, cpu_s = served.peak_mib(), process_cpu_s(served.process.pid)
            started_s = time.perf_counter()
            status = upload(served, rows)
            wall_s = time.perf_counter() - started_s
            assert status["total_count"] == self._many, status
            print(
                f"{self._many:,} rows ({rows.stat().st_size / 2**20:,.0f} MiB) as lines: {wall_s:.1f} s, CPU "
                f"{process_cpu_s(served.process.pid) - cpu_s:.1f} s, peak {served.peak_mib():.0f} MiB "
                f"({idle_mib:.0f} before)"
            )

    def polls(self) -> None:
        with vendor.start(self._port) as started, serving(self._bench, started.url(500)) as served, self._working():
            batch_id = upload(served, self._bench.rows(MANY_ROWS))["batch_id"]
            for what, path in (
                ("status", f"status/{batch_id}"),
                ("the same results page", f"results/{batch_id}?limit=100"),
                ("one results page after another", f"results/{batch_id}?limit=100&cursor="),
            ):
                asked, cpu_s = asyncio.run(self._poll(served, f"/v1/ai/batch/{path}"))
                print(f"{what} while a batch runs: {asked / POLL_S:,.0f} a second, {cpu_s / asked * 1e6:.0f} us of CPU")
            served.ask("POST", f"/v1/ai/batch/cancel/{batch_id}", "{}")

    def dispatch(self) -> None:
        through, alone = [], []
        with vendor.start(self._port) as started:
            for _ in range(self._rounds):
                alone.append(self._bench.marginal(started.url(50)).cpu_us)
                few, many = (self._through_service(count, started.url(50)) for count in (FEW_ROWS, MANY_ROWS))
                through.append((many - few) / (MANY_ROWS - FEW_ROWS) * 1e6)
        print(f"CPU a row: run {spread(alone)} us, service {spread(through)} us (uploaded, sent, exported)")
        print(f"    {median(through) / median(alone):.2f} times that of `run`")

    def export(self) -> None:
        with vendor.start(self._port) as started, serving(self._bench, started.url(0)) as served:
            with self._working():
                batch_id = upload(served, self._bench.rows(self._many))["batch_id"]
                served.until_terminal(batch_id)
            before_mib = served.peak_mib()
            started_s, cpu_s = time.perf_counter(), process_cpu_s(served.process.pid)
            lines = self._download(served, f"/v1/ai/batch/export/{batch_id}.jsonl")
            wall_s = time.perf_counter() - started_s
            assert lines == self._many, lines
            print(
                f"export of {lines:,} rows: {lines / wall_s:,.0f} rows/s, "
                f"{(process_cpu_s(served.process.pid) - cpu_s) / lines * 1e6:.1f} us of CPU a row, "
                f"peak {served.peak_mib():.0f} MiB ({before_mib:.0f} before)"
            )

    def watchers(self) -> None:
        with vendor.start(self._port) as started, serving(self._bench, started.url(500)) as served, self._working():
            batch_id = upload(served, self._bench.rows(MANY_ROWS))["batch_id"]
            events, cpu_s = asyncio.run(self._watch(served, f"/v1/ai/batch/events/{batch_id}"))
            share = cpu_s / WATCH_S
            print(f"{WATCHERS:,} watchers of one running batch: {share:.3f} of a core, {events:,} events delivered")
            served.ask("POST", f"/v1/ai/batch/cancel/{batch_id}", "{}")

    # --------------------------------------------------------------------------------------------------- the processes

    @contextmanager
    def _working(self) -> Iterator[subprocess.Popen[bytes]]:
        command = batchwright("work", "--progress", "none")
        environ = self._bench.environ({"BATCHWRIGHT_CONCURRENCY": str(CONCURRENCY)})
        process = subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)

    def _through_service(self, rows: int, base_url: str) -> float:
        """CPU of both processes, from the upload to the last line."""
        with serving(self._bench, base_url) as served, self._working() as worker:
            before_s = process_cpu_s(served.process.pid) + process_cpu_s(worker.pid)
            batch_id = upload(served, self._bench.rows(rows))["batch_id"]
            status = served.until_terminal(batch_id)
            assert status["completed_count"] == rows, status
            assert self._download(served, f"/v1/ai/batch/export/{batch_id}.jsonl") == rows
            return process_cpu_s(served.process.pid) + process_cpu_s(worker.pid) - before_s

    # ---------------------------------------------------------------------------------------------------- what is asked

    def _array(self, rows: int) -> bytes:
        lines = self._bench.rows(rows).read_bytes().splitlines()
        return b'{"requests":[%b]}' % b",".join(line.split(b'"body":', 1)[1][:-1].strip() for line in lines)

    @staticmethod
    def _download(served: Served, path: str) -> int:
        """How many lines it has."""
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=600)
        connection.request("GET", path, headers={**served.headers, "Accept-Encoding": "identity"})
        answer, lines = connection.getresponse(), 0
        while piece := answer.read(STREAM_BYTES):
            lines += piece.count(b"\n")
        connection.close()
        return lines

    @staticmethod
    async def _poll(served: Served, path: str) -> tuple[int, float]:
        """(requests answered, CPU seconds of the service) in `POLL_S`, by `POLLERS` kept connections. A path that ends
        in `cursor=` is walked, by each of them from a place of its own, and again from the start."""
        before_s, until_s = process_cpu_s(served.process.pid), time.perf_counter() + POLL_S

        walks = path.endswith("cursor=")

        async def poll(start: int) -> int:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            rest = f" HTTP/1.1\r\nHost: b\r\nAuthorization: {served.headers['Authorization']}\r\n\r\n"
            cursor = str(start) if walks else ""
            asked = 0
            while time.perf_counter() < until_s:
                writer.write(f"GET {path}{cursor}{rest}".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                assert b" 200 " in head[:20], head
                found = re.search(rb"content-length: (\d+)", head)
                assert found is not None
                body = await reader.readexactly(int(found[1]))
                if walks:
                    following = re.search(rb'"next_cursor":"(\d+)"', body)
                    cursor = following[1].decode() if following else "0"
                asked += 1
            writer.close()
            return asked

        asked = sum(await asyncio.gather(*(poll(WALK_ROWS * number) for number in range(POLLERS))))
        return asked, process_cpu_s(served.process.pid) - before_s

    @staticmethod
    async def _watch(served: Served, path: str) -> tuple[int, float]:
        """(events read, CPU seconds of the service) in `WATCH_S`, once all watch."""
        request = f"GET {path} HTTP/1.1\r\nHost: b\r\nAuthorization: {served.headers['Authorization']}\r\n\r\n"
        events = 0

        async def watch() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(request.encode())
            await reader.readuntil(b"\r\n\r\n")
            return reader, writer

        async def count(reader: asyncio.StreamReader) -> None:
            nonlocal events
            while piece := await reader.read(65_536):
                events += piece.count(b"\nid: ") + piece.count(b"\r\nid: ")

        opened = [await watch() for _ in range(WATCHERS)]
        before_s = process_cpu_s(served.process.pid)
        counting = [asyncio.create_task(count(reader)) for reader, _ in opened]
        await asyncio.sleep(WATCH_S)
        cpu_s = process_cpu_s(served.process.pid) - before_s
        for task in counting:
            task.cancel()
        for _, writer in opened:
            writer.close()
        return events, cpu_s


@contextmanager
def serving(bench: Bench, base_url: str, environ: Mapping[str, str] | None = None) -> Iterator[Served]:
    """A service without a worker, on a fresh state folder."""
    bench.fresh_state()
    command = batchwright("serve", "--no-work", "--port", "0", "--base-url", base_url, "--api-key-env", "")
    log = bench.folder / "serve.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=bench.environ(environ), stdin=subprocess.DEVNULL, stderr=file)
    try:
        yield Served(process, *_address(log))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def upload(served: Served, rows: Path) -> Any:
    """The status of the batch that the lines of the file make."""

    def pieces() -> Iterator[bytes]:
        with rows.open("rb") as file:
            while piece := file.read(STREAM_BYTES):
                yield piece

    return served.ask("POST", "/v1/ai/batch/submit", pieces(), {"Content-Type": "application/x-ndjson"})


def _address(log: Path) -> tuple[int, str]:
    """(port, key), as `serve` says them at its start."""
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        text = log.read_text()
        port, key = re.search(r"http://127\.0\.0\.1:(\d+)", text), re.search(r"\bbw_[0-9a-f]+", text)
        if port is not None and key is not None:
            return int(port[1]), key[0]
        time.sleep(0.05)
    raise SystemExit(f"serve did not come up: {log.read_text()}")


CASES = ("submit", "stream", "polls", "dispatch", "export", "watchers")


def main() -> None:
    parser = argparse.ArgumentParser(description="the benchmarks of the service")
    parser.add_argument("case", choices=(*CASES, "all"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=vendor.DEFAULT_PORT)
    parser.add_argument("--many", type=int, default=1_000_000, help="rows of `stream` and `export`")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "batchwright-bench")
    arguments = parser.parse_args()
    benchmarks = ServiceBenchmarks(arguments)
    for case in CASES if arguments.case == "all" else (arguments.case,):
        before, started_s = os.getloadavg()[0], time.monotonic()
        getattr(benchmarks, case)()
        print(
            f"    [{case}: {time.monotonic() - started_s:.0f} s; {os.cpu_count()} cores, load {before:.1f} before and "
            f"{os.getloadavg()[0]:.1f} after; Python {platform.python_version()}]",
            flush=True,
        )


if __name__ == "__main__":
    main()
