"""OpenAI's face: ceilings, scopes, clients that go away, two at once, and models."""

from __future__ import annotations

import gzip
import random
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from batchwright.assemble.home import STORE_FILE
from batchwright.core.errors import NoSuchFile
from batchwright.core.tenants import Scope
from batchwright.ports.store import Store
from batchwright.server.service import Ceilings
from batchwright.store.open import open_store
from support.openai_client import CHAT, chat_rows, run, sdk, upload
from support.patience import PATIENCE_S
from support.scripted_vendor import ScriptedVendor
from support.service import RunningService, serving


def test_a_file_above_the_ceiling_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, ceilings=Ceilings(stream_bytes=10_000)) as service:
        client = sdk(service)
        assert upload(client, b"x" * 9_000).bytes == 9_000
        with pytest.raises(openai.APIStatusError) as refused:
            upload(client, b"x" * 11_000)
        assert (refused.value.status_code, refused.value.code) == (413, "body_too_large")
        assert "10,000" in refused.value.message
        assert len(client.files.list().data) == 1


def test_rows_above_the_ceilings_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path, ceilings=Ceilings(rows=3, row_bytes=400)) as service:
        assert run(service, chat_rows("a", "b", "c")).status == "completed"
        for data, code, line in (
            (chat_rows("a", "b", "c", "d"), "too_many_tasks", None),
            (chat_rows("a", "b" * 400), "row_too_large", 2),
        ):
            batch = run(service, data)
            assert batch.errors is not None
            assert [(error.code, error.line) for error in batch.errors.data or []] == [(code, line)]


def test_a_packed_body_is_refused(service: RunningService) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Type": "multipart/form-data; boundary=b"}
    for path in ("/v1/files", "/v1/batches"):
        answer = service.clients[0].post(path, content=gzip.compress(b"x" * 100_000), headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_each_call_needs_its_scope(service: RunningService) -> None:
    file = upload(sdk(service), chat_rows("a"))
    batch = run(service, chat_rows("a"))
    reader = sdk(service, service.new_key(scopes=frozenset({Scope.READ})))
    writer = sdk(service, service.new_key(scopes=frozenset({Scope.SUBMIT})))
    for call in (
        lambda: upload(reader, b""),
        lambda: reader.files.delete(file.id),
        lambda: reader.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h"),
        lambda: reader.batches.cancel(batch.id),
        writer.files.list,
        lambda: writer.files.retrieve(file.id),
        lambda: writer.files.content(file.id),
        writer.batches.list,
        lambda: writer.batches.retrieve(batch.id),
        writer.models.list,
    ):
        with pytest.raises(openai.PermissionDeniedError) as refused:
            call()
        assert refused.value.code == "insufficient_permissions"
    assert reader.files.content(file.id).content == chat_rows("a")


def test_a_key_whose_budget_is_spent_begins_nothing(service: RunningService) -> None:
    client = sdk(service, service.new_key(budget_picousd=0))
    file = upload(client, chat_rows("a"))
    with pytest.raises(openai.APIStatusError) as refused:
        client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    assert (refused.value.status_code, refused.value.code) == (402, "insufficient_quota")
    assert client.batches.list().data == []


LONG_LINE = random.Random(1).randbytes(10 * 1024 * 1024).replace(b"\n", b"")
"""Nothing packs it: each of its pieces is a transaction."""


def test_a_client_that_goes_away_leaves_nothing(service: RunningService) -> None:
    """Two pieces have arrived, and half of the third."""
    host, port = service.base_url.removeprefix("http://").split(":")
    size = 12 * 1024 * 1024
    head = (
        f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.key}\r\nContent-Length: {size}\r\n"
        'Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\nContent-Disposition: form-data; name="file"; '
        'filename="a"\r\n\r\n'
    )
    store = open_store(service.settings.state_dir / STORE_FILE)
    try:
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + LONG_LINE)
            until(service, lambda: [store.count_pieces(name) for name, _, _ in store.arriving_files()] == [2])
            ((file_id, _, _),) = store.arriving_files()
        until(service, lambda: store.arriving_files() == [])
        assert service.get("/v1/files").json()["data"] == []
        until(service, lambda: is_gone(store, file_id))
        assert not [line for line in service.said if "Error" in line or " 500 " in line]
    finally:
        store.close()


def is_gone(store: Store, file_id: str) -> bool:
    try:
        store.read_piece(file_id, 0)
    except NoSuchFile:
        return True
    return False


