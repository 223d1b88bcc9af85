"""Two services without workers and three workers, each of a place of its own, on one database: killed by chance.

One round: a batch of some hundred rows goes to either service, one of the five is killed when the vendor has seen so
many of them and is begun anew at once, perhaps several times, and either service gives the answers out when the batch
has ended.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from batchwright.core.money import PICO
from batchwright.store.open import open_store
from support.command_line import CommandLine, Started
from support.patience import PATIENCE_S
from support.scripted_vendor import ScriptedVendor
from support.service import chat
from support.service_process import BATCH, ServiceProcess
from support.shared_database import LEASE

T = TypeVar("T")

ROWS = 300
SERVICES, WORKERS = 2, 3
PRICES = """
[[price]]
pattern = "m"
input = "1"
output = "2"
"""
ROW_PICOUSD = 14 * PICO // 10**6
"""Of one answer, 10 tokens in and 2 out, by PRICES."""


class Fleet:
    def __init__(self, folder: Path, url: str, vendor: ScriptedVendor, *, seed: int) -> None:
        self.url, self.vendor = url, vendor
        self.chance = random.Random(seed)
        self.landed = 0
        """Kills that came while their batch was under way."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prices.toml").write_text(PRICES)
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
        prices = str(self.folder / "prices.toml")
        return CommandLine(folder, BATCHWRIGHT_DATABASE=self.url, BATCHWRIGHT_PRICES=prices, **LEASE)

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

    def round(self, number: int, *, rows: int = ROWS, kills: int = 1) -> None:
        sent = [chat(f"r{number}w{row}") for row in range(rows)]
        body = {"requests": sent, "idempotency_key": f"round {number}"}

        def submit(service: ServiceProcess) -> str:
            answer = service.client.post(f"{BATCH}/submit", json=body)
            assert answer.status_code == 200, answer.text
            return str(answer.json()["data"]["batch_id"])

        batch_id = self.asked(submit)
        for _ in range(kills):
            wanted = len(self.vendor.hits) + self.chance.randint(1, rows * 4 // (5 * kills))
            while not self.asked(lambda service: service.status(batch_id))["terminal"]:
                with suppress(TimeoutError):
                    self.vendor.wait_for(lambda vendor, wanted=wanted: len(vendor.hits) >= wanted, 1.0)  # type: ignore[misc]
                    break
            self._kill_one(batch_id)
        status: dict[str, Any] = {"terminal": False}
        while not status["terminal"]:
            status = self.asked(lambda service: service.status(batch_id, wait=1))
        assert (status["state"], status["completed_count"]) == ("completed", rows), status
        items = self.asked(lambda service: service.results(batch_id))
        assert [item["request_index"] for item in items] == list(range(rows))
        said = [item["result"]["content"] for item in items]
        assert said == [f"r{number}w{row}" for row in range(rows)]

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

    def twice(self) -> int:
        """Answers that the vendor gave to rows which had got one already."""
        given = Counter(hit.text for hit in self.vendor.hits if hit.outcome == "200")
        return sum(count - 1 for count in given.values())

    def holds(self) -> None:
        """Nothing is wrong with what any batch says of itself, each row was paid for as often as the batches say and no
        row costs anything but its answer; everybody who was not killed lives."""
        store = open_store(self.url)
        try:
            batches = store.find_batches(limit=1_000)
            assert [found for batch in batches for found in store.check(batch.batch_id)] == []
            for batch in batches:
                assert batch.tally.cost_picousd == ROW_PICOUSD * batch.facts.total
            stated = sum(batch.tally.doubts + batch.tally.orphans for batch in batches)
        finally:
            store.close()
        assert self.twice() <= stated
        assert [worker.process.poll() for worker in self.workers] == [None] * WORKERS
