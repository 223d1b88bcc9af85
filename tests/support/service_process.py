"""`batchwright serve` as a process of its own, which a test may signal and kill; and a client of what it serves.

command = CommandLine(tmp_path)
with ServiceProcess(command, vendor) as service:       # `--port 0`: the address is on its stderr
    service.client.post("/v1/ai/batch/submit", ...)
    service.kill(); service.start()                    # in the same folder, under the same key
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import httpx

from support.command_line import CommandLine, Ended, Started
from support.patience import PATIENCE_S
from support.scripted_vendor import ScriptedVendor

BATCH = "/v1/ai/batch"
LONG_POLL_S = 20


class ServiceProcess:
    def __init__(
        self, command: CommandLine, vendor: ScriptedVendor | None = None, *options: str, concurrency: int = 16
    ) -> None:
        """Without a vendor the simulator answers. `concurrency`: rows in flight, at most."""
        self.command = command
        self._options = options if vendor is not None else (*options, "--simulate")
        if vendor is not None:
            self.write_project(f"[vendors.scripted]\nbase_url = '{vendor.base_url}'\nconcurrency = {concurrency}\n")
        self.key = ""
        self.started: Started | None = None
        self.client = httpx.Client()

    def write_project(self, text: str) -> None:
        (self.command.folder / "batchwright.toml").write_text(text)

    def start(self, *, program: tuple[str, ...] | None = None) -> None:
        """Returns when it listens."""
        self.started = self.command.start("serve", "--port", "0", *self._options, program=program)
        said = self.started.wait_for_match(r"Serving on (http://\S+?);")
        if not self.key:
            self.key = self.started.wait_for_match(r"(bw_[0-9a-f]{64})")
        self.client.close()
        self.client = httpx.Client(
            base_url=said, headers={"Authorization": f"Bearer {self.key}"}, timeout=PATIENCE_S, trust_env=False
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        if self.started is not None and self.started.process.poll() is None:
            self.started.kill()
            self.started.end()

    @property
    def running(self) -> Started:
        assert self.started is not None, "it was not started"
        return self.started

    def signal(self, number: signal.Signals) -> None:
        self.running.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and its end."""
        self.running.kill()
        assert self.running.end().code == -signal.SIGKILL

    def end(self) -> Ended:
        return self.running.end()

    # ----------------------------------------------------------------------------------------------------- asking it

    def submit(self, rows: list[dict[str, Any]], **fields: object) -> str:
        answer = self.client.post(f"{BATCH}/submit", json={"requests": rows, **fields})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["data"]["batch_id"])

    def status(self, batch_id: str, **parameters: Any) -> dict[str, Any]:
        answer = self.client.get(f"{BATCH}/status/{batch_id}", params=parameters)
        assert answer.status_code == 200, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data

    def until(self, batch_id: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The batch's status once this holds of it; a batch that has ended, and a service that has, change no more."""
        until_s = time.monotonic() + PATIENCE_S
        status = self.status(batch_id)
        while not condition(status):
            assert time.monotonic() < until_s, f"it never came true; the last status: {status}"
            assert not status["terminal"], f"it ended before that came true: {status}"
            assert self.running.process.poll() is None
            status = self.status(batch_id, wait=LONG_POLL_S, seen=status["version"])
        return status

    def ended(self, batch_id: str) -> dict[str, Any]:
        return self.until(batch_id, lambda status: bool(status["terminal"]))

    def results(self, batch_id: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        cursor: str | None = "0"
        while cursor is not None:
            answer = self.client.get(f"{BATCH}/results/{batch_id}", params={"cursor": cursor, "limit": 1000})
            data = answer.json()["data"]
            items += data["items"]
            cursor = data["next_cursor"]
        return items
