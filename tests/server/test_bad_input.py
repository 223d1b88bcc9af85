"""What no client should send: a clear answer in the envelope, nothing kept, and the service goes on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from batchwright.server.service import Ceilings
from batchwright.wire.error_codes import CALL_CODES
from support.raw_asking import ask_raw
from support.service import BATCH, RunningService, chat, serving

SUBMIT = f"{BATCH}/submit"
JSON = "Content-Type: application/json"
NOBODY = f"batch_{'0' * 24}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder: Path = tmp_path_factory.mktemp("bad_input")
    with serving(folder, works=False, ceilings=Ceilings(array_bytes=2_000_000, silent_s=0.2)) as service:
        yield service
        assert service.get(f"{BATCH}/list").json()["data"]["items"] == [], "nothing of all this was kept"


def refused(answer: httpx.Response, code: str) -> dict[str, Any]:
    body = answer.json()
    assert (answer.status_code, body["error"]["code"]) == (CALL_CODES[code].http_status, code), answer.text
    assert body.keys() == {"ok", "data", "error", "metadata"}
    assert (body["ok"], body["data"]) == (False, None)
    assert body["error"]["message"]
    assert body["metadata"]["request_id"] == answer.headers["x-request-id"]
    error: dict[str, Any] = body["error"]
    return error


def submit(service: RunningService, body: bytes, *headers: str) -> httpx.Response:
    return ask_raw(service, "POST", SUBMIT, *(headers or (JSON,)), f"Content-Length: {len(body)}", body=body)


ROW = json.dumps(chat("one")).encode()
DEEP = b"[" * 200_000 + b"]" * 200_000

NO_BATCH: dict[str, tuple[bytes, str, str]] = {
    "nothing": (b"", "INVALID_JSON", ""),
    "no JSON": (b"requests", "INVALID_JSON", ""),
    "cut off": (b'{"requests":[' + ROW, "INVALID_JSON", ""),
    "two values": (b'{"requests":[' + ROW + b"]} {}", "INVALID_JSON", ""),
    "infinity": (b'{"requests":[' + ROW + b'],"batch_timeout":-Infinity}', "INVALID_JSON", ""),
    "not UTF-8": (b'{"requests":["\xff\xfe"],"metadata":{"\xff":1}}', "INVALID_JSON", ""),
    "UTF-16": ('{"requests":[]}'.encode("utf-16"), "INVALID_JSON", ""),
    "a number": (b"5", "INVALID_REQUEST", ""),
    "an array": (b"[" + ROW + b"]", "INVALID_REQUEST", ""),
    "null": (b"null", "INVALID_REQUEST", ""),
    "no requests": (b"{}", "INVALID_REQUEST", "requests"),
    "requests are null": (b'{"requests":null}', "INVALID_REQUEST", "requests"),
    "requests are an object": (b'{"requests":{"0":1}}', "INVALID_REQUEST", "requests"),
    "requests are none": (b'{"requests":[]}', "INVALID_REQUEST", "requests"),
    "nested too deeply": (b'{"requests":[' + ROW + b'],"metadata":' + DEEP + b"}", "INVALID_REQUEST", "metadata"),
    "requests twice": (b'{"requests":[' + ROW + b'],"requests":[5]}', "INVALID_REQUEST", "requests"),
    "metadata twice": (b'{"metadata":{"a":1},"requests":[' + ROW + b'],"metadata":{}}', "INVALID_REQUEST", "metadata"),
    "a metadata field twice": (b'{"metadata":{"a":1,"a":2},"requests":[' + ROW + b"]}", "INVALID_REQUEST", "a"),
    "a row without end": (b'{"requests":[' + ROW + b",[[" + ROW + b"]}", "INVALID_JSON", ""),
    "a number without end": (
        b'{"requests":[' + ROW + b'],"max_attempts":' + b"9" * 9_000 + b"}",
        "INVALID_REQUEST",
        "max_attempts",
    ),
    "an unknown field": (b'{"requests":[' + ROW + b'],"priority":1}', "INVALID_REQUEST", "priority"),
    "metadata are text": (b'{"requests":[' + ROW + b'],"metadata":"a"}', "INVALID_REQUEST", "metadata"),
    "no timeout": (
        b'{"requests":[' + ROW + b'],"batch_timeout":"soon"}',
        "INVALID_REQUEST",
        "batch_timeout",
    ),
    "a cost below nothing": (b'{"requests":[' + ROW + b'],"max_cost_usd":-1}', "INVALID_REQUEST", "max_cost_usd"),
    "a cost beyond reason": (b'{"requests":[' + ROW + b'],"max_cost_usd":1e300}', "INVALID_REQUEST", "max_cost_usd"),
    "a key that is none": (
        b'{"requests":[' + ROW + b'],"idempotency_key":5}',
        "INVALID_REQUEST",
        "idempotency_key",
    ),
}


@pytest.mark.parametrize("name", NO_BATCH)
def test_what_is_no_batch(service: RunningService, name: str) -> None:
    body, code, param = NO_BATCH[name]
    assert refused(submit(service, body), code).get("param", "") == param


ODD_ROWS = [
    b"5",
    b"null",
    b'"text"',
    b"[]",
    b'{"messages":5}',
    b'{"model":5,"messages":[]}',
    b'{"messages":[{"role":"user","content":"\\ud83d"}],"custom_id":"\\ud83d"}',
    b'{"messages":[],"messages":7}',
    b'{"messages":[{"role":"user","content":1e999}],"n":1e999}',
    b'{"capability":"ai.dance","body":{}}',
    b'{"url":"/v1/../admin","body":{"messages":[]}}',
]


def test_a_row_that_is_none_fails_alone(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        body = b'{"requests":[' + b",".join([*ODD_ROWS, ROW]) + b"]}"
        answer = submit(service, body)
        batch_id = answer.json()["data"]["batch_id"]
        service.ended(batch_id)
        items = service.results(batch_id, include="response")
        assert len(items) == len(ODD_ROWS) + 1
        assert [item["request_index"] for item in items] == list(range(len(items)))
        assert items[-1]["ok"] is True
        assert {item["ok"] for item in items[:6]} == {False}


BROKEN_ROWS = {
    "no number": b'{"messages":[{"role":"user","content":"a"}],"n":NaN}',
    "a number out of range": b'{"messages":[{"role":"user","content":"a"}],"max_tokens":1e999}',
    "nested too deeply": b'{"messages":' + DEEP + b"}",
    "control characters": b'{"messages":[{"role":"user","content":"\x01"}]}',
    "not UTF-8": b'{"messages":[{"role":"user","content":"\xff"}]}',
    "a word": b"undefined",
}


@pytest.mark.parametrize("name", BROKEN_ROWS)
def test_a_row_of_an_array_that_cannot_be_read_fails_alone(tmp_path: Path, name: str) -> None:
    rows = [b'{"messages":[{"role":"user","content":"\\ud83d"}]}', BROKEN_ROWS[name], ROW]
    with serving(tmp_path) as service:
        answer = submit(service, b'{"requests":[' + b",".join(rows) + b'],"metadata":{"a":"\\ud83d"}}')
        status = service.ended(answer.json()["data"]["batch_id"])
        assert (status["total_count"], status["error_kinds"]) == (3, {"invalid_row": 1})
        items = service.results(status["batch_id"])
        assert [item["ok"] for item in items] == [True, False, True]
        assert items[1]["error"]["kind"] == "invalid_row"


def test_a_body_above_its_ceiling_is_refused_by_its_header(service: RunningService) -> None:
    answer = ask_raw(service, "POST", SUBMIT, JSON, "Content-Length: 1000000000")
    assert "1,000,000,000" in refused(answer, "BATCH_REJECTED")["message"]
    small = ask_raw(service, "POST", f"{BATCH}/cancel/{NOBODY}", JSON, "Content-Length: 1000000000")
    refused(small, "BODY_TOO_LARGE")


def test_a_body_above_its_ceiling_is_refused_as_it_arrives(service: RunningService) -> None:
    chunk = b'{"requests":["' + b"x" * 3_000_000
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(chunk), chunk)
    refused(ask_raw(service, "POST", SUBMIT, JSON, "Transfer-Encoding: chunked", body=body), "BATCH_REJECTED")


def test_a_body_that_does_not_come_is_given_up(service: RunningService) -> None:
    answer = ask_raw(service, "POST", SUBMIT, JSON, "Content-Length: 100", body=b'{"requests":')
    assert refused(answer, "REQUEST_TIMEOUT")["retryable"] is True


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Type: text/plain",),
        ("Content-Type: application/x-www-form-urlencoded",),
        ("Content-Type: multipart/form-data; boundary=x",),
        ("Content-Type: application/json/evil",),
        (JSON, "Content-Encoding: gzip"),
        (JSON, "Content-Encoding: br, gzip"),
    ],
)
def test_bodies_of_another_kind(service: RunningService, headers: tuple[str, ...]) -> None:
    body = json.dumps({"requests": [chat("one")]}).encode()
    packed = gzip.compress(body) if "gzip" in headers[-1] else body
    refused(submit(service, packed, *headers), "UNSUPPORTED_MEDIA_TYPE")
    refused(
        ask_raw(service, "POST", f"{BATCH}/retry/{NOBODY}", *headers, "Content-Length: 2", body=b"{}"),
        "UNSUPPORTED_MEDIA_TYPE",
    )


@pytest.mark.parametrize("path", ["status", "results", "events", "export"])
@pytest.mark.parametrize(
    "text",
    [
        "..",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e%2f",
        "batch_" + "0" * 23,
        "batch_" + "A" * 24,
        NOBODY,
        NOBODY + "%00",
        NOBODY + "%0a",
        NOBODY + ".jsonl/..",
        "'%20OR%201=1--",
        "%ff%fe",
        "batch_%f0%9f%98%80",
        "x" * 5_000,
    ],
)
def test_ids_that_are_none(service: RunningService, path: str, text: str) -> None:
    suffix = ".jsonl" if path == "export" else ""
    refused(ask_raw(service, "GET", f"{BATCH}/{path}/{text}{suffix}"), "NOT_FOUND")


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=-1", "limit"),
        ("limit=1e2", "limit"),
        ("limit=%D9%A3", "limit"),
        ("limit=5&limit=6", "limit"),
        ("cursor=abc", "cursor"),
        ("cursor=" + "9" * 30, "cursor"),
        ("ok=maybe", "ok"),
        ("kind=bad%00", "kind"),
        ("flag=odd", "flag"),
        ("include=everything", "include"),
    ],
)
def test_parameters_that_are_none(service: RunningService, query: str, param: str) -> None:
    answer = ask_raw(service, "GET", f"{BATCH}/results/{NOBODY}?{query}")
    assert refused(answer, "INVALID_REQUEST")["param"] == param


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Basic YTpi", "Bearer bw_nobody", "Bearer " + "x" * 5_000, "Bearer \xe9"],
)
def test_keys_that_are_none(service: RunningService, authorization: str) -> None:
    headers = [(b"Authorization", authorization.encode("latin-1"))] if authorization else []
    answer = service.client("").get(f"{BATCH}/list", headers=headers)
    refused(answer, "UNAUTHORIZED")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_methods_and_routes_that_are_none(service: RunningService) -> None:
    refused(service.client().put(SUBMIT), "METHOD_NOT_ALLOWED")
    refused(service.client().request("DELETE", f"{BATCH}/export/{NOBODY}.csv"), "METHOD_NOT_ALLOWED")
    refused(service.get("/v1/ai/batch/dance"), "NOT_FOUND")
    refused(service.get(f"{BATCH}/export/{NOBODY}"), "METHOD_NOT_ALLOWED")
    for name in ("xml", "tar.gz", "JSONL", "csv.jsonl"):
        error = refused(service.get(f"{BATCH}/export/{NOBODY}.{name}"), "NOT_FOUND")
        if name != "csv.jsonl":
            assert "'jsonl' or 'csv'" in error["message"], "it says which there are"


ROUTES = [
    ("GET", f"{BATCH}/list"),
    *(("GET", f"{BATCH}/{name}/{NOBODY}") for name in ("status", "events", "results")),
    ("GET", f"{BATCH}/export/{NOBODY}.jsonl"),
    ("GET", f"{BATCH}/export/{NOBODY}.csv"),
    *(("POST", f"{BATCH}/{name}/{NOBODY}") for name in ("cancel", "pause", "resume", "delete", "retry", "export")),
    ("POST", SUBMIT),
    ("GET", "/v1/account/usage"),
    ("GET", "/v1/account/keys/list"),
    ("GET", "/v1/discovery"),
    ("GET", "/v1/discovery/ai.batch.list"),
    ("GET", "/openapi.json"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_parameter_that_a_route_does_not_know_is_refused(service: RunningService, method: str, path: str) -> None:
    answer = service.clients[0].request(method, path, params={"limt": "1"}, json={} if method == "POST" else None)
    error = refused(answer, "INVALID_REQUEST")
    assert error["param"] == "limt"
    assert "'limt'" in error["message"]


@pytest.mark.parametrize("path", ["files", "batches"])
def test_the_other_faces_lists_refuse_it_in_its_own_shape(service: RunningService, path: str) -> None:
    answer = service.get(f"/v1/{path}", limt=1)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "limt")
    assert "limt" in answer.json()["error"]["message"]


def test_the_other_faces_single_routes_pass_over_what_clients_of_other_vendors_always_send(
    service: RunningService,
) -> None:
    version = {"api-version": "2026-01-01"}
    assert service.get("/v1/models", **version).status_code == 200
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    assert service.clients[0].post("/v1/chat/completions", params=version, json=body).status_code == 200


def test_a_submit_takes_its_options_from_one_place(service: RunningService) -> None:
    """From the body of JSON, or from the query of a body of lines: in the other place it would have no effect."""
    array = service.clients[0].post(SUBMIT, params={"max_cost_usd": "1"}, json={"requests": [chat("a")]})
    assert refused(array, "INVALID_REQUEST")["param"] == "max_cost_usd"
    for name in ("requests", "max_cost"):
        lines = service.clients[0].post(
            SUBMIT, params={name: "1"}, content=ROW, headers={"content-type": "application/x-ndjson"}
        )
        assert refused(lines, "INVALID_REQUEST")["param"] == name


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({"max_cost_usd": 1e300}, "from 0 to 9,223,372"),
        ({"max_cost_usd": -1}, "from 0 to 9,223,372"),
        ({"max_cost_usd": "much"}, "from 0 to 9,223,372"),
        ({"batch_timeout": 0}, "above 0 and at most 30 days"),
        ({"batch_timeout": "31d"}, "above 0 and at most 30 days"),
        ({"batch_timeout": 10**30}, "above 0 and at most 30 days"),
        ({"batch_timeout": "soon"}, "above 0 and at most 30 days"),
        ({"max_attempts": 101}, "from 1 to 100"),
    ],
)
def test_what_is_out_of_range_is_told_the_range(service: RunningService, fields: dict[str, Any], bound: str) -> None:
    error = refused(service.post(SUBMIT, {"requests": [chat("a")], **fields}), "INVALID_REQUEST")
    assert error["param"] == next(iter(fields))
    assert bound in error["message"]
    assert str(next(iter(fields.values())))[:5] in error["message"], "and what was found"
