"""Killed in the middle of an upload, of taking a file's rows in or of removing it: whoever comes next finishes it, and
nothing stays of what nobody can finish."""

from __future__ import annotations

import json
from contextlib import closing, suppress

import openai
import pytest
from openai.types import Batch

from batchwright.store.open import open_store
from batchwright.store.sqlite import load_sqlite
from support.command_line import CommandLine
from support.openai_client import CHAT, chat_rows, rows_file, upload
from support.served_process import ServedProcess, killed_at, served

ROWS = 350
"""Four pieces and four segments of the watched command, each written in a transaction of its own."""
KEY = {"Idempotency-Key": "nightly"}
FAR_MS = 2**50


def create(service: ServedProcess, file_id: str) -> Batch:
    return service.sdk.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h", extra_headers=KEY)


def create_and_die(command: CommandLine, data: bytes, point: str) -> tuple[str, str]:
    """(the file's id, the first key) of a service that was killed there."""
    with served(command, "--simulate", program=killed_at(command, point)) as service:
        file = upload(service.sdk, data)
        with suppress(openai.APIConnectionError):  # where it was killed before it answered
            create(service, file.id)
        assert service.started.end().code == -9
    return file.id, service.key


@pytest.mark.parametrize(
    "point",
    [
        "after create_file_batch",
        "before begin_intake_again",
        "after begin_intake_again",
        "before add_segments",
        "after add_segments:2",
        "before close_file_intake",
        "after close_file_intake",
    ],
)
def test_rows_are_taken_in_by_the_next(command: CommandLine, point: str) -> None:
    file_id, key = create_and_die(command, chat_rows(*(f"w{number}" for number in range(ROWS))), point)
    assert command("list").code == 0  # its sweeper's pass finds an intake without an owner, and leaves it
    with served(command, key=key) as service:
        batch = create(service, file_id)
        assert service.ended(batch.id)["total_count"] == ROWS
        batch = service.sdk.batches.retrieve(batch.id)
        assert batch.status == "completed"
        output = service.sdk.files.content(str(batch.output_file_id)).content.splitlines()
        assert [json.loads(line)["custom_id"] for line in output] == [f"r{number}" for number in range(ROWS)]
        assert [found.id for found in service.sdk.batches.list()] == [batch.id]


@pytest.mark.parametrize("point", ["after add_segments", "before refuse_file_batch", "after refuse_file_batch"])
def test_a_refusal_is_finished_by_the_next(command: CommandLine, point: str) -> None:
    rows = chat_rows(*(f"w{number}" for number in range(ROWS))) + rows_file(["{"])
    file_id, key = create_and_die(command, rows, point)
    with served(command, key=key) as service:
        batch = create(service, file_id)
        status = service.ended(batch.id)
        assert (status["state"], status["total_count"]) == ("refused", 0)
        batch = service.sdk.batches.retrieve(batch.id)
        assert batch.status == "failed"
        assert batch.errors is not None
        assert batch.errors.data is not None
        assert [(error.code, error.line) for error in batch.errors.data] == [("invalid_json_line", ROWS + 1)]
        assert blobs(command, "input/") == 0


def blobs(command: CommandLine, prefix: str) -> int:
    # By the library of the stores that this process opens: another one knows nothing of their locks, and takes the log
    # from under them when it closes the file.
    with closing(load_sqlite().connect(command.state / "batchwright.sqlite")) as database:
        (count,) = database.execute("SELECT count(*) FROM blob WHERE key LIKE ?", (f"%{prefix}%",)).fetchone()
    return int(count)


def sweep(command: CommandLine, batch_id: str = "") -> list[str]:
    """All that can go, goes. Returns what is wrong with the batch then, if one is named."""
    store = open_store(command.state / "batchwright.sqlite")
    try:
        while store.sweep_files(FAR_MS):
            pass
        return store.check(batch_id) if batch_id else []
    finally:
        store.close()


@pytest.mark.parametrize(("point", "left"), [("before sweep_files:2", 3), ("after sweep_files:2", 2)])
def test_a_deleted_file_is_there_for_its_batch_and_goes_with_it(command: CommandLine, point: str, left: int) -> None:
    """Four pieces; each step of the watched command removes one."""
    watched = killed_at(command, "-")
    with served(command, "--simulate", program=watched) as service:
        batch = create(service, upload(service.sdk, chat_rows(*(f"w{number}" for number in range(ROWS)))).id)
        service.ended(batch.id)
        service.sdk.files.delete(batch.input_file_id)
        service.started.interrupt()  # a killed service may have held the sweeper's lease
        assert service.started.end().code == 0
    assert sweep(command, batch.id) == [], "its rows are all there"
    assert blobs(command, "file/") == 4
    assert command("delete", batch.id, "--yes").code == 0
    assert command.start("list", program=killed_at(command, point)).end().code == -9, "it sweeps before it lists"
    assert blobs(command, "file/") == left
    sweep(command)
    assert (blobs(command, "file/"), blobs(command, "input/")) == (0, 0)


@pytest.mark.parametrize("point", ["before add_pieces:3", "after add_pieces", "before finish_file"])
def test_an_upload_that_was_cut_off_leaves_nothing(command: CommandLine, point: str) -> None:
    data = chat_rows(*(f"w{number}" for number in range(ROWS)))
    with served(command, "--simulate", program=killed_at(command, point)) as service:
        with pytest.raises(openai.APIConnectionError):
            upload(service.sdk, data)
        assert service.started.end().code == -9
    with served(command, key=service.key) as again:
        assert again.sdk.files.list().data == []
        assert blobs(command, "file/") == 0
        assert again.sdk.files.content(upload(again.sdk, data).id).content == data
