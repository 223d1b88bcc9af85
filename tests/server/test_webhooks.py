"""Webhooks over HTTP, with the real service and a receiver of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchwright.core.tenants import Scope
from support.scripted_vendor import ScriptedVendor
from support.service import RunningService, chat, chats, serving
from support.webhook_receiver import Receiver, receiving

WEBHOOKS = "/v1/account/webhooks"
LOOKS = 2_000
ALLOW_LOOPBACK = "webhook_allow = ['127.0.0.1']\n"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def told(tmp_path: Path, vendor: ScriptedVendor) -> Iterator[RunningService]:
    """A service that may send to loopback."""
    with serving(tmp_path, vendor, project=ALLOW_LOOPBACK) as service:
        yield service


def register(service: RunningService, url: str, **fields: Any) -> dict[str, Any]:
    answer = service.post(f"{WEBHOOKS}/register", {"url": url, **fields})
    assert answer.status_code == 200, answer.text
    data: dict[str, Any] = answer.json()["data"]
    return data


def deliveries(service: RunningService, webhook_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = service.get(f"{WEBHOOKS}/deliveries/{webhook_id}").json()["data"]["items"]
    return items


def until_delivered(service: RunningService, webhook_id: str, count: int = 1) -> list[dict[str, Any]]:
    """A receiver has a message before the service has written down that it was taken."""
    for _ in range(LOOKS):
        items = deliveries(service, webhook_id)
        if sum(item["state"] == "delivered" for item in items) >= count:
            return items
    raise AssertionError(f"it was never written down: {items}")


def test_an_end_is_told_signed(told: RunningService, receiver: Receiver) -> None:
    hook = register(told, receiver.url(), description="ops", headers={"X-Team": "blue"})
    batch_id = told.submit(chats(3), metadata={"job": "nightly"})
    (message,) = receiver.wait_count(1)
    assert message.is_signed_with(hook["secret"])
    assert not message.is_signed_with(hook["secret"] + "x")
    assert message.headers["x-team"] == "blue"
    assert message.headers["content-type"] == "application/json"
    said = message.json
    assert (said["type"], said["data"]["batch_id"], said["data"]["terminal"]) == ("batch.completed", batch_id, True)
    assert said["data"]["completed_count"] == 3
    assert said["timestamp"] == said["data"]["finished_at"]
    status = told.status(batch_id)
    assert {name: said["data"][name] for name in said["data"]} == {name: status[name] for name in said["data"]}
    (item,) = until_delivered(told, hook["id"])
    assert (item["event_id"], item["attempts"], item["http_status"]) == (message.event_id, 1, 200)


def test_the_pages_own_check_takes_a_message(told: RunningService, receiver: Receiver) -> None:
    """The function of docs/webhooks.md, as people copy it."""
    page = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], names)
    hook = register(told, receiver.url())
    told.submit(chats(1))
    (message,) = receiver.wait_count(1)
    assert names["is_genuine"](hook["secret"], message.headers, message.body)
    assert not names["is_genuine"](hook["secret"], message.headers, message.body + b" ")
    assert not names["is_genuine"](hook["secret"], {**message.headers, "webhook-timestamp": "1700000000"}, message.body)


def test_a_secret_of_the_callers_own_signs_and_is_never_shown(told: RunningService, receiver: Receiver) -> None:
    hook = register(told, receiver.url(), secret="correct horse battery")
    assert hook["secret"] is None
    told.submit(chats(1))
    assert receiver.wait_count(1)[0].is_signed_with("correct horse battery")
    assert "correct horse" not in told.get(f"{WEBHOOKS}/list").text
    assert "correct horse" not in "\n".join(told.said)


def test_each_round_is_an_event_of_its_own(told: RunningService, receiver: Receiver) -> None:
    register(told, receiver.url())
    batch_id = told.submit([*chats(1), chat("[[status=400 times=1]] later")])
    first = receiver.wait_count(1)[0]
    assert told.post(f"/v1/ai/batch/retry/{batch_id}", {}).status_code == 200
    second = receiver.wait_count(2)[1]
    assert [(one.json["type"], one.json["data"]["round"]) for one in (first, second)] == [
        ("batch.partial", 0),
        ("batch.completed", 1),
    ]
    assert first.event_id != second.event_id


def test_a_pause_is_an_event(told: RunningService, receiver: Receiver, vendor: ScriptedVendor) -> None:
    register(told, receiver.url())
    vendor.set(hold=True)
    batch_id = told.submit(chats(1))
    vendor.wait_for(lambda seen: bool(seen.hits), 30.0)
    assert told.post(f"/v1/ai/batch/pause/{batch_id}", {"reason": "for the night"}).status_code == 200
    (message,) = receiver.wait_count(1)
    said = message.json
    assert (said["type"], said["data"]["state"], said["data"]["paused_reason"]) == (
        *("batch.paused", "paused", "for the night"),
    )
    vendor.set(hold=False)


def test_events_are_chosen(told: RunningService, receiver: Receiver) -> None:
    hook = register(told, receiver.url("/failed"), events=["batch.failed"])
    register(told, receiver.url("/all"), events=["*"])
    told.submit(chats(1))
    receiver.wait_count(1)
    assert [message.path for message in receiver.messages] == ["/all"]
    assert deliveries(told, hook["id"]) == []


def test_one_batch_has_a_webhook_of_its_own(told: RunningService, receiver: Receiver) -> None:
    body = {"requests": chats(1), "webhook": receiver.url("/own"), "idempotency_key": "k"}
    answer = told.post("/v1/ai/batch/submit", body).json()["data"]
    own = answer["webhook"]
    told.ended(told.submit(chats(2)))
    until_delivered(told, own["id"])
    (message,) = receiver.messages
    assert message.is_signed_with(own["secret"])
    assert message.json["data"]["batch_id"] == answer["batch_id"]
    assert told.get(f"{WEBHOOKS}/list").json()["data"]["items"] == []
    again = told.post("/v1/ai/batch/submit", body).json()["data"]["webhook"]
    assert again == {**own, "secret": None}


def test_a_replay_sends_the_same_event_again(told: RunningService, receiver: Receiver) -> None:
    hook = register(told, receiver.url())
    told.submit(chats(1))
    (item,) = until_delivered(told, hook["id"])
    replayed = told.post(f"{WEBHOOKS}/replay/{item['id']}").json()["data"]
    assert replayed["state"] == "pending"
    first, second = receiver.wait_count(2)
    assert first.event_id == second.event_id
    assert first.body == second.body


def test_another_account_neither_fires_nor_sees(told: RunningService, receiver: Receiver) -> None:
    other = told.client(told.new_key("other"))
    theirs = other.post(f"{WEBHOOKS}/register", json={"url": receiver.url("/theirs")}).json()["data"]
    ours = register(told, receiver.url("/ours"))
    told.submit(chats(1))
    (item,) = until_delivered(told, ours["id"])
    assert [message.path for message in receiver.messages] == ["/ours"]
    assert [hook["id"] for hook in other.get(f"{WEBHOOKS}/list").json()["data"]["items"]] == [theirs["id"]]
    for answer in (
        other.get(f"{WEBHOOKS}/deliveries/{ours['id']}"),
        other.post(f"{WEBHOOKS}/delete/{ours['id']}"),
        other.post(f"{WEBHOOKS}/replay/{item['id']}"),
        other.get(f"{WEBHOOKS}/deliveries/wh_{'0' * 24}"),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NOT_FOUND")


def test_what_is_deleted_is_told_nothing(told: RunningService, receiver: Receiver) -> None:
    gone = register(told, receiver.url("/gone"))
    register(told, receiver.url("/kept"))
    assert told.post(f"{WEBHOOKS}/delete/{gone['id']}").json()["data"] == {"id": gone["id"], "deleted": True}
    told.submit(chats(1))
    receiver.wait_count(1)
    assert [message.path for message in receiver.messages] == ["/kept"]
    assert told.post(f"{WEBHOOKS}/delete/{gone['id']}").status_code == 404


def test_registration_is_idempotent(told: RunningService, receiver: Receiver) -> None:
    first = register(told, receiver.url(), idempotency_key="once")
    again = told.post(f"{WEBHOOKS}/register", {"url": receiver.url(), "idempotency_key": "once"})
    assert again.json()["data"] == {**first, "secret": None}
    assert again.headers["idempotency-replayed"] == "true"
    other = told.post(f"{WEBHOOKS}/register", {"url": receiver.url("/x"), "idempotency_key": "once"})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    assert len(told.get(f"{WEBHOOKS}/list").json()["data"]["items"]) == 1


def test_scopes(told: RunningService, receiver: Receiver) -> None:
    reader = told.client(told.new_key(scopes=frozenset({Scope.READ, Scope.SUBMIT})))
    hook = register(told, receiver.url())
    assert reader.get(f"{WEBHOOKS}/list").status_code == 200
    assert reader.get(f"{WEBHOOKS}/deliveries/{hook['id']}").status_code == 200
    assert reader.post(f"{WEBHOOKS}/register", json={"url": receiver.url()}).status_code == 403
    assert reader.post(f"{WEBHOOKS}/delete/{hook['id']}").status_code == 403
    assert reader.post(f"{WEBHOOKS}/replay/dlv_{'0' * 24}").status_code == 403


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "url"),
        ({"url": "ftp://example.com"}, "url"),
        ({"url": "http://10.0.0.1/"}, "url"),
        ({"url": "http://2130706433/"}, "url"),
        ({"url": "http://localhost.example/x y"}, "url"),
        ({"url": "http://127.0.0.1/", "events": ["dns.domain.verified"]}, "events"),
        ({"url": "http://127.0.0.1/", "events": []}, "events"),
        ({"url": "http://127.0.0.1/", "events": "all"}, "events"),
        ({"url": "http://127.0.0.1/", "secret": "short"}, "secret"),
        ({"url": "http://127.0.0.1/", "headers": {"Webhook-Id": "x"}}, "headers"),
        ({"url": "http://127.0.0.1/", "headers": {"a": "b\r\nc: d"}}, "headers"),
        ({"url": "http://127.0.0.1/", "retries": 3}, "retries"),
    ],
)
def test_what_cannot_be_registered_names_the_field(told: RunningService, body: dict[str, Any], param: str) -> None:
    answer = told.post(f"{WEBHOOKS}/register", body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error.get("param")) == (400, "INVALID_REQUEST", param), error


def test_a_submit_with_a_bad_webhook_keeps_nothing(told: RunningService) -> None:
    for fields in ({"webhook": "http://169.254.169.254/x"}, {"webhook_secret": "correct horse"}):
        answer = told.post("/v1/ai/batch/submit", {"requests": chats(1), **fields})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(fields)))


def test_without_a_list_loopback_is_refused(service: RunningService, receiver: Receiver) -> None:
    answer = service.post(f"{WEBHOOKS}/register", {"url": receiver.url()})
    assert answer.status_code == 400
    assert "this machine itself" in answer.json()["error"]["message"]
