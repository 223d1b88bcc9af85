"""Every route, as the application has it: without a key, without the scope, and for what belongs to another account.

A new route is asked by itself. One with a parameter of a new kind needs a line in `Makers`: how an account comes to own
such a thing.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from starlette.routing import Route

from batchwright.core.tenants import Scope
from batchwright.server.app import build_app
from batchwright.server.auth import Doorkeeper
from batchwright.server.infrai import routes as native
from batchwright.server.infrai.discovery import discovery_of
from batchwright.server.openai import routes as openai
from batchwright.server.service import Service
from support.patience import PATIENCE_S
from support.service import BATCH, RunningService, chats, serving

ASKING = ("GET", "POST", "PUT", "PATCH", "DELETE")
PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
BARE = frozenset({"/healthz", "/readyz"})
"""These need no key, and their answers are read by machines that know no envelope."""


def _routes() -> list[tuple[str, str]]:
    # No request is made of it: only its table of routes is read.
    app = build_app(cast(Service, SimpleNamespace(open_metrics=False)), cast(Doorkeeper, None))
    found = [
        (method, route.path)
        for route in app.routes
        if isinstance(route, Route)
        for method in sorted(route.methods or ())
        if method in ASKING
    ]
    assert found
    return found


ROUTES = _routes()
OWNED = [route for route in ROUTES if set(PARAMETER.findall(route[1])) - {"capability", "model"}]
"""What names a capability or a model is the same for all accounts."""


@dataclass
class Account:
    """An account, its client with every scope, and what it owns, made when first asked for."""

    service: RunningService
    client: httpx.Client
    owned: dict[str, str] = field(default_factory=dict)

    def own(self, parameter: str) -> str:
        if parameter not in self.owned:
            self.owned[parameter] = Makers[parameter](self.client)
        return self.owned[parameter]


def _batch(client: httpx.Client) -> str:
    """One that has ended: it does not change by itself."""
    batch_id = str(client.post(f"{BATCH}/submit", json={"requests": chats(2)}).json()["data"]["batch_id"])
    until_s = time.monotonic() + PATIENCE_S
    while not client.get(f"{BATCH}/status/{batch_id}").json()["data"]["terminal"]:
        assert time.monotonic() < until_s
    return batch_id


def _key(client: httpx.Client) -> str:
    return str(client.post("/v1/account/keys/create", json={}).json()["data"]["key_id"])


def _file(client: httpx.Client) -> str:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": chats(1)[0]}
    sent = {"file": ("rows.jsonl", json.dumps(line).encode()), "purpose": (None, b"batch")}
    return str(client.post("/v1/files", files=sent).json()["id"])


def _webhook(client: httpx.Client) -> str:
    """Nobody listens there: its deliveries wait for their next attempt."""
    body = {"url": "http://127.0.0.1:9/hook"}
    return str(client.post("/v1/account/webhooks/register", json=body).json()["data"]["id"])


def _delivery(client: httpx.Client) -> str:
    webhook_id = _webhook(client)
    _batch(client)
    until_s = time.monotonic() + PATIENCE_S
    while not (items := client.get(f"/v1/account/webhooks/deliveries/{webhook_id}").json()["data"]["items"]):
        assert time.monotonic() < until_s
    return str(items[0]["id"])


Makers: dict[str, Callable[[httpx.Client], str]] = {
    "batch_id": _batch,
    "key_id": _key,
    "file_id": _file,
    "webhook_id": _webhook,
    "delivery_id": _delivery,
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with serving(tmp_path_factory.mktemp("tenancy"), project="webhook_allow = ['127.0.0.1']\n") as service:
        yield service


@pytest.fixture(scope="module")
def one(running: RunningService) -> Account:
    return Account(running, running.client(running.new_key("one")))


@pytest.fixture(scope="module")
def other(running: RunningService) -> httpx.Client:
    return running.client(running.new_key("other"))


def ask(client: httpx.Client, method: str, path: str) -> httpx.Response:
    body = {"priority": 1} if "/priority/" in path else {}
    with client.stream(method, path, json=None if method == "GET" else body) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return answer  # it has no end of its own; status and headers are here
        answer.read()
        return answer


def filled(path: str, value: Callable[[str], str]) -> str:
    return PARAMETER.sub(lambda found: value(found[1]), path)


def said(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    return error


def nowhere(owned: str) -> str:
    """An id of the same shape that names nothing."""
    prefix, mark, digits = re.fullmatch(r"(\w+)([_-])([0-9a-f]+)", owned).groups()  # type: ignore[union-attr]
    return f"{prefix}{mark}{'0' * len(digits)}"


@pytest.mark.parametrize(("method", "path"), OWNED)
def test_what_is_anothers_is_not_there(one: Account, other: httpx.Client, method: str, path: str) -> None:
    mine = filled(path, lambda name: one.own(name) if name in Makers else "x")
    before = one.client.get(f"{BATCH}/status/{one.own('batch_id')}").json()["data"]
    strangers = ask(other, method, mine)
    missing = ask(other, method, filled(path, lambda name: nowhere(one.own(name)) if name in Makers else "x"))
    assert strangers.status_code == 404
    assert missing.status_code == 404
    blank = {one.own(name): "ID" for name in PARAMETER.findall(path) if name in Makers}
    blank |= {nowhere(name): "ID" for name in blank}
    texts = []
    for answer in (strangers, missing):
        text = str(said(answer))
        for name, word in blank.items():
            text = text.replace(name, word)
        texts.append(text)
    assert texts[0] == texts[1], "another's is told apart from what is not there"
    assert one.client.get(f"{BATCH}/status/{one.own('batch_id')}").json()["data"] == before


@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if route not in OWNED and route[0] == "GET"])
def test_lists_show_nothing_of_anothers(one: Account, other: httpx.Client, method: str, path: str) -> None:
    for parameter in Makers:
        one.own(parameter)
    answer = ask(other, method, filled(path, lambda _: "x"))
    assert [owned for owned in one.owned.values() if owned in answer.text] == []


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_a_key_or_with_a_wrong_one_only_public_routes_answer(
    running: RunningService, one: Account, method: str, path: str
) -> None:
    place = filled(path, lambda name: one.own(name) if name in Makers else "x")
    for key in ("", "bw_" + "0" * 64):
        answer = ask(running.client(key), method, place)
        if answer.status_code != 401:
            assert path in public_paths(), f"{method} {path} answers {answer.status_code} without a key"
        else:
            assert path not in public_paths()
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert answer.headers["X-Request-Id"]


@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES])
def test_a_key_without_any_scope_gets_no_further_than_public_routes(
    running: RunningService, one: Account, method: str, path: str
) -> None:
    place = filled(path, lambda name: one.own(name) if name in Makers else "x")
    bare = running.client(running.new_key("one", scopes=frozenset()))
    assert (ask(bare, method, place).status_code == 403) is (path not in public_paths())


def public_paths() -> frozenset[str]:
    return BARE | {one.path for one in (*native.CAPABILITIES, *discovery_of(native.CAPABILITIES)) if one.scope is None}


@pytest.mark.parametrize("lacking", list(Scope))
def test_routes_ask_for_the_scope_of_their_table(running: RunningService, one: Account, lacking: Scope) -> None:
    client = running.client(running.new_key("one", scopes=frozenset(Scope) - {lacking}))
    table = [(row.method, row.path, row.scope) for row in native.CAPABILITIES]
    table += [(method, path, scope) for method, path, _, scope in openai.ROUTES]
    for method, path, scope in table:
        place = filled(path, lambda name: nowhere(one.own(name)) if name in Makers else "x")
        answer = ask(client, method, place)
        assert (answer.status_code == 403) is (scope is lacking), f"{method} {path}: {answer.status_code}"
