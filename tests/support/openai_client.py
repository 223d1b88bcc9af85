"""The stock `openai` SDK against a service of the tests, and the files that it uploads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import openai
from openai.types import Batch, FileObject

from support.command_line import chat_row
from support.patience import PATIENCE_S
from support.service import RunningService

CHAT: Final = "/v1/chat/completions"


def sdk(service: RunningService, key: str | None = None) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{service.base_url}/v1", api_key=service.key if key is None else key, timeout=PATIENCE_S
    )


def rows_file(rows: Sequence[object]) -> bytes:
    """A row is a string (as it stands) or an object."""
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def chat_rows(*texts: str) -> bytes:
    """The first row's custom_id is `r0`."""
    return rows_file([chat_row(text, f"r{number}") for number, text in enumerate(texts)])


def upload(client: openai.OpenAI, data: bytes, name: str = "rows.jsonl") -> FileObject:
    return client.files.create(file=(name, data), purpose="batch")


def create(client: openai.OpenAI, data: bytes, window: str = "24h", **fields: Any) -> Batch:
    file = upload(client, data)
    given: Any = {"endpoint": CHAT, "completion_window": window, **fields}
    return client.batches.create(input_file_id=file.id, **given)


def run(service: RunningService, data: bytes, **fields: Any) -> Batch:
    """The batch once it has ended."""
    client = sdk(service)
    batch = create(client, data, **fields)
    service.ended(batch.id)
    return client.batches.retrieve(batch.id)


def lines(client: openai.OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    return [json.loads(line) for line in client.files.content(file_id).content.splitlines()]
