"""An answers file read back: lines of JSON (ours or OpenAI's output lines) and records of a table -> `AnswerRow`.

The same value is made of a row of a batch, so that a file and a batch can be compared. What a line does not say is
None; an outcome is `ok`, a flag's name, a failure kind, or how a row stands that has not ended.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from batchwright.core import row_map
from batchwright.core.money import picousd_from_usd
from batchwright.core.records import known_picousd
from batchwright.core.rows import RowView
from batchwright.wire.json_text import mend_surrogates
from batchwright.wire.reply import read_reply
from batchwright.wire.results import failure_message, kind_of_end
from batchwright.wire.table_lines import ADDED

OK = "ok"
_NULL = msgspec.Raw(b"null")
_OPENAI_INDEX = re.compile(r"batch_req_\w*?_(\d+)")


class NoAnswerLine(ValueError):
    """What was read is no line of answers; the text says why."""


class AnswerRow(msgspec.Struct, gc=False, kw_only=True):
    index: int
    """Its request_index; where the file says none, its place in the file."""
    custom_id: str | None = None
    outcome: str = OK
    answer: str = ""
    """Of a row without success: what is said of it."""
    finish_reason: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_picousd: int | None = None
    request: bytes = b""
    """A digest of what was asked; empty: not known."""

    @property
    def key(self) -> str:
        """What it is found by in another file."""
        return f"c{self.custom_id}" if self.custom_id is not None else f"i{self.index}"

    @property
    def is_success(self) -> bool:
        return self.outcome == OK or self.outcome in SUCCESSES


SUCCESSES = frozenset(flag.value for flag in row_map.BYTE_FLAGS.values())


def answer_of_view(view: RowView) -> AnswerRow:
    record, name = view.record, row_map.name_of(view.byte)
    row = AnswerRow(index=view.request_index, custom_id=view.input.custom_id, outcome=OK if name == "plain" else name)
    row.cost_picousd = known_picousd(record)
    row.request = hashlib.blake2b(view.input.body, digest_size=8).digest() if view.input.body else b""
    if record is not None:
        row.prompt_tokens, row.completion_tokens = _known(record.prompt_tokens), _known(record.completion_tokens)
    if record is not None and row_map.is_success(view.byte):
        reply = read_reply(record.body)
        row.answer, row.finish_reason = content_text(bytes(reply.content)), content_text(bytes(reply.finish_reason))
    elif row_map.is_end(view.byte):
        row.answer = failure_message(view, kind_of_end(view))
    return row


def content_text(value: bytes) -> str:
    """Of JSON: a string as it is, null as nothing, anything else as its JSON."""
    if value == b"null":
        return ""
    return str(msgspec.json.decode(value)) if value[:1] == b'"' else value.decode("utf-8", "replace")


def _known(count: int) -> int | None:
    return count if count >= 0 else None


# ---------------------------------------------------------------------------------------------------------- JSON


class _Result(msgspec.Struct, gc=False):
    content: msgspec.Raw = _NULL
    finish_reason: msgspec.Raw = _NULL
    usage: msgspec.Raw = _NULL


class _Error(msgspec.Struct, gc=False):
    kind: str = ""
    code: str | None = None
    message: str | None = None


class _Response(msgspec.Struct, gc=False):
    status_code: int = 200
    body: msgspec.Raw = _NULL


class _Line(msgspec.Struct, gc=False):
    ok: bool | msgspec.UnsetType | None = msgspec.UNSET
    state: str = ""
    id: str = ""
    request_index: int = -1
    custom_id: str | None = None
    cost_usd: msgspec.Raw = _NULL
    result: _Result | None = None
    error: _Error | None = None
    flags: list[str] = []
    response: msgspec.Raw = _NULL


class _Refusal(msgspec.Struct, gc=False):
    refusal: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _RefusalChoice(msgspec.Struct, gc=False):
    message: _Refusal


class _RefusalBody(msgspec.Struct, gc=False):
    choices: list[_RefusalChoice] = []


_read_refusal = msgspec.json.Decoder(_RefusalBody).decode
_read_line = msgspec.json.Decoder(_Line).decode
_read_response = msgspec.json.Decoder(_Response).decode


def answer_of_line(line: bytes, place: int) -> AnswerRow:
    """`place`: of the line in the file, 0-based, blank lines not counted. Raises NoAnswerLine."""
    try:
        found = _read_line(line)
    except (msgspec.DecodeError, RecursionError) as error:
        try:
            found = _read_line(mend_surrogates(line))
        except (msgspec.DecodeError, RecursionError):
            raise NoAnswerLine(f"no line of answers: {error}") from None
    if found.ok is not msgspec.UNSET:
        return _of_ours(found, place)
    if found.response == _NULL and found.error is None:
        raise NoAnswerLine("neither `ok`, as our lines have, nor `response` or `error`, as OpenAI's output lines have")
    return _of_openai(found, place)


def _of_ours(found: _Line, place: int) -> AnswerRow:
    row = AnswerRow(index=found.request_index if found.request_index >= 0 else place, custom_id=found.custom_id)
    row.cost_picousd = _money(bytes(found.cost_usd))
    if found.ok and found.result is not None:
        row.outcome = found.flags[0] if found.flags else OK
        row.answer, row.finish_reason = (
            content_text(bytes(found.result.content)),
            content_text(bytes(found.result.finish_reason)),
        )
        _set_usage(row, bytes(found.result.usage))
    elif found.error is not None:
        row.outcome, row.answer = found.error.kind or found.error.code or "failed", found.error.message or ""
    else:
        row.outcome = found.state or "open"
    return row


def _of_openai(found: _Line, place: int) -> AnswerRow:
    numbered = _OPENAI_INDEX.fullmatch(found.id)
    row = AnswerRow(index=int(numbered[1]) if numbered else place, custom_id=found.custom_id)
    if found.response == _NULL:
        assert found.error is not None
        row.outcome, row.answer = found.error.code or "failed", found.error.message or ""
        return row
    try:
        response = _read_response(found.response)
    except msgspec.DecodeError as error:
        raise NoAnswerLine(f"`response` is none of OpenAI's output lines: {error}") from None
    reply = read_reply(bytes(response.body))
    row.answer, row.finish_reason = content_text(bytes(reply.content)), content_text(bytes(reply.finish_reason))
    if response.status_code >= 300:
        row.outcome = f"http_{response.status_code}"
        row.answer = reply.whole.decode("utf-8", "replace")
    else:
        row.outcome = _flag_of(row, bytes(response.body))
    _set_usage(row, bytes(reply.usage))
    return row


def _flag_of(row: AnswerRow, body: bytes) -> str:
    """About as `vendors/chat_answers.py` has it, from which alone a line of OpenAI's can be told."""
    if row.finish_reason == "content_filter":
        return "filtered"
    try:
        message = _read_refusal(body).choices[0].message
    except (msgspec.DecodeError, IndexError):
        message = _Refusal()
    if message.refusal:
        return "refused"
    if not row.answer.strip():
        return OK if message.tool_calls else "empty"
    return "truncated" if row.finish_reason == "length" else OK


