"""Result files of the OpenAI kind, line by line: pieces of a download -> lines -> `ResultLine`.

    {"custom_id", "response": {"status_code", "request_id", "body"}, "error": null}      an answer, or a refusal
    {"custom_id", "response": null, "error": {"code", "message"}}                        no answer

What is missing counts as null, what is of another type is read as far as it can be, and no line raises.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import msgspec

from batchwright.core.failures import FailureKind
from batchwright.ports.http import MAX_ANSWER_BYTES
from batchwright.ports.vendor import Answer
from batchwright.ports.vendor_batches import ResultLine
from batchwright.vendors.batch_calls import BatchCalls
from batchwright.vendors.error_bodies import ErrorView, read_error
from batchwright.vendors.kinds import kind_of_refusal
from batchwright.vendors.profiles import Profile
from batchwright.vendors.usage import NULL
from batchwright.vendors.valid_text import one_line, repair
from batchwright.wire.json_text import BOM, read_value

KEPT_OF_LONG = 4096
"""The beginning of a line that is too long: its id mostly stands there."""
MAX_EXCERPT_CHARS = 120
MAX_ID_CHARS = 512
"""Of an id that is not ours; it is shown to a person."""
NOT_DONE = {
    "batch_expired": FailureKind.EXPIRED,
    "batch_cancelled": FailureKind.CANCELLED,
    "batch_canceled": FailureKind.CANCELLED,
    "batch_stopped": FailureKind.STOPPED,
}
"""Codes of rows that a batch ended without."""
_TAKEN_HERE = {
    FailureKind.INVALID_ROW: FailureKind.INVALID_REQUEST,
    FailureKind.UNROUTABLE: FailureKind.MODEL_NOT_FOUND,
}
"""What a service of ours refused when it read the row: here the row was read well, and is refused by a vendor."""
_OWN_KINDS = {kind.value: _TAKEN_HERE.get(kind, kind) for kind in FailureKind}
_LONG_ID = re.compile(rb'"custom_id"\s*:\s*"([^"\\]{1,512})"')


class _Response(msgspec.Struct, gc=False):
    status_code: int | None = None
    request_id: str | None = None
    body: msgspec.Raw = NULL


class _Line(msgspec.Struct, gc=False):
    custom_id: str | None = None
    response: _Response | None = None
    error: msgspec.Raw = NULL


_LINE = msgspec.json.Decoder(_Line)


class CutLine(msgspec.Struct, frozen=True, gc=False):
    number: int
    """1-based; blank lines count."""
    text: bytes
    whole: bool = True
    """False: it was too long, and this is its beginning."""


class LineCutter:
    """Cuts pieces into lines, with no more than one line in memory. Blank lines are left out."""

    def __init__(self, most_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._most_bytes = most_bytes
        self._rest = bytearray()
        self._number = 0
        self._too_long = False

    def feed(self, piece: bytes) -> Iterator[CutLine]:
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            self._add(piece[start:end])
            yield from self._take()
            start = end + 1
        self._add(piece[start:])

    def end(self) -> Iterator[CutLine]:
        """The last line, where no line break ended it."""
        if self._rest:
            yield from self._take()

    def _add(self, part: bytes) -> None:
        if self._too_long:
            return
        self._rest += part
        if len(self._rest) > self._most_bytes:
            del self._rest[KEPT_OF_LONG:]
            self._too_long = True

    def _take(self) -> Iterator[CutLine]:
        self._number += 1
        text = bytes(self._rest).removeprefix(BOM if self._number == 1 else b"").strip()
        whole = not self._too_long
        self._rest.clear()
        self._too_long = False
        if text:
            yield CutLine(self._number, text, whole)


async def cut_lines(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[CutLine, None]:
    cutter = LineCutter()
    async with aclosing(pieces):
        async for piece in pieces:
            for line in cutter.feed(piece):
                yield line
    for line in cutter.end():
        yield line


class ResultReader:
    """Reads lines of one file as live answers of this endpoint."""

    def __init__(self, calls: BatchCalls, endpoint: str, file: str) -> None:
        """`file`: what it is called to a person ("the output file")."""
        self._calls = calls
        self._endpoint = endpoint
        self._file = file
        batches = calls.profile.batches
        self._undone_is_free = batches is None or batches.undone_is_free

    def read(self, cut: CutLine) -> ResultLine:
        place = f"line {cut.number} of {self._file}"
        if not cut.whole:
            return too_long(cut, place)
        text = repair(cut.text)
        try:
            line: _Line | None = _LINE.decode(text)
        except (msgspec.DecodeError, RecursionError):
            line = _read_loosely(text)
        if line is None or not line.custom_id:
            what = "is no JSON object" if line is None else "has no custom_id"
            return ResultLine(row_id="", answer=None, place=place, problem=f"{place} {what}: {self._excerpt(text)}")
        answer = self._answer(line)
        undone = answer.code.lower() in NOT_DONE and not answer.http_status
        return ResultLine(row_id=line.custom_id, answer=answer, done=not (undone and self._undone_is_free), place=place)

    def _answer(self, line: _Line) -> Answer:
        response = line.response
        if response is not None and (response.status_code or not _is_null(response.body)):
            body = _body_of(response.body)
            answer = self._calls.answer(response.status_code or 200, body, self._endpoint)
            answer.request_id = one_line(response.request_id or "", MAX_ID_CHARS)
            return answer
        if not _is_null(line.error):
            return self._failure(bytes(line.error))
        return Answer(
            kind=FailureKind.BAD_RESPONSE,
            code="no_answer",
            message="the vendor's line has neither a response nor an error",
        )

    def _failure(self, error: bytes) -> Answer:
        """Of a row that got no answer of its own."""
        value = _decoded(error)
        view = read_error({"error": value})
        if view is None:
            message = f"the vendor's error says nothing that can be read: {self._excerpt(error)}"
            return Answer(kind=FailureKind.BAD_RESPONSE, message=message)
        code = view.code.lower()
        kind = NOT_DONE.get(code) or _OWN_KINDS.get(code) or kind_of_error(view, self._calls.profile)
        return Answer(kind=kind, code=view.code, param=view.param, message=self._calls.hidden(view.message))

    def _excerpt(self, text: bytes) -> str:
        return self._calls.hidden(excerpt(text))


def excerpt(text: bytes) -> str:
    """The beginning of a line, for a person."""
    return one_line(text[: 4 * MAX_EXCERPT_CHARS].decode(errors="replace"), MAX_EXCERPT_CHARS)


def too_long(cut: CutLine, place: str) -> ResultLine:
    found = _LONG_ID.search(cut.text)
    message = f"{place} is above {MAX_ANSWER_BYTES} bytes"
    if found is None:
        return ResultLine(row_id="", answer=None, place=place, problem=f"{message}, and its custom_id is not in sight")
    answer = Answer(kind=FailureKind.ANSWER_TOO_LARGE, message=message)
    return ResultLine(row_id=found[1].decode(errors="replace"), answer=answer, place=place)


def kind_of_error(view: ErrorView, profile: Profile) -> FailureKind:
    """Of an error without a status of its own. One that nobody has told us of is tried again, as often as attempts
    allow: BAD_RESPONSE."""
    kind = kind_of_refusal(view.status, view, profile)
    if kind is FailureKind.BAD_RESPONSE and any(mark in _OF_THE_ROW for mark in view.marks):
        return FailureKind.INVALID_REQUEST
    return kind


_OF_THE_ROW = ("invalid_request_error", "invalid_request", "invalid_json", "validation_error")


def _body_of(value: msgspec.Raw) -> bytes:
    """An answer's body; some vendors write that of a refusal as a text."""
    body = bytes(value)
    if body[:1] == b'"':
        text = _decoded(body)
        return text.encode() if isinstance(text, str) else body
    return b"" if body == b"null" else body


def _is_null(value: msgspec.Raw) -> bool:
    return bytes(value) in (b"null", b"")


def _decoded(value: bytes) -> object:
    try:
        return read_value(value)
    except (ValueError, RecursionError):
        return None


def _read_loosely(text: bytes) -> _Line | None:
    """A line whose fields are not of the types they should be: what fits is taken. None: it is no JSON object."""
    value = _decoded(text)
    if not isinstance(value, dict):
        return None
    row_id, error = value.get("custom_id"), value.get("error")
    line = _Line(
        custom_id=row_id if isinstance(row_id, str) else str(row_id) if isinstance(row_id, int) else None,
        error=msgspec.Raw(msgspec.json.encode(error)) if error is not None else NULL,
    )
    response = value.get("response")
    if isinstance(response, dict):
        status, request_id, body = (response.get(name) for name in ("status_code", "request_id", "body"))
        line.response = _Response(
            status_code=_status(status),
            request_id=request_id if isinstance(request_id, str) else None,
            body=msgspec.Raw(msgspec.json.encode(body)) if body is not None else NULL,
        )
    return line


def _status(value: object) -> int | None:
    if isinstance(value, (int, float)):
        return int(value)
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) == 3 else None
