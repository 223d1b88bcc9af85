"""Real processes: what a batch turned to is told though whoever served was killed, and whoever settled the batch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from support.command_line import CommandLine, Started
from support.patience import PATIENCE_S
from support.webhook_receiver import HANG, receiving

ROWS = [{"model": "m", "messages": [{"role": "user", "content": f"w{number}"}]} for number in range(3)]
WEBHOOKS = "/v1/account/webhooks"
LOOKS = 2_000


class Serving:
    """`batchwright serve` in a process of its own, and a client with its first key."""

    def __init__(self, command: CommandLine, *more: str, key: str = "") -> None:
        self.started: Started = command.start(
            "serve", "--simulate", "--port", "0", *more, BATCHWRIGHT_WEBHOOK_ALLOW="127.0.0.1"
        )
        self.started.wait_for("Serving on ")
        if not key:
            self.started.wait_for("shown this once: ")
        said = self.started.said
        self.key = key or re.findall(r"shown this once: (\S+)", said)[0]
        address = re.findall(r"Serving on (http://[0-9.:]+)", said)[0]
        self.client = httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=PATIENCE_S,
            trust_env=False,
        )

    def post(self, path: str, body: object) -> dict[str, Any]:
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data

    def until_delivered(self, webhook_id: str) -> dict[str, Any]:
        """The receiver has the message before the service has written down that it was taken."""
        for _ in range(LOOKS):
            (item,) = self.client.get(f"{WEBHOOKS}/deliveries/{webhook_id}").json()["data"]["items"]
            if item["state"] == "delivered":
                found: dict[str, Any] = item
                return found
        raise AssertionError(f"it was never written down: {item}")


@contextmanager
def serving(command: CommandLine, *more: str, key: str = "") -> Iterator[Serving]:
    service = Serving(command, *more, key=key)
    try:
        yield service
    finally:
        service.client.close()
        service.started.kill()
        service.started.end()


def test_killed_between_the_end_and_its_delivery(command: CommandLine) -> None:
    with receiving(HANG, 200) as receiver:
        with serving(command) as service:
            hook = service.post(f"{WEBHOOKS}/register", {"url": receiver.url()})
            service.post("/v1/ai/batch/submit", {"requests": ROWS})
            receiver.wait_count(1)
            service.started.kill()
        with serving(command, key=service.key) as again:
            first, second = receiver.wait_count(2)
            item = again.until_delivered(hook["id"])
        assert first.event_id == second.event_id == item["event_id"]
        assert first.body == second.body
        assert second.is_signed_with(hook["secret"])


def test_what_another_process_settled_is_told_by_one_that_only_serves(command: CommandLine) -> None:
    with receiving() as receiver:
        with serving(command, "--no-work") as service:
            hook = service.post(f"{WEBHOOKS}/register", {"url": receiver.url()})
            batch_id = service.post("/v1/ai/batch/submit", {"requests": ROWS})["batch_id"]
            service.started.kill()
        assert command("work", "--until-idle").code == 0
        assert receiver.messages == []
        with serving(command, "--no-work", key=service.key) as again:
            (message,) = receiver.wait_count(1)
            again.until_delivered(hook["id"])
        assert message.json["data"]["batch_id"] == batch_id
        assert message.json["type"] == "batch.completed"
