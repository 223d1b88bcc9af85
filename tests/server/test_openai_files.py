"""Files of OpenAI's face, with the stock SDK: uploads, lists, downloads, deletion, expiry; and broken forms by hand."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest

from batchwright.assemble.batches import open_batches
from batchwright.ports.batches import Selector
from support.openai_client import chat_rows, create, lines, run, sdk, upload
from support.scripted_vendor import ScriptedVendor
from support.service import RunningService

BOUNDARY = "edge"
FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
NO_FILE = "file-" + "0" * 24


@pytest.fixture
def client(service: RunningService) -> openai.OpenAI:
    return sdk(service)


def test_a_file_is_given_back_as_it_came(client: openai.OpenAI) -> None:
    data = bytes(range(256)) * 40_000 + b"--edge\r\n\r\n"  # three pieces, and what looks like a form's own marks
    file = client.files.create(file=("../../rows of mine.jsonl", data), purpose="batch")
    assert (file.bytes, file.filename, file.purpose, file.status) == (
        len(data),
        "rows of mine.jsonl",
        "batch",
        "processed",
    )
    assert file.expires_at == file.created_at + 30 * 86_400
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).content == data


def test_an_expiry_that_is_asked_for(client: openai.OpenAI) -> None:
    expires: Any = {"anchor": "created_at", "seconds": 3600}
    file = client.files.create(file=("a.jsonl", b"{}\n"), purpose="batch", expires_after=expires)
    assert file.expires_at == file.created_at + 3600


def test_list_pages(client: openai.OpenAI) -> None:
    made = [upload(client, b"{}\n", f"{number}.jsonl").id for number in range(5)]
    first = client.files.list(limit=2)
    assert ([file.id for file in first.data], first.has_more) == (made[::-1][:2], True)
    assert [file.id for file in client.files.list(limit=2)] == made[::-1]
    assert [file.id for file in client.files.list(order="asc", limit=2)] == made
    assert [file.id for file in client.files.list(purpose="batch_output")] == []
    assert client.files.list(after=made[0]).data == []
    with pytest.raises(openai.NotFoundError):
        client.files.list(after=NO_FILE)
    with pytest.raises(openai.BadRequestError):
        client.files.list(limit=0)


def test_deletion(client: openai.OpenAI) -> None:
    file = upload(client, b"{}\n")
    assert client.files.delete(file.id).to_dict() == {"id": file.id, "object": "file", "deleted": True}
    for call in (client.files.retrieve, client.files.delete, client.files.content):
        with pytest.raises(openai.NotFoundError) as refused:
            call(file.id)
        assert (refused.value.type, refused.value.param) == ("invalid_request_error", "file_id")
    assert client.files.list().data == []


@pytest.mark.parametrize("file_id", [NO_FILE, "nonsense", "file-..%2F..%2Fetc", "file-" + "0" * 24 + "0000o"])
def test_a_file_that_is_not_there(client: openai.OpenAI, file_id: str) -> None:
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file_id)


def test_another_account_sees_none_of_it(service: RunningService, client: openai.OpenAI) -> None:
    file = upload(client, chat_rows("a"))
    batch = run(service, chat_rows("a"))
    assert batch.output_file_id is not None
    other = sdk(service, service.new_key("another"))
    for file_id in (file.id, batch.output_file_id):
        for call in (other.files.retrieve, other.files.delete, other.files.content):
            with pytest.raises(openai.NotFoundError):
                call(file_id)
        with pytest.raises(openai.NotFoundError):
            other.files.list(after=file_id)
    assert other.files.list().data == []
    assert other.batches.list().data == []


def test_a_key_that_is_none(service: RunningService) -> None:
    with pytest.raises(openai.AuthenticationError) as refused:
        sdk(service, "bw_nobody").files.list()
    assert refused.value.code == "invalid_api_key"


# ------------------------------------------------------------------------------------------------ files of a batch


def test_files_of_a_batch_are_listed_and_counted(scripted: RunningService) -> None:
    client = sdk(scripted)
    batch = run(scripted, chat_rows("a", "[[status=400]]"))
    output, errors = (client.files.retrieve(str(name)) for name in (batch.output_file_id, batch.error_file_id))
    assert (output.filename, errors.filename) == (f"{batch.id}_output.jsonl", f"{batch.id}_error.jsonl")
    for file in (output, errors):
        assert (file.purpose, file.created_at, file.expires_at) == ("batch_output", batch.completed_at, None)
        assert file.bytes == len(client.files.content(file.id).content) > 0
    listed = client.files.list(purpose="batch_output")
    assert {file.id for file in listed} == {output.id, errors.id}
    assert client.files.content(output.id).content == client.files.content(output.id).content


def test_deleting_an_output_hides_it_and_keeps_the_rows(scripted: RunningService) -> None:
    client = sdk(scripted)
    batch = run(scripted, chat_rows("a", "b"))
    client.files.delete(str(batch.output_file_id))
    with pytest.raises(openai.NotFoundError):
        client.files.content(str(batch.output_file_id))
    assert client.batches.retrieve(batch.id).output_file_id == batch.output_file_id
    assert len(scripted.results(batch.id)) == 2


def test_outputs_expire_as_asked(service: RunningService, client: openai.OpenAI) -> None:
    batch = run(service, chat_rows("a"), output_expires_after={"anchor": "created_at", "seconds": 7200})
    output = client.files.retrieve(str(batch.output_file_id))
    assert output.expires_at == output.created_at + 7200


async def retry(service: RunningService, batch_id: str) -> None:
    """As `batchwright retry` does it, beside the service that runs."""
    async with open_batches(service.settings) as batches:
        assert await batches.retry(batch_id, Selector()) == 1


def test_a_new_round_makes_new_files(scripted: RunningService, vendor: ScriptedVendor) -> None:
    client = sdk(scripted)
    batch = run(scripted, chat_rows("a", "[[status=400 times=1]] b"))
    assert batch.request_counts is not None
    assert batch.request_counts.failed == 1
    asyncio.run(retry(scripted, batch.id))
    scripted.ended(batch.id)
    again = client.batches.retrieve(batch.id)
    assert again.output_file_id not in (None, batch.output_file_id)
    assert again.error_file_id is None
    assert [line["custom_id"] for line in lines(client, again.output_file_id)] == ["r0", "r1"]
    for gone in (batch.output_file_id, batch.error_file_id):
        with pytest.raises(openai.NotFoundError):
            client.files.content(str(gone))


def test_a_running_batch_has_no_files(scripted: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)
    client = sdk(scripted)
    batch = create(client, chat_rows("a"))
    vendor.wait_for(lambda vendor: len(vendor.hits) == 1)
    running = client.batches.retrieve(batch.id)
    assert (running.status, running.output_file_id, running.error_file_id) == ("in_progress", None, None)
    vendor.release()
    scripted.ended(batch.id)


# ----------------------------------------------------------------------------------------------------- broken forms


def part(name: str, value: str, more: str = "") -> str:
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'


FILE = part("file", "{}", '; filename="a.jsonl"')
PURPOSE = part("purpose", "batch")
END = f"--{BOUNDARY}--\r\n"


def post(service: RunningService, body: str, headers: dict[str, str] | None = None) -> httpx.Response:
    return service.clients[0].post("/v1/files", content=body.encode(), headers=headers or FORM)


@pytest.mark.parametrize("body", [FILE + PURPOSE + END, PURPOSE + FILE + END], ids=["file first", "file last"])
def test_fields_come_in_any_order(service: RunningService, body: str) -> None:
    assert post(service, body).json()["bytes"] == 2


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (FILE + END, "purpose"),
        (PURPOSE + END, "file"),
        (FILE + FILE + PURPOSE + END, "file"),
        (FILE + part("purpose", "fine-tune") + END, "purpose"),
        (FILE + part("purpose", "batch_output") + END, "purpose"),
        (FILE + PURPOSE + part("expires_after[anchor]", "now") + END, "expires_after"),
        (
            FILE
            + PURPOSE
            + part("expires_after[anchor]", "created_at")
            + part("expires_after[seconds]", "9" * 12)
            + END,
            "expires_after",
        ),
        (FILE + part("purpose", "b" * 5_000) + END, "purpose"),
        (FILE + PURPOSE, None),
        (FILE[:-4], None),
        ("nothing of a form", None),
        ("", None),
        (part("x", "y") * 40 + FILE + PURPOSE + END, None),
        (f"--{BOUNDARY}\r\nX: y\r\n\r\n{{}}\r\n" + END, None),
    ],
)
def test_a_broken_form_is_refused_and_nothing_is_kept(service: RunningService, body: str, param: str | None) -> None:
    answer = post(service, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param), error
    assert service.get("/v1/files").json()["data"] == []


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data", "text/plain"])
def test_another_content_type_is_refused(service: RunningService, kind: str) -> None:
    answer = post(service, FILE + PURPOSE + END, {"Content-Type": kind})
    assert answer.status_code in (400, 415)
    assert answer.json()["error"]["message"]


def test_routes_that_are_not_there_are_said_in_this_face(service: RunningService) -> None:
    for method, path, status in (
        ("GET", "/v1/files/a/b/c", 404),
        ("PUT", "/v1/files", 405),
        ("PATCH", "/v1/batches", 405),
    ):
        answer = service.clients[0].request(method, path)
        assert answer.status_code == status
        assert json.loads(answer.content)["error"]["type"] == "invalid_request_error"
