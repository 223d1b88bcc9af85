"""Two services without workers and three workers, each of a place of its own, on one database: killed by chance.

One round: a batch of some hundred rows goes to either service, one of the five is killed when the vendor has seen so
many of them and is begun anew at once, and either service gives the answers out when the batch has ended.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from batchwright.store.open import open_store
from support.command_line import PATIENCE_S, CommandLine, Started
from support.scripted_vendor import ScriptedVendor
from support.service import chat
from support.service_process import BATCH, ServiceProcess
from support.shared_database import LEASE

T = TypeVar("T")

ROWS = 300
SERVICES, WORKERS = 2, 3


class Fleet:
    def __init__(self, folder: Path, url: str, vendor: ScriptedVendor, *, seed: int) -> None:
        self.url, self.vendor = url, vendor
        self.chance = random.Random(seed)
        self.landed = 0
        """Kills that came while their batch was under way."""
        self._stack = ExitStack()
        self.services = [
            ServiceProcess(self._place(folder / f"service{n}"), vendor, "--no-work") for n in range(SERVICES)
        ]
        self.places = [self._place(folder / f"worker{n}") for n in range(WORKERS)]
        for place in self.places:
            text = f"[vendors.scripted]\nbase_url = '{vendor.base_url}'\nconcurrency = 16\n"
            (place.folder / "batchwright.toml").write_text(text)
        self.workers: list[Started] = []

    def _place(self, folder: Path) -> CommandLine:
        return CommandLine(folder, BATCHWRIGHT_DATABASE=self.url, **LEASE)

    def __enter__(self) -> Self:
        first, second = self.services
        self._stack.enter_context(first)
        second.key = first.key
        self._stack.enter_context(second)
        self.workers = [self.work(place) for place in self.places]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def work(self, place: CommandLine) -> Started:
        started = place.start("work", "--progress", "none")
        self._stack.callback(started.end)
        self._stack.callback(started.kill)
        return started

    def asked(self, ask: Callable[[ServiceProcess], T]) -> T:
        """Of either service; of the other where one is away."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask(self.chance.choice(self.services))
            except (httpx.TransportError, AssertionError):
                if time.monotonic() > until_s:
                    raise

    def round(self, number: int) -> None:
        rows = [chat(f"r{number}w{row}") for row in range(ROWS)]
        body = {"requests": rows, "idempotency_key": f"round {number}"}

        def submit(service: ServiceProcess) -> str:
            answer = service.client.post(f"{BATCH}/submit", json=body)
            assert answer.status_code == 200, answer.text
            return str(answer.json()["data"]["batch_id"])

        seen = len(self.vendor.hits)
        batch_id = self.asked(submit)
        wanted = seen + self.chance.randint(1, ROWS * 4 // 5)
        self.vendor.wait_for(lambda vendor: len(vendor.hits) >= wanted, PATIENCE_S)
        self._kill_one(batch_id)
        status: dict[str, Any] = {"terminal": False}
        while not status["terminal"]:
            status = self.asked(lambda service: service.status(batch_id, wait=1))
        assert (status["state"], status["completed_count"]) == ("completed", ROWS), status
        items = self.asked(lambda service: service.results(batch_id))
        assert [item["request_index"] for item in items] == list(range(ROWS))
        said = [item["result"]["content"] for item in items]
        assert said == [f"r{number}w{row}" for row in range(ROWS)]

    def _kill_one(self, batch_id: str) -> None:
        """And begins it anew, when it has been seen whether the batch was under way still."""
        which = self.chance.randrange(SERVICES + WORKERS)
        service = self.services[which] if which < SERVICES else None
        if service is not None:
            service.kill()
        else:
            worker = self.workers[which - SERVICES]
            worker.kill()
            worker.end()
        self.landed += not self.asked(lambda service: service.status(batch_id))["terminal"]
        if service is not None:
            service.start()
        else:
            self.workers[which - SERVICES] = self.work(self.places[which - SERVICES])

    def holds(self) -> None:
        """Nothing is wrong with what any batch says of itself, and everybody who was not killed lives."""
        store = open_store(self.url)
        try:
            assert [found for batch in store.find_batches(limit=1_000) for found in store.check(batch.batch_id)] == []
        finally:
            store.close()
        assert [worker.process.poll() for worker in self.workers] == [None] * WORKERS
