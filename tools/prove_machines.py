"""Shows that nothing is lost where several machines share a database and an object store, all of them on this one.

    python tools/prove_machines.py                   1,000,000 rows, two of three workers killed on the way
    python tools/prove_machines.py --rows 20000
    python tools/prove_machines.py --ray             the workers are actors of a Ray cluster that is begun here

The parts of deploy/compose.yaml in processes of their own, on loopback: a PostgreSQL server, an S3 server, two
`serve --no-work` and three `work`. The rows go in through one service and are read from the other. The vendor is the
tests' scripted one, in several processes: it echoes the last word of each row and fails 2% of all requests.

It must end with a completed batch and one line for each row, in order, `ok`, with the row's own word. Exits 1 if not.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.left_behind import children_of
from support.object_server import KEYS, ObjectServer
from support.postgres import PostgresServer
from support.vendor_process import VendorProcess

WORKERS = 3
KILLS = 2
ACTOR = "ray::WorkerActor"
CPUS_AN_ACTOR = 0.5
FAULTS_PERCENT = 2.0
START_S = 60.0
LOOK_S = 0.2
PIECE_BYTES = 1024 * 1024
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "autovacuum": "on"}


def main() -> int:
    parser = argparse.ArgumentParser(description="Shows that nothing is lost where several machines share a store.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--ray", action="store_true")
    given = parser.parse_args()
    with ExitStack() as stack:
        proof = _Proof(stack, given.rows, ray=given.ray)
        problems = proof.run()
    for problem in problems:
        print(f"  DOES NOT HOLD: {problem}", flush=True)
    return 1 if problems else 0


class _Proof:
    def __init__(self, stack: ExitStack, rows: int, *, ray: bool) -> None:
        self._stack = stack
        self._rows = rows
        self._ray = ray
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="batchwright-")))
        server = PostgresServer(DURABLE)
        stack.callback(server.close)
        objects = ObjectServer()
        stack.callback(objects.close)
        self._vendor = stack.enter_context(VendorProcess())
        self._vendor.set(fail_percent=FAULTS_PERCENT)
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("BATCHWRIGHT_", "OPENAI_"))}
        self._environ = {
            **kept,
            **KEYS,
            "BATCHWRIGHT_DATABASE": server.empty_database(),
            "BATCHWRIGHT_BLOBS": objects.url(),
            "BATCHWRIGHT_BLOBS_ENDPOINT": objects.endpoint,
            "BATCHWRIGHT_LEASE": "10s",
            "BATCHWRIGHT_HEARTBEAT": "2s",
        }

    def run(self) -> list[str]:
        subprocess.run(_command("db", "upgrade"), env=self._own("schema"), check=True)
        first, second = (self._stack.enter_context(self._service(number)) for number in (1, 2))
        workers = self._start_workers()
        began_s = time.monotonic()
        batch_id = first.ask("POST", "/v1/ai/batch/submit", self._lines())["batch_id"]
        took_in_s = time.monotonic() - began_s
        for number in range(KILLS):
            if not _until_ended(second, batch_id, (number + 1) * self._rows // (KILLS + 2)):
                return ["the batch had ended before the last kill"]
            os.kill(workers[number], signal.SIGKILL)
            print(f"  killed worker {number + 1} of {WORKERS} at {time.monotonic() - began_s:.0f} s", flush=True)
        while not (status := second.ask("GET", f"/v1/ai/batch/status/{batch_id}?wait=30"))["terminal"]:
            pass
        wall_s = time.monotonic() - began_s
        problems = self._problems(second, batch_id, status)
        print(
            f"{self._rows:,} rows in {wall_s:.0f} s ({took_in_s:.0f} s of them to take them in): {status['state']}; "
            f"the vendor was asked {self._vendor.account()['count']:,} times",
            flush=True,
        )
        return problems

    def _start_workers(self) -> list[int]:
        """Their processes. Ray begins an actor again that was killed; of the others two fewer go on."""
        quiet = ("work", "--progress", "none")
        if not self._ray:
            return [self._start(*quiet, place=f"worker-{number}").pid for number in range(WORKERS)]
        bounds = (f"--ray-min={WORKERS}", f"--ray-max={WORKERS}", f"--ray-cpus={CPUS_AN_ACTOR}")
        fleet = self._start(*quiet, "--ray", "local", *bounds, place="fleet")
        until_s = time.monotonic() + START_S
        while len(actors := [pid for pid, line in children_of(fleet.pid).items() if ACTOR in line]) < WORKERS:
            if fleet.poll() is not None or time.monotonic() > until_s:
                raise SystemExit(f"no {WORKERS} actors came up: {(self._folder / 'fleet.log').read_text()}")
            time.sleep(LOOK_S)
        return actors

    def _lines(self) -> Iterator[bytes]:
        piece = bytearray()
        for row in range(self._rows):
            piece += b'{"body":{"model":"m","messages":[{"role":"user","content":"Say word%d"}]}}\n' % row
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        yield bytes(piece)

    def _problems(self, service: _Service, batch_id: str, status: Any) -> list[str]:
        problems = [] if status["state"] == "completed" else [f"the batch is {status['state']}: {status}"]
        seen = 0
        for line in service.lines(f"/v1/ai/batch/export/{batch_id}.jsonl"):
            row = json.loads(line)
            if row["request_index"] != seen:
                problems.append(f"line {seen + 1} is row {row['request_index']}")
            elif not row["ok"]:
                problems.append(f"row {seen} ended as {row['error']['kind']}")
            elif row["result"]["content"] != f"word{seen}":
                problems.append(f"row {seen} has the answer {row['result']['content']!r}")
            seen += 1
            if len(problems) > 10:
                return problems
        return problems if seen == self._rows else [*problems, f"{seen:,} lines"]

    @contextmanager
    def _service(self, number: int) -> Iterator[_Service]:
        log = self._folder / f"serve-{number}.log"
        process = self._start(
            *("serve", "--no-work", "--port", "0", "--log", "quiet", "-m", "m"),
            *("--base-url", self._vendor.base_url, "--api-key-env", ""),
            place=f"api-{number}",
            log=log,
        )
        until_s = time.monotonic() + START_S
        while (port := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())) is None:
            if process.poll() is not None or time.monotonic() > until_s:
                raise SystemExit(f"serve did not come up: {log.read_text()}")
            time.sleep(LOOK_S)
        made = subprocess.run(
            _command("keys", "create", "--name", f"proof {number}"),
            env=self._own(f"api-{number}"),
            check=True,
            capture_output=True,
            text=True,
        )
        key = re.search(r"\bbw_[0-9a-f]+", made.stdout + made.stderr)
        assert key is not None, made
        yield _Service(int(port[1]), key[0])

    def _start(self, *arguments: str, place: str, log: Path | None = None) -> subprocess.Popen[bytes]:
        with (log or self._folder / f"{place}.log").open("wb") as file:
            process = subprocess.Popen(
                _command(*arguments),
                env=self._own(place),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self._stack.callback(_end, process)
        return process

    def _own(self, place: str) -> dict[str, str]:
        """Each as if on a machine of its own: a state folder that no other has."""
        return {**self._environ, "BATCHWRIGHT_HOME": str(self._folder / place)}


class _Service:
    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/x-ndjson"}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The envelope's data."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=3600)
        connection.request(method, path, body, self._headers, encode_chunked=body is not None)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert answer["ok"], answer
        return answer["data"]

    def lines(self, path: str) -> Iterator[bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=3600)
        connection.request("GET", path, headers={**self._headers, "Accept-Encoding": "identity"})
        yield from connection.getresponse()
        connection.close()


def _until_ended(service: _Service, batch_id: str, rows: int) -> bool:
    """Until so many rows have ended; False if the batch has."""
    while not (status := service.ask("GET", f"/v1/ai/batch/status/{batch_id}"))["terminal"]:
        if status["completed_count"] + status["failed_count"] >= rows:
            return True
        time.sleep(LOOK_S)
    return False


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "batchwright", *arguments]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    process.wait(60)


if __name__ == "__main__":
    sys.exit(main())