def _set_usage(row: AnswerRow, usage: bytes) -> None:
    try:
        found = msgspec.json.decode(usage)
    except msgspec.DecodeError:
        return
    if isinstance(found, dict):
        row.prompt_tokens = _count(found.get("prompt_tokens", found.get("input_tokens")))
        row.completion_tokens = _count(found.get("completion_tokens", found.get("output_tokens")))


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _money(text: bytes) -> int | None:
    if text in (b"null", b""):
        return None
    try:
        return picousd_from_usd(text.decode())
    except ValueError:
        return None


# --------------------------------------------------------------------------------------------------------- tables


class AnswerTable:
    """Reads records of a table by its header. Raises NoAnswerLine for one without the columns of answers."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._added = {name: self._last_of(name) for name in ADDED}
        if not self._added["answer"] or not self._added["error_kind"]:
            raise NoAnswerLine(
                f"no table of answers: expected columns answer and error_kind, found {', '.join(names)[:200]}"
            )

    def _last_of(self, name: str) -> str:
        """An added column has `_2` behind its name where the input had one of that name, and stands after it."""
        fitting = [each for each in self._names if re.fullmatch(rf"{name}(_\d+)?", each)]
        return fitting[-1] if fitting else ""

    def answer_of(self, fields: Mapping[str, str | None], place: int) -> AnswerRow:
        def value(name: str) -> str:
            return fields.get(self._added[name]) or ""

        index = fields.get("request_index") or ""
        row = AnswerRow(index=int(index) if index.isdecimal() else place, custom_id=fields.get("custom_id") or None)
        row.finish_reason = value("finish_reason")
        row.cost_picousd = _money(value("cost_usd").encode())
        row.prompt_tokens, row.completion_tokens = (
            _cell_count(value("prompt_tokens")),
            _cell_count(value("completion_tokens")),
        )
        row.outcome = value("error_kind") or value("flag") or OK
        row.answer = value("error_message") if value("error_kind") else value("answer")
        if row.answer[:1] == "'" and row.answer[1:2] in ("=", "+", "-", "@", "\t", "\r", "\n"):
            row.answer = row.answer[1:]  # what keeps a spreadsheet from taking it for a formula
        return row


def _cell_count(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
