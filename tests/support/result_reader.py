"""Reads result lines of either shape, and of the ways in which other services write them.

Infrai items say `ok`. In OpenAI's lines a row is a success only if its status is 2xx and its body holds an answer: a
refusal stands in `response.body.error` with `error: null`, a row without an answer in `error` with `response: null`,
and some services fill both or put an error into a body with status 200.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec import Raw

from batchwright.wire.json_text import BOM
from batchwright.wire.reply import NULL, read_reply


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLine:
    ok: bool
    custom_id: str | None = None
    request_index: int = -1
    """-1 where the line names none."""
    content: object = None
    """The first choice's content: text, None, or a list of parts."""
    http_status: int = 0
    code: str = ""
    message: str = ""
    """Of a row without success; never empty for one."""


class BadResultLine(ValueError):
    """The line is no result of either shape."""


class _Error(msgspec.Struct):
    code: str | int | None = None
    message: str | None = None
    http_status: int = 0


class _Response(msgspec.Struct):
    status_code: int = 0
    body: Raw = Raw(NULL)


class _Result(msgspec.Struct):
    content: Raw = Raw(NULL)


class _Line(msgspec.Struct):
    custom_id: str | None = None
    request_index: int = -1
    ok: bool | None = None
    result: _Result | None = None
    response: Raw = Raw(NULL)
    error: Raw = Raw(NULL)


class _Body(msgspec.Struct):
    error: Raw = Raw(NULL)
    choices: list[Raw] | None = None
    output: list[Raw] | None = None
    data: list[Raw] | None = None


def read_result(line: bytes) -> ResultLine:
    """One line of an output or error file. Raises BadResultLine."""
    try:
        top = msgspec.json.decode(line.removeprefix(BOM), type=_Line)
        return _read_infrai(top) if top.ok is not None else _read_openai(top)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadResultLine(f"no result line: {error}") from error


def _read_infrai(top: _Line) -> ResultLine:
    content = top.result.content if top.result is not None else Raw(NULL)
    if top.ok:
        return ResultLine(
            ok=True,
            custom_id=top.custom_id,
            request_index=top.request_index,
            content=msgspec.json.decode(content),
        )
    return _failure(top, _read_error(top.error), 0)


def _read_openai(top: _Line) -> ResultLine:
    response = msgspec.json.decode(top.response, type=_Response | None)
    error = _read_error(top.error)
    if response is None:
        if error is None:
            raise BadResultLine("no result line: it has neither ok, response nor error")
        return _failure(top, error, 0)
    body = _read_body(bytes(response.body))
    said = _read_error(body.error) if body is not None else None
    answered = body is not None and bool(body.choices or body.output or body.data)
    if 200 <= response.status_code < 300 and answered and said is None and error is None:
        return ResultLine(
            ok=True,
            custom_id=top.custom_id,
            request_index=top.request_index,
            content=msgspec.json.decode(read_reply(bytes(response.body)).content),
            http_status=response.status_code,
        )
    return _failure(top, said or error or _Error(code="bad_response"), response.status_code)


def _failure(top: _Line, error: _Error | None, status: int) -> ResultLine:
    found = error or _Error()
    code = "" if found.code is None else str(found.code)
    return ResultLine(
        ok=False,
        custom_id=top.custom_id,
        request_index=top.request_index,
        http_status=status or found.http_status,
        code=code,
        message=found.message or code or "the row failed without a reason",
    )


def _read_error(value: Raw) -> _Error | None:
    """An error object, or one as text; None for null and for an empty text, which some services mean as null."""
    text = bytes(value)
    if text in (NULL, b'""', b"{}"):
        return None
    if text[:1] == b"{":
        try:
            return msgspec.json.decode(text, type=_Error)
        except msgspec.ValidationError:
            return _Error(message=text.decode("utf-8", "replace")[:500])
    return _Error(message=str(msgspec.json.decode(text)))


def _read_body(body: bytes) -> _Body | None:
    try:
        return msgspec.json.decode(body, type=_Body)
    except msgspec.ValidationError:
        return None
