"""Batches of one file keep its bytes once, and for as long as one of them is there, whatever becomes of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import func, select

from batchwright.assemble.home import STORE_FILE
from batchwright.store.open import open_store
from batchwright.store.schema import blob
from batchwright.store.sqlite import SqliteConnections
from support.command_line import chat_row
from support.openai_client import CHAT, lines, rows_file, sdk, upload
from support.scripted_vendor import ScriptedVendor
from support.service import BATCH, RunningService, serving

ROWS = 1_100
"""Three pieces, so three segments a batch."""
FAR_MS = 2**50


def question(number: int) -> str:
    """Long, and like no other, so that it packs badly. It is answered with its last word."""
    return " ".join(str(number * prime % 99_991) for prime in range(101, 200)) + f" w{number}"


def blob_bytes(service: RunningService) -> dict[str, int]:
    """By what they are: inputs of segments, pieces of files, answers."""
    dated = func.ltrim(blob.c.key, "0123456789/")
    kind = func.substr(dated, 1, func.instr(dated, "/") - 1)
    connections = SqliteConnections(service.settings.state_dir / STORE_FILE)
    try:
        with connections.read() as connection:
            rows = connection.execute(select(kind, func.sum(func.length(blob.c.data))).group_by(kind))
            return {name: size for name, size in rows}
    finally:
        connections.close()


def create(service: RunningService, file_id: str) -> str:
    batch = sdk(service).batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
    service.until(batch.id, lambda status: status["state"] != "accepting")
    return batch.id


@pytest.mark.parametrize(
    "model", [{"model": "m"}, {"model": "scripted/m"}, {}], ids=["as it stands", "with the vendor's name", "filled in"]
)
def test_two_batches_of_a_file_that_is_deleted_while_they_run(
    tmp_path: Path, vendor: ScriptedVendor, model: dict[str, str]
) -> None:
    vendor.set(hold=True)
    with serving(tmp_path, vendor, project="model = 'm'\n") as service:
        client = sdk(service)
        rows = [chat_row(question(number), f"r{number}") for number in range(ROWS)]
        for row in rows:
            row["body"] = {"messages": row["body"]["messages"], **model}  # type: ignore[index]
        file = upload(client, rows_file(rows))
        batches = [create(service, file.id), create(service, file.id)]
        sizes = blob_bytes(service)
        assert sizes["input"] < sizes["file"] / 5, "of both batches together"
        client.files.delete(file.id)
        store = open_store(service.settings.state_dir / STORE_FILE)
        try:
            while store.sweep_files(FAR_MS):
                pass
            vendor.set(hold=False)
            vendor.release()
            for batch_id in batches:
                service.ended(batch_id)
                output = lines(client, client.batches.retrieve(batch_id).output_file_id)
                answers = [line["response"]["body"]["choices"][0]["message"]["content"] for line in output]
                assert answers == [f"w{number}" for number in range(ROWS)]
                assert store.check(batch_id) == []
            assert {hit.text for hit in vendor.hits} == {question(number) for number in range(ROWS)}
            assert {json.loads(hit.body)["model"] for hit in vendor.hits} == {"m"}
            assert blob_bytes(service)["file"] == sizes["file"]
            for batch_id in batches:
                assert service.post(f"{BATCH}/delete/{batch_id}").status_code == 200
                while store.sweep_files(FAR_MS):
                    pass
            while store.sweep_step(FAR_MS):
                pass
        finally:
            store.close()
        assert blob_bytes(service) == {}


def test_a_line_longer_than_a_piece_is_shared_too(scripted: RunningService, vendor: ScriptedVendor) -> None:
    text = "".join(question(number) for number in range(12_000))
    assert len(text) > 4 * 1024 * 1024
    client = sdk(scripted)
    file = upload(client, rows_file([chat_row("a", "short"), chat_row(text, "long"), chat_row("b", "last")]))
    batch_id = create(scripted, file.id)
    assert scripted.ended(batch_id)["completed_count"] == 3
    assert json.loads(next(hit.body for hit in vendor.hits if len(hit.body) > 1_000))["messages"][0]["content"] == text
    sizes = blob_bytes(scripted)
    assert sizes["input"] < sizes["file"] / 100
