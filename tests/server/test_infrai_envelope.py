"""Who may ask, and the envelope around every answer: also around what is no route, no method and no JSON."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from batchwright.core.tenants import Scope
from batchwright.server.service import Ceilings
from batchwright.wire.error_codes import CALL_CODES
from support.service import BATCH, RunningService, chats, serving


def refusal(answer: httpx.Response) -> dict[str, Any]:
    """The error of an answer in the envelope, held against the table of codes."""
    body: dict[str, Any] = answer.json()
    assert set(body) == {"ok", "data", "error", "metadata"}
    assert (body["ok"], body["data"]) == (False, None)
    error: dict[str, Any] = body["error"]
    assert error.keys() >= {"code", "message", "hint", "retryable"}
    code = CALL_CODES[error["code"]]
    assert (answer.status_code, error["retryable"]) == (code.http_status, code.retryable)
    assert set(body["metadata"]) == {"request_id", "latency_ms", "cost_usd", "vendor", "cache_hit"}
    assert answer.headers["x-request-id"] == body["metadata"]["request_id"]
    return error


def test_every_answer_is_in_the_envelope(scripted: RunningService) -> None:
    answer = scripted.post(f"{BATCH}/submit", {"requests": chats(1)})
    body = answer.json()
    assert set(body) == {"ok", "data", "error", "metadata"}
    assert body["metadata"]["request_id"] == answer.headers["x-request-id"]
    assert body["metadata"]["request_id"][14] == "7", "a UUID of version 7"


@pytest.mark.parametrize(
    ("authorization", "said"),
    [
        ("", "No key was sent"),
        ("Bearer", "No key was sent"),
        ("Basic abc", "No key was sent"),
        (f"Bearer {'x' * 600}", "No key was sent"),
        (f"Bearer bw_{'0' * 64}", "not known"),
    ],
)
def test_without_a_key_nothing_is_answered(service: RunningService, authorization: str, said: str) -> None:
    client = service.client("")
    headers = {"Authorization": authorization} if authorization else {}
    for answer in (
        client.post(f"{BATCH}/submit", json={"requests": chats(1)}, headers=headers),
        client.get(f"{BATCH}/list", headers=headers),
    ):
        error = refusal(answer)
        assert (error["code"], said in error["message"]) == ("UNAUTHORIZED", True)
        assert answer.headers["www-authenticate"] == "Bearer"


def test_a_scope_bounds_what_a_key_may_do(service: RunningService) -> None:
    reader = service.client(service.new_key(scopes=frozenset({Scope.READ})))
    sender = service.client(service.new_key(scopes=frozenset({Scope.SUBMIT})))
    batch_id = service.submit(chats(1))
    assert reader.get(f"{BATCH}/status/{batch_id}").status_code == 200
    assert sender.post(f"{BATCH}/submit", json={"requests": chats(1)}).status_code == 200
    refused = [sender.get(f"{BATCH}/{route}") for route in (f"status/{batch_id}", f"results/{batch_id}", "list")]
    refused += [
        reader.post(f"{BATCH}/{call}/{batch_id}")
        for call in ("cancel", "pause", "resume", "priority", "retry", "delete")
    ]
    refused.append(reader.post(f"{BATCH}/submit", json={"requests": chats(1)}))
    for answer in refused:
        assert refusal(answer)["code"] == "FORBIDDEN"


def test_a_key_that_was_revoked_or_has_expired_is_refused(service: RunningService) -> None:
    old, late = service.new_key(), service.new_key(expires_s=0.001)
    service.revoke(old)
    for key, said in ((old, "was revoked"), (late, "has expired")):
        assert said in refusal(service.client(key).get(f"{BATCH}/list"))["message"]


def test_a_pace_is_kept_to_and_says_when(service: RunningService) -> None:
    slow = service.client(service.new_key(rpm=1))
    answers = [slow.get(f"{BATCH}/list") for _ in range(20)]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert answers[0].status_code == 200
    assert {refusal(answer)["code"] for answer in refused} == {"RATE_LIMITED"}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)


def test_another_accounts_batch_is_one_that_is_not_there(service: RunningService) -> None:
    batch_id = service.submit(chats(1))
    service.ended(batch_id)
    other = service.client(service.new_key("other"))
    never = refusal(other.get(f"{BATCH}/status/batch_{'0' * 24}"))
    asked = [other.get(f"{BATCH}/{route}/{batch_id}") for route in ("status", "results")]
    asked += [other.post(f"{BATCH}/{call}/{batch_id}") for call in ("cancel", "pause", "resume", "retry", "delete")]
    asked.append(other.post(f"{BATCH}/priority/{batch_id}", json={"priority": 1}))
    for answer in asked:
        assert refusal(answer) == never
    assert service.status(batch_id)["state"] == "completed"


@pytest.mark.parametrize("batch_id", ["batch_1", "nonsense", "batch_" + "A" * 24, "batch_%00", "%2e%2e", "a" * 5_000])
def test_what_cannot_be_an_id_is_one_that_is_not_there(service: RunningService, batch_id: str) -> None:
    assert refusal(service.get(f"{BATCH}/status/{batch_id}"))["code"] == "NOT_FOUND"


def test_no_route_and_no_method_are_told_in_the_envelope(service: RunningService) -> None:
    assert refusal(service.get("/v1/ai/batch/nonsense"))["code"] == "NOT_FOUND"
    assert refusal(service.get("/"))["code"] == "NOT_FOUND"
    wrong = service.get(f"{BATCH}/submit")
    assert refusal(wrong)["code"] == "METHOD_NOT_ALLOWED"
    assert wrong.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("content", "code", "param"),
    [
        (b"", "INVALID_JSON", None),
        (b"{", "INVALID_JSON", None),
        (b'{"requests": [{}]} x', "INVALID_JSON", None),
        (b'{"requests": [NaN}', "INVALID_JSON", None),
        (b"\xff\xfe", "INVALID_JSON", None),
        (b"[" * 100_000, "INVALID_REQUEST", None),
        (b'{"requests": [' + b"[" * 100_000, "INVALID_REQUEST", None),
        (b"[]", "INVALID_REQUEST", None),
        (b"{}", "INVALID_REQUEST", "requests"),
        (b'{"requests": []}', "INVALID_REQUEST", "requests"),
        (b'{"requests": {}}', "INVALID_REQUEST", "requests"),
        (b'{"requests": [{}], "batch_timout": 5}', "INVALID_REQUEST", "batch_timout"),
        (b'{"requests": [{}], "batch_timeout": "soon"}', "INVALID_REQUEST", "batch_timeout"),
        (b'{"requests": [{}], "batch_timeout": 1e400}', "INVALID_REQUEST", "batch_timeout"),
        (b'{"requests": [{}], "batch_timeout": ' + b"9" * 400 + b"}", "INVALID_REQUEST", "batch_timeout"),
        (b'{"requests": [{}], "max_attempts": ' + b"9" * 400 + b"}", "INVALID_REQUEST", "max_attempts"),
        (b'{"requests": [{}], "max_cost_usd": ' + b"9" * 400 + b"}", "INVALID_REQUEST", "max_cost_usd"),
        (b'{"requests": [{}], "max_cost_usd": -1}', "INVALID_REQUEST", "max_cost_usd"),
        (b'{"requests": [{}], "on_gate": "maybe"}', "INVALID_REQUEST", "on_gate"),
        (b'{"requests": [{}], "metadata": {"a": {}}}', "INVALID_REQUEST", "metadata"),
    ],
)
def test_a_body_that_is_no_batch_is_refused_whole(
    service: RunningService, content: bytes, code: str, param: str | None
) -> None:
    answer = service.clients[0].post(f"{BATCH}/submit", content=content, headers={"Content-Type": "application/json"})
    error = refusal(answer)
    assert (error["code"], error.get("param")) == (code, param), error
    assert len(error["message"]) < 500, "what was sent is shown, not sent back"
    assert service.get(f"{BATCH}/list").json()["data"]["items"] == []


def test_a_compressed_body_is_not_taken(service: RunningService) -> None:
    answer = service.post(f"{BATCH}/submit", {"requests": chats(1)}, {"Content-Encoding": "gzip"})
    assert refusal(answer)["code"] == "UNSUPPORTED_MEDIA_TYPE"


def test_a_ceiling_that_is_passed_is_named_and_nothing_is_kept(tmp_path: Any) -> None:
    ceilings = Ceilings(rows=3, array_bytes=2_000, row_bytes=500)
    with serving(tmp_path, ceilings=ceilings) as service:
        many = service.post(f"{BATCH}/submit", {"requests": chats(4)})
        assert (refusal(many)["code"], "at most 3" in many.text) == ("BATCH_REJECTED", True)
        row = service.post(f"{BATCH}/submit", {"requests": [*chats(1), {"model": "m", "messages": "x" * 600}]})
        assert (refusal(row)["code"], "requests[1] has" in row.text) == ("BATCH_REJECTED", True)
        body = service.post(f"{BATCH}/submit", {"requests": [{"messages": "x" * 3_000}]})
        assert (refusal(body)["code"], "at most 2,000" in body.text) == ("BATCH_REJECTED", True)
        assert service.get(f"{BATCH}/list").json()["data"]["items"] == []
