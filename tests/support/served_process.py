"""`batchwright serve` in a process of its own, and the stock `openai` SDK with its first key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import openai

from support.command_line import CommandLine, Started
from support.patience import PATIENCE_S
from support.service import BATCH, LONG_POLL_S

WATCHED = ("-m", "support.watched_command")


class ServedProcess:
    def __init__(self, started: Started, base_url: str, key: str) -> None:
        self.started, self.base_url, self.key = started, base_url, key
        self.sdk = openai.OpenAI(base_url=f"{base_url}/v1", api_key=key, timeout=PATIENCE_S, max_retries=0)
        self.http = httpx.Client(
            base_url=base_url, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE_S, trust_env=False
        )

    def ended(self, batch_id: str) -> dict[str, Any]:
        """The batch's status (of Infrai's face) once it is terminal."""
        while True:
            answer = self.http.get(f"{BATCH}/status/{batch_id}", params={"wait": LONG_POLL_S})
            assert answer.status_code == 200, answer.text
            status: dict[str, Any] = answer.json()["data"]
            if status["terminal"]:
                return status


@contextmanager
def served(
    command: CommandLine, *options: str, key: str = "", program: Sequence[str] | None = None
) -> Iterator[ServedProcess]:
    """`key`: of a service that ran in this folder before. `program`: what Python runs in place of the command."""
    started = command.start("serve", "--port", "0", *(options or ("--simulate",)), program=program)
    try:
        started.wait_for("Serving on ")
        if not key:
            started.wait_for("shown this once: ")
            key = re.findall(r"shown this once: (\S+)", started.said)[0]
        service = ServedProcess(started, re.findall(r"Serving on (http://[0-9.:]+)", started.said)[0], key)
        with service.http, service.sdk:
            yield service
    finally:
        started.kill()
        started.end()


def killed_at(command: CommandLine, point: str) -> tuple[str, ...]:
    """The program of a service that is killed at this point (`support.watched_command`)."""
    return (*WATCHED, str(command.folder / "account"), point)
