"""OpenAI's batch files: an output line for a row that ended, and an input line for a row that is to be sent again.

As the live service writes them: an answer, also a refusal with an HTTP error, is a `response` with `error: null`; a row
that never got an answer has `response: null` and an `error` of code and message. Never both, and never an empty text.
"""

from __future__ import annotations

from typing import assert_never

from batchwright.core import row_map
from batchwright.core.endpoints import wire_url
from batchwright.core.failures import FailureKind
from batchwright.core.records import Record
from batchwright.core.rows import RowView
from batchwright.wire.json_text import one_line, string
from batchwright.wire.reply import NULL, read_reply
from batchwright.wire.results import failure_message, kind_of_end
from batchwright.wire.row_shapes import with_model


def openai_line(view: RowView, batch_id: str) -> bytes:
    """One line of an output or error file, with its newline. The row has ended, or the line says it has not."""
    record = view.record
    response, error = NULL, NULL
    if record is not None and row_map.is_success(view.byte):
        response = _response(record, record.http_status or 200, read_reply(record.body).whole)
    else:
        kind = kind_of_end(view)
        if not row_map.is_end(view.byte):
            error = _error("not_finished", "the row has not ended yet")
        elif record is not None and record.http_status and _shows_response(kind):
            response = _response(record, record.http_status, _error_body(view, record, kind))
        else:
            error = _error(_code(kind, record), failure_message(view, kind))
    custom_id = view.input.custom_id
    return b'{"id":"batch_req_%b_%d","custom_id":%b,"response":%b,"error":%b}\n' % (
        batch_id.removeprefix("batch_").encode(),
        view.request_index,
        NULL if custom_id is None else string(custom_id),
        response,
        error,
    )


def request_line(view: RowView) -> bytes | None:
    """The row as an input line, with its newline; None for one that was refused when it came in.

    The body is what was sent, with a vendor's prefix put back in front of its model, or its route in the place of it.
    """
    row = view.input
    kind = row_map.BYTE_KINDS.get(view.byte)
    if kind is FailureKind.INVALID_ROW or (kind is FailureKind.UNROUTABLE and not row.model):
        return None
    body = row.body
    if row.model_prefix or row.route:
        body = with_model(body, row.named_model)
    label = b"" if row.custom_id is None else b'"custom_id":%b,' % string(row.custom_id)
    return b'{%b"method":"POST","url":%b,"body":%b}\n' % (label, string(wire_url(row.endpoint)), one_line(body))


def _response(record: Record, status: int, body: bytes) -> bytes:
    request_id = string(record.request_id) if record.request_id else NULL
    return b'{"status_code":%d,"request_id":%b,"body":%b}' % (status, request_id, body)


def _error(code: str, message: str) -> bytes:
    return b'{"code":%b,"message":%b}' % (string(code), string(message))


def _error_body(view: RowView, record: Record, kind: FailureKind) -> bytes:
    """The vendor's body if it is an object, as every reader expects; else an error object that carries its text."""
    reply = read_reply(record.body)
    if reply.is_json and reply.whole[:1] == b"{":
        return reply.whole
    return b'{"error":{"message":%b,"type":%b,"param":%b,"code":%b}}' % (
        string(failure_message(view, kind)),
        string(kind.value),
        string(record.param) if record.param else NULL,
        string(record.code or kind.value),
    )


def _code(kind: FailureKind, record: Record | None) -> str:
    match kind:
        case FailureKind.CANCELLED | FailureKind.EXPIRED | FailureKind.STOPPED:
            return f"batch_{kind.value}"
        case FailureKind.INVALID_ROW:
            return record.code if record is not None and record.code else kind.value
        case _:
            return kind.value


def _shows_response(kind: FailureKind) -> bool:
    """Whether the vendor's refusal is the row's response. A 200 that could not be used is none."""
    match kind:
        case (
            FailureKind.RATE_LIMITED
            | FailureKind.OVERLOADED
            | FailureKind.QUOTA_EXHAUSTED
            | FailureKind.AUTH
            | FailureKind.INVALID_REQUEST
            | FailureKind.MODEL_NOT_FOUND
            | FailureKind.CONTEXT_TOO_LONG
            | FailureKind.TOO_LARGE
            | FailureKind.CONTENT_FILTERED
        ):
            return True
        case (
            FailureKind.TIMEOUT
            | FailureKind.NETWORK
            | FailureKind.UNREACHABLE
            | FailureKind.ANSWER_TOO_LARGE
            | FailureKind.BAD_RESPONSE
            | FailureKind.INVALID_ROW
            | FailureKind.UNROUTABLE
            | FailureKind.IN_DOUBT
            | FailureKind.WORKER_LOST
            | FailureKind.MISSING_FROM_UPSTREAM
            | FailureKind.INTERNAL
            | FailureKind.SCHEMA_FAILED
            | FailureKind.CANCELLED
            | FailureKind.EXPIRED
            | FailureKind.STOPPED
        ):
            return False
        case _:
            assert_never(kind)
