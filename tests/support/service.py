"""The service in this process: the real assembly, store, worker and HTTP server, on a thread and a loop of its own.

    with serving(tmp_path) as service:                        # answers come from the simulator
        service.post("/v1/ai/batch/submit", {"requests": [chat("hello")]}).json()["data"]["batch_id"]
    with serving(tmp_path, vendor) as service: ...            # from a `ScriptedVendor`, which can hold its answers

What a test asks goes through a real socket. `service.client()` is a plain `httpx.Client` with the first key.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from batchwright.assemble.keys import create_key, revoke_key
from batchwright.assemble.service import ServeRequest, serve_until
from batchwright.core.tenants import LOCAL_ACCOUNT, Scope
from batchwright.runner.interrupts import CountedInterrupts
from batchwright.server.new_key import KeyWish
from batchwright.server.service import Ceilings
from batchwright.settings import Settings
from support.patience import PATIENCE_S
from support.scripted_vendor import ScriptedVendor
from support.settings_places import Places

BATCH = "/v1/ai/batch"
LONG_POLL_S = 20
DATABASE: ContextVar[str] = ContextVar("DATABASE", default="")
"""The server's database that services here work on; empty: a state file in the folder of each."""
PROJECT = "grace = 0.2\n"
"""Settings of every service here: a test that ends while rows are out does not wait for them."""


def chat(text: str, *, model: str = "m", **body: object) -> dict[str, Any]:
    """A row as Infrai's users submit it: a flat chat body."""
    return {"model": model, "messages": [{"role": "user", "content": text}], **body}


def chats(count: int, *, model: str = "m") -> list[dict[str, Any]]:
    return [chat(f"w{number}", model=model) for number in range(count)]


@dataclass
class RunningService:
    settings: Settings
    base_url: str = ""
    key: str = ""
    """The first key, with every scope, of the account `local`."""
    said: list[str] = field(default_factory=list)
    """What it told the person at the terminal."""
    clients: list[httpx.Client] = field(default_factory=list)
    stop: Callable[[], None] = lambda: None
    """Ends it, as Ctrl-C does; returns when it has ended."""

    def client(self, key: str | None = None) -> httpx.Client:
        """Asks with this key (the first; "" for none) and is closed with the service."""
        key = self.key if key is None else key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        client = httpx.Client(base_url=self.base_url, headers=headers, timeout=PATIENCE_S, trust_env=False)
        self.clients.append(client)
        return client

    def new_key(
        self,
        account: str = LOCAL_ACCOUNT,
        *,
        scopes: frozenset[Scope] = frozenset(Scope),
        expires_s: float = 0.0,
        budget_picousd: int = -1,
        rpm: int = 0,
    ) -> str:
        """Made as `batchwright keys create` makes one, beside the service that runs."""
        text, _, _ = asyncio.run(
            create_key(
                self.settings,
                KeyWish(
                    account=account,
                    name="a test's",
                    scopes=scopes,
                    expires_s=expires_s,
                    budget_picousd=budget_picousd,
                    rpm=rpm,
                ),
            )
        )
        return text

    def revoke(self, key: str) -> None:
        asyncio.run(revoke_key(self.settings, key))

    # ------------------------------------------------------------------------------------- with the first key's client

    def get(self, path: str, **parameters: Any) -> httpx.Response:
        return self.clients[0].get(path, params=parameters)

    def post(self, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.clients[0].post(path, json=body, headers=dict(headers or {}))

    def submit(self, rows: list[dict[str, Any]], **fields: object) -> str:
        """The new batch's id."""
        answer = self.post(f"{BATCH}/submit", {"requests": rows, **fields})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["data"]["batch_id"])

    def status(self, batch_id: str, **parameters: Any) -> dict[str, Any]:
        answer = self.get(f"{BATCH}/status/{batch_id}", **parameters)
        assert answer.status_code == 200, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data

    def until(self, batch_id: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The batch's status once this holds of it."""
        until_s = time.monotonic() + PATIENCE_S
        status = self.status(batch_id)
        while not condition(status):
            assert time.monotonic() < until_s, f"it never came true; the last status: {status}"
            status = self.status(batch_id, wait=LONG_POLL_S, seen=status["version"])
        return status

    def ended(self, batch_id: str) -> dict[str, Any]:
        return self.until(batch_id, lambda status: bool(status["terminal"]))

    def results(self, batch_id: str, **parameters: Any) -> list[dict[str, Any]]:
        """All items, page by page."""
        items: list[dict[str, Any]] = []
        cursor: str | None = "0"
        while cursor is not None:
            data = self.get(f"{BATCH}/results/{batch_id}", cursor=cursor, **parameters).json()["data"]
            items += data["items"]
            cursor = data["next_cursor"]
        return items


@contextmanager
def serving(
    folder: Path,
    vendor: ScriptedVendor | None = None,
    *,
    project: str = "",
    environment: Mapping[str, str] | None = None,
    works: bool = True,
    ceilings: Ceilings | None = None,
    key: str = "",
    vendor_settings: str = "",
    user: str = "",
    simulate: bool = True,
) -> Iterator[RunningService]:
    """`project`: more of `batchwright.toml`; `vendor_settings`: of the scripted vendor's table, in the user's own file.
    `user`: that whole file, where no scripted vendor is given.
    Without a vendor the simulator answers, unless `simulate` is False: then what the settings and this machine have.
    `works` False: nobody does. `key`: of a service that ran in this folder before: a first key is made and told only
    once."""
    folder.mkdir(parents=True, exist_ok=True)
    places = Places(folder, project=PROJECT + project)
    database = {"BATCHWRIGHT_DATABASE": url} if (url := DATABASE.get()) else {}
    places.environment = {"BATCHWRIGHT_HOME": str(folder / "state"), **database, **(environment or {})}
    places.user = user
    if vendor is not None:
        places.user = f"[vendors.scripted]\nbase_url = '{vendor.base_url}'\n{vendor_settings}"
    settings = places.load(simulate=simulate and vendor is None)
    service = RunningService(settings, key=key)
    request = ServeRequest(host="127.0.0.1", port=0, works=works, ceilings=ceilings or Ceilings())
    thread = _Thread(service, request)
    service.stop = thread.stop
    with thread:
        service.client()
        try:
            yield service
        finally:
            for client in service.clients:
                client.close()


class _Thread:
    def __init__(self, service: RunningService, request: ServeRequest) -> None:
        self._service, self._request = service, request
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S), "the service did not start"
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._interrupts.raise_count()
        self._interrupts.raise_count()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the service did not end"

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if self._error is not None and kind is None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._interrupts = CountedInterrupts(asyncio.get_running_loop())
        await serve_until(self._interrupts, self._service.settings, self._request, say=self._hear, show=self._hear)

    def _hear(self, text: str) -> None:
        service = self._service
        service.said.append(text)
        if text.startswith("{"):  # log = 'json'
            text = json.loads(text).get("message", "")
        if text.startswith("Serving on "):
            service.base_url = text.removeprefix("Serving on ").split(";")[0]
        if text.startswith("The first key"):
            service.key = text.rsplit(" ", 1)[1]
        if service.base_url and service.key:
            self._ready.set()
