"""One limit and several workers: how much of it they use, how often they trip it, and what a death costs.

    python benchmarks/shares.py [--workers 4] [--rpm 600] [--seconds 120] [--database URL]

A vendor in this process lets 600 requests through in any minute, wherever it begins, and answers 429 to the others.
Workers are `batchwright work` processes, each told the whole limit, on one state folder or database. After two thirds
of the time one is killed (SIGKILL): what comes through from ten seconds later on says whether its part is in use again.
What the figures mean is in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import cast

import httptools

ANSWER = (
    b'{"id":"c","object":"chat.completion","created":1790000000,"model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"fine"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1,'
    b'"total_tokens":10}}'
)
REFUSED = (
    b'{"error":{"message":"Rate limit reached","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}'
)
BODY = '{"model":"m","messages":[{"role":"user","content":"%d"}]}'
LATENCY_S = 0.2
BEGUN_S = 20.0
"""Until then workers may still be starting: four processes at once on a busy machine of two cores take some ten
seconds until the last of them sends."""
SHARED_AGAIN_S = 10.0
"""So long after a death its part of the limit is to be in use again."""


class Limited:
    """The vendor's account: what came when, and whether it was let through."""

    def __init__(self, rpm: int) -> None:
        self._rpm = rpm
        self._minute: deque[float] = deque()
        self.asked: list[tuple[float, bool]] = []
        self.base_url = ""

    def admit(self) -> bool:
        now_s = time.monotonic()
        while self._minute and self._minute[0] <= now_s - 60.0:
            self._minute.popleft()
        through = len(self._minute) < self._rpm
        if through:
            self._minute.append(now_s)
        self.asked.append((now_s, through))
        return through

    def through(self, from_s: float, until_s: float) -> int:
        return sum(through and from_s <= at_s < until_s for at_s, through in self.asked)

    def serve(self, ready: threading.Event) -> None:
        asyncio.run(self._serve(ready))

    async def _serve(self, ready: threading.Event) -> None:
        server = await asyncio.get_running_loop().create_server(lambda: Peer(self), "127.0.0.1", 0)
        self.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        ready.set()
        await server.serve_forever()


class Peer(asyncio.Protocol):
    """One connection; a client waits for its answer before it asks again."""

    def __init__(self, limited: Limited) -> None:
        self._limited = limited
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        status, body = (b"200 OK", ANSWER) if self._limited.admit() else (b"429 Too Many Requests", REFUSED)
        head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        asyncio.get_running_loop().call_later(LATENCY_S, self._write, head + body)

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rpm", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--database", default="", help="a PostgreSQL database, in place of a state folder")
    arguments = parser.parse_args()
    limited, ready = Limited(arguments.rpm), threading.Event()
    threading.Thread(target=limited.serve, args=(ready,), daemon=True).start()
    ready.wait()
    with tempfile.TemporaryDirectory() as folder:
        measure(arguments, limited, Path(folder))


def measure(arguments: argparse.Namespace, limited: Limited, folder: Path) -> None:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("BATCHWRIGHT_", "OPENAI_"))}
    environment = {**kept, "BATCHWRIGHT_HOME": str(folder / "state"), "HOME": str(folder)}
    if arguments.database:
        environment["BATCHWRIGHT_DATABASE"] = arguments.database
    (folder / "batchwright.toml").write_text(
        f"[vendors.limited]\nbase_url = '{limited.base_url}'\nrpm = {arguments.rpm}\n"
    )
    rows = int(arguments.rpm * (arguments.seconds / 60.0 + 2))
    line = f'{{"method":"POST","url":"/v1/chat/completions","body":{BODY}}}\n'
    (folder / "rows.jsonl").write_text("".join(line % number for number in range(rows)))

    def start(*command: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "batchwright", *command]
        return subprocess.Popen(words, cwd=folder, env=environment, stderr=subprocess.DEVNULL)

    # Taken in by a `run` that is cut short: from then on the workers have it.
    taking_in = start("run", "rows.jsonl", "-o", "out.jsonl")
    while not limited.asked:
        time.sleep(0.05)
    taking_in.send_signal(signal.SIGINT)
    taking_in.wait()
    began_s = time.monotonic()
    workers = [start("work", "--progress", "none") for _ in range(arguments.workers)]
    try:
        time.sleep(arguments.seconds * 2 / 3)
        workers[0].kill()
        killed_s = time.monotonic()
        time.sleep(arguments.seconds / 3)
        end_s = time.monotonic()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    show(limited, (began_s + BEGUN_S, killed_s, end_s), arguments.rpm)


def show(limited: Limited, moments: tuple[float, float, float], rpm: int) -> None:
    begun_s, killed_s, end_s = moments

    def used(from_s: float, until_s: float) -> float:
        return limited.through(from_s, until_s) / (rpm * (until_s - from_s) / 60.0)

    asked = [through for at_s, through in limited.asked if at_s >= begun_s]
    print(f"of the limit used while all worked: {used(begun_s, killed_s):.1%}")
    print(f"in the {SHARED_AGAIN_S:.0f} s after one was killed: {used(killed_s, killed_s + SHARED_AGAIN_S):.1%}")
    print(f"from then on: {used(killed_s + SHARED_AGAIN_S, end_s):.1%}")
    print(f"answers that were 429: {asked.count(False) / len(asked):.2%} of {len(asked):,}")


if __name__ == "__main__":
    main()