def until(service: RunningService, condition: Callable[[], bool]) -> None:
    """The service's own answers set the pace."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, service.said
        service.get("/v1/models")


def test_an_upload_that_stands_still_is_given_up(tmp_path: Path) -> None:
    with serving(tmp_path, ceilings=Ceilings(silent_s=0.2)) as service:
        host, port = service.base_url.removeprefix("http://").split(":")
        head = (
            f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.key}\r\nContent-Length: 1000\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n"
        )
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            connection.sendall(head.encode())
            answer = connection.makefile("rb").readline()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert service.get("/v1/files").json()["data"] == []


def test_two_with_one_key_at_once_make_one_batch(service: RunningService) -> None:
    file = upload(sdk(service), chat_rows("a"))

    def ask(number: int) -> str:
        headers = {"Idempotency-Key": f"k{number // 4}"}
        with sdk(service) as client:
            return client.batches.create(
                input_file_id=file.id, endpoint=CHAT, completion_window="24h", extra_headers=headers
            ).id

    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(ask, range(16)))
    assert [ids[number] for number in range(16)] == [ids[number // 4 * 4] for number in range(16)]
    assert {batch.id for batch in sdk(service).batches.list()} == set(ids)
    assert len(set(ids)) == 4


@pytest.fixture
def without_the_local_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)  # what an import system that lacks it answers


@pytest.mark.usefixtures("without_the_local_model")
def test_models_are_those_that_vendors_name(tmp_path: Path, vendor: ScriptedVendor) -> None:
    vendors = """
[vendors.house]
base_url = "https://llm.example.com/v1"
models = ["gpt-x", "big-*"]
[vendors.other]
base_url = "https://other.example.com/v1"
models = ["small", "gpt-x"]
"""
    with serving(tmp_path, vendor, project=vendors) as service:
        client = sdk(service)
        assert [(model.id, model.owned_by, model.object) for model in client.models.list()] == [
            ("gpt-x", "house", "model"),
            ("small", "other", "model"),
            ("other/gpt-x", "other", "model"),
        ]
        assert all(client.models.retrieve(model.id) == model for model in client.models.list())
        assert client.models.retrieve("big-7b").owned_by == "house"
        assert client.models.retrieve("other/anything").owned_by == "other"
        assert client.models.retrieve("tiny").owned_by == "scripted", "it takes every name"
        with pytest.raises(openai.NotFoundError) as refused:
            client.models.retrieve("local/none-such")
        assert refused.value.param == "model"
        assert service.get("/v1/models/").status_code == 404


ROUTES = """
[routes.fast]
to = ["local/smollm2", "house/small"]
[routes.here]
to = ["local/smollm2"]
[vendors.house]
base_url = "https://llm.example.com/v1"
models = ["small", "here"]
"""


def models_of(service: RunningService) -> list[tuple[str, str]]:
    listed = service.get("/v1/models").json()["data"]
    return [(model["id"], model["owned_by"]) for model in listed]


def test_the_local_model_is_listed_where_it_can_run(tmp_path: Path) -> None:
    with serving(tmp_path / "plain", simulate=False) as service:
        assert models_of(service) == [("local/smollm2", "local")]
        submit = service.get("/v1/discovery/ai.batch.submit").json()
        assert (submit["available"], submit["vendors"], submit["unavailable_reason"]) == (True, ["local"], None)
    with serving(tmp_path / "routes", simulate=False, project=ROUTES) as service:
        assert models_of(service) == [
            ("fast", "local"),
            ("here", "local"),
            ("small", "house"),
            ("house/here", "house"),
            ("local/smollm2", "local"),
        ]


@pytest.mark.usefixtures("without_the_local_model")
def test_the_local_model_is_not_listed_where_it_cannot_run(tmp_path: Path) -> None:
    with serving(tmp_path / "plain", simulate=False) as service:
        assert models_of(service) == []
        assert service.get("/v1/models/local/smollm2").status_code == 404
        submit = service.get("/v1/discovery/ai.batch.submit").json()
        assert (submit["available"], submit["vendors"]) == (False, [])
        assert "the local model cannot run here" in submit["unavailable_reason"]
    with serving(tmp_path / "routes", simulate=False, project=ROUTES) as service:
        assert models_of(service) == [("fast", "house"), ("small", "house"), ("house/here", "house")]
