"""Rows as the store gives them to a reader, made up."""

from __future__ import annotations

import json

from batchwright.core import row_map
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import InputRow, Record
from batchwright.core.rows import RowView


def reply_body(content: object, *, finish_reason: str = "stop", **more: object) -> bytes:
    """A chat answer, with characters raw where JSON allows it."""
    body = {
        "id": "chatcmpl-1",
        "model": "m-small-0601",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
        **more,
    }
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")


def view_of(
    body: bytes,
    *,
    flag: Flag = Flag.PLAIN,
    kind: FailureKind | None = None,
    index: int = 0,
    custom_id: str | None = None,
    columns: dict[str, str] | None = None,
    request: bytes = b'{"model":"m"}',
    model_prefix: str = "",
    endpoint: str = "/chat/completions",
    may_have_been_sent: bool = False,
    **record: object,
) -> RowView:
    """A row that ended with a success of `flag`, or with a failure of `kind`; `record` sets fields of its record."""
    byte = row_map.FLAG_BYTES[flag] if kind is None else row_map.KIND_BYTES[kind]
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "http_status": 200} if kind is None else {}
    values: dict[str, object] = {"row": index, "byte": byte, "attempts": 1, "used": 1, "body": body, "vendor": "any"}
    return RowView(
        request_index=index,
        byte=byte,
        record=Record(**(values | usage | record)),  # type: ignore[arg-type]
        input=InputRow(
            body=request,
            custom_id=custom_id,
            model="m",
            endpoint=endpoint,
            columns=b"" if columns is None else json.dumps(columns).encode(),
            line=index + 1,
            model_prefix=model_prefix,
        ),
        may_have_been_sent=may_have_been_sent,
    )
