"""Batches of OpenAI's face, with the stock SDK: from the file that is uploaded to the files that are downloaded."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from support.command_line import chat_row
from support.openai_client import CHAT, chat_rows, create, lines, rows_file, run, sdk, upload
from support.scripted_vendor import ScriptedVendor
from support.service import RunningService


def test_from_upload_to_download(scripted: RunningService) -> None:
    client = sdk(scripted)
    file = upload(client, chat_rows("one", "two", "[[status=400 code=invalid_prompt]]"))
    batch = client.batches.create(
        input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata={"job": "nightly"}
    )
    assert batch.status == "validating"
    assert batch.request_counts is not None
    assert batch.request_counts.total == 0
    scripted.ended(batch.id)
    batch = client.batches.retrieve(batch.id)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 3, "completed": 2, "failed": 1}
    output = lines(client, batch.output_file_id)
    assert [(line["custom_id"], line["error"], line["response"]["status_code"]) for line in output] == [
        ("r0", None, 200),
        ("r1", None, 200),
    ]
    assert output[0]["response"]["body"]["choices"][0]["message"]["content"] == "one"
    (refused,) = lines(client, batch.error_file_id)
    assert (refused["custom_id"], refused["error"], refused["response"]["status_code"]) == ("r2", None, 400)
    assert refused["response"]["body"]["error"]["code"] == "invalid_prompt"


def test_all_failed_is_completed_with_an_error_file_alone(scripted: RunningService) -> None:
    batch = run(scripted, chat_rows(*["[[status=400 code=invalid_prompt]]"] * 3))
    assert (batch.status, batch.output_file_id) == ("completed", None)
    assert len(lines(sdk(scripted), batch.error_file_id)) == 3


def test_all_succeeded_has_no_error_file(scripted: RunningService) -> None:
    batch = run(scripted, chat_rows("a", "b", "c"))
    assert (batch.status, batch.error_file_id) == ("completed", None)
    assert [line["custom_id"] for line in lines(sdk(scripted), batch.output_file_id)] == ["r0", "r1", "r2"]


@pytest.fixture
def client(service: RunningService) -> openai.OpenAI:
    return sdk(service)


def errors_of(service: RunningService, data: bytes, **fields: Any) -> list[tuple[str, int | None, str | None]]:
    batch = run(service, data, **fields)
    assert batch.status == "failed"
    assert batch.failed_at is not None
    assert (batch.in_progress_at, batch.output_file_id, batch.error_file_id) == (None, None, None)
    assert batch.request_counts is not None
    assert batch.request_counts.total == 0
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert all(error.message for error in batch.errors.data)
    return [(error.code or "", error.line, error.param) for error in batch.errors.data]


def test_a_file_with_wrong_lines_is_refused_as_a_whole(service: RunningService) -> None:
    data = rows_file(
        [
            chat_row("fine", "a"),
            "{not json",
            chat_row("no id"),
            chat_row("again", "a"),
            {**chat_row("get", "b"), "method": "GET"},
            {**chat_row("elsewhere", "c"), "url": "/v1/embeddings"},
            {"custom_id": "d", "method": "POST", "url": CHAT},
            {"custom_id": "e", "url": CHAT, "body": {"model": "m", "messages": [{"role": "user", "content": "x"}]}},
            chat_row("streamed", "f", stream=True),
        ]
    )
    assert errors_of(service, data) == [
        ("invalid_json_line", 2, None),
        ("missing_required_parameter", 3, "custom_id"),
        ("duplicate_custom_id", 4, "custom_id"),
        ("invalid_method", 5, "method"),
        ("url_mismatch", 6, "url"),
        ("missing_required_parameter", 7, "body"),
        ("missing_required_parameter", 8, "method"),
        ("stream_not_supported", 9, "body.stream"),
    ]


def test_errors_are_bounded(service: RunningService) -> None:
    found = errors_of(service, rows_file(["{"] * 500))
    assert found == [("invalid_json_line", line, None) for line in range(1, 101)]


@pytest.mark.parametrize("data", [b"", b"\n  \n"])
def test_a_file_without_lines_is_refused(service: RunningService, data: bytes) -> None:
    assert errors_of(service, data) == [("empty_file", None, None)]


def test_another_endpoint_than_the_lines_is_refused(service: RunningService) -> None:
    assert errors_of(service, chat_rows("a"), endpoint="/v1/embeddings") == [("url_mismatch", 1, "url")]


def test_a_refused_batch_is_listed_and_can_be_deleted(service: RunningService) -> None:
    client = sdk(service)
    batch = run(service, b"{\n")
    assert [found.id for found in client.batches.list()] == [batch.id]
    assert service.status(batch.id)["state"] == "refused"


def test_cancel_midway_keeps_what_was_answered(scripted: RunningService, vendor: ScriptedVendor) -> None:
    client = sdk(scripted)
    batch = create(client, chat_rows("fast 0", "fast 1", *["[[sleep=60]]"] * 20))
    vendor.wait_for(lambda vendor: len(vendor.hits) >= 12)
    scripted.until(batch.id, lambda status: status["completed_count"] == 2)
    cancelling = client.batches.cancel(batch.id)
    assert cancelling.status in ("cancelling", "cancelled")
    assert cancelling.cancelling_at is not None
    scripted.ended(batch.id)
    ended = client.batches.cancel(batch.id)  # harmless when asked again
    assert (ended.status, ended.cancelled_at is not None, ended.completed_at) == ("cancelled", True, None)
    assert ended.request_counts is not None
    assert ended.request_counts.to_dict() == {"total": 22, "completed": 2, "failed": 20}
    assert {line["custom_id"] for line in lines(client, ended.output_file_id)} == {"r0", "r1"}
    failed = lines(client, ended.error_file_id)
    assert [line["custom_id"] for line in failed] == [f"r{number}" for number in range(2, 22)]
    assert {(line["response"], line["error"]["code"]) for line in failed} == {(None, "batch_cancelled")}


def test_cancel_while_files_are_read(scripted: RunningService, vendor: ScriptedVendor) -> None:
    """Two files are read at a time, so the third waits; it is cancelled before its first line was looked at."""
    client = sdk(scripted)
    long = upload(client, chat_rows(*(f"w{number}" for number in range(50_000))) + b"{\n")
    short = upload(client, chat_rows("a", "b", "c"))
    *refused, batch = (
        client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
        for file in (long, long, short)
    )
    cancelling = client.batches.cancel(batch.id)
    assert (cancelling.status, cancelling.in_progress_at) == ("cancelling", None)
    for one in (*refused, batch):
        scripted.ended(one.id)
    assert [client.batches.retrieve(one.id).status for one in refused] == ["failed"] * 2
    ended = client.batches.retrieve(batch.id)
    assert (ended.status, ended.output_file_id) == ("cancelled", None)
    assert [line["error"]["code"] for line in lines(client, ended.error_file_id)] == ["batch_cancelled"] * 3
    assert vendor.hits == []


def test_an_ended_batch_cannot_be_cancelled(service: RunningService) -> None:
    batch = run(service, chat_rows("a"))
    with pytest.raises(openai.ConflictError) as refused:
        sdk(service).batches.cancel(batch.id)
    assert refused.value.code == "wrong_state"


def test_a_refused_cancel_speaks_the_words_of_this_face(scripted: RunningService) -> None:
    client = sdk(scripted)
    batch = create(client, chat_rows("fine", "[[status=400]] x"))
    assert scripted.ended(batch.id)["state"] == "partial"
    with pytest.raises(openai.ConflictError) as caught:
        client.batches.cancel(batch.id)
    assert "its status is 'completed'" in caught.value.message
    assert "partial" not in caught.value.message


def test_time_runs_out_and_finished_rows_stay(scripted: RunningService, vendor: ScriptedVendor) -> None:
    batch = run(scripted, chat_rows("a", "b", "[[sleep=60]]", "[[sleep=60]]"), window="1s")
    assert (batch.status, batch.expired_at is not None, batch.completed_at) == ("expired", True, None)
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 4, "completed": 2, "failed": 2}
    client = sdk(scripted)
    assert [line["custom_id"] for line in lines(client, batch.output_file_id)] == ["r0", "r1"]
    assert [line["error"]["code"] for line in lines(client, batch.error_file_id)] == ["batch_expired"] * 2


def test_list_pages(service: RunningService, client: openai.OpenAI) -> None:
    file = upload(client, chat_rows("a"))
    made = [client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h").id for _ in range(5)]
    newest_first = made[::-1]
    first = client.batches.list(limit=2)
    assert ([batch.id for batch in first.data], first.has_more) == (newest_first[:2], True)
    assert [batch.id for batch in client.batches.list(limit=2)] == newest_first
    rest = client.batches.list(after=newest_first[2], limit=10)
    assert ([batch.id for batch in rest.data], rest.has_more) == (newest_first[3:], False)
    with pytest.raises(openai.NotFoundError):
        client.batches.list(after="batch_" + "0" * 24)


def test_an_idempotency_key_makes_one_batch(service: RunningService, client: openai.OpenAI) -> None:
    file = upload(client, chat_rows("a"))
    headers = {"Idempotency-Key": "k1"}

    def ask(window: str) -> Any:
        given: Any = {"endpoint": CHAT, "completion_window": window}
        return client.batches.with_raw_response.create(input_file_id=file.id, extra_headers=headers, **given)

    first, second = ask("24h"), ask("24h")
    assert first.parse().id == second.parse().id
    assert [answer.headers.get("idempotency-replayed") for answer in (first, second)] == [None, "true"]
    with pytest.raises(openai.ConflictError) as refused:
        ask("12h")
    assert refused.value.code == "idempotency_conflict"
    refused_file = upload(client, b"{\n")
    again = [
        client.batches.create(
            input_file_id=refused_file.id,
            endpoint=CHAT,
            completion_window="24h",
            extra_headers={"Idempotency-Key": "k2"},
        )
        for _ in range(2)
    ]
    assert again[0].id == again[1].id


def test_files_that_no_batch_can_be_made_from(scripted: RunningService) -> None:
    client = sdk(scripted)
    ended = run(scripted, chat_rows("a"))
    assert ended.output_file_id is not None
    other = sdk(scripted, scripted.new_key("another"))
    theirs = upload(other, chat_rows("a"))
    for file_id, error in (
        ("file-" + "0" * 24, openai.NotFoundError),
        ("../secrets", openai.NotFoundError),
        (theirs.id, openai.NotFoundError),
        (ended.output_file_id, openai.BadRequestError),
    ):
        with pytest.raises(error) as refused:
            client.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
        assert refused.value.body is not None
        assert refused.value.param == "input_file_id"
    for call in (client.batches.retrieve, client.batches.cancel):
        with pytest.raises(openai.NotFoundError):
            call(other.batches.create(input_file_id=theirs.id, endpoint=CHAT, completion_window="24h").id)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input_file_id"),
        ({"endpoint": "https://elsewhere.example/v1/chat/completions"}, "endpoint"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"metadata": {"n": 1}}, "metadata"),
        ({"metadata": {f"k{n}": "v" for n in range(17)}}, "metadata"),
        ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, "output_expires_after"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 5}}, "output_expires_after"),
        ({"priority": 3}, "priority"),
    ],
)
def test_a_body_that_asks_for_no_batch_names_the_parameter(
    service: RunningService, body: dict[str, object], param: str
) -> None:
    whole = {"input_file_id": "file-" + "0" * 24, "endpoint": CHAT, "completion_window": "24h", **body}
    answer = service.post("/v1/batches", whole if body else {})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["type"]) == (400, param, "invalid_request_error")
    assert error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"input_file_id": NaN}',
        b'{"input_file_id": "file-1", "input_file_id": {}}',
        b'{"metadata": {"a": "\\ud800"}, "input_file_id": "x", "endpoint": "/v1/x", "completion_window": "24h"}',
        b'{"metadata": ' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}",
        b'{"endpoint": ' + b"[" * 30_000,
    ],
    ids=lambda body: str(body[:24]),
)
def test_a_body_that_is_no_request(service: RunningService, body: bytes) -> None:
    answer = service.clients[0].post("/v1/batches", content=body)
    error = answer.json()["error"]
    assert (answer.status_code in (400, 413), error["type"]) == (True, "invalid_request_error")
    assert error["message"]
    assert len(answer.content) < 2_000
    assert service.get("/v1/batches").json()["data"] == []


def test_deleting_the_input_never_harms_the_batch(scripted: RunningService) -> None:
    client = sdk(scripted)
    data = chat_rows(*(f"w{number}" for number in range(1_200)))
    batch = create(client, data)
    client.files.delete(batch.input_file_id)
    scripted.ended(batch.id)
    ended = client.batches.retrieve(batch.id)
    assert (ended.status, ended.input_file_id) == ("completed", batch.input_file_id)
    output = lines(client, ended.output_file_id)
    assert [line["custom_id"] for line in output] == [f"r{number}" for number in range(1_200)]
    assert json.dumps(output[7]["response"]["body"]["choices"][0]["message"]["content"]) == '"w7"'
