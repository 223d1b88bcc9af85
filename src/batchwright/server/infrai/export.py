"""A batch's rows as one file: `GET /v1/ai/batch/export/{id}.jsonl` and `.csv`, streamed, and Infrai's own `POST
/v1/ai/batch/export/{id}`, whose envelope holds all lines as one string.

A reader that has got a part when the batch is deleted, retried or priced anew gets no end: the connection is closed
before the last piece, so that nobody takes what was read for the whole.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from batchwright.core.rows import RowView
from batchwright.server.asking import Ask
from batchwright.server.bodies import read_json
from batchwright.server.capabilities import COUNT, FLAG, TEXT, shape
from batchwright.server.faults import Fault
from batchwright.server.row_file import FileIndex, RowFile, tag_of, zipped
from batchwright.wire.output_lines import OutputFormat, line_writer

TERMINAL = "X-Batch-Terminal"
MOST_OPTIONS_BYTES = 64 * 1024
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_TAG = re.compile(r'(?:W/)?"([^"]*)"')
OTHER_FILE = "/v1/ai/batch/export/{batch_id}.{form}"
ZIPPED = "-gzip"
"""Behind the tag of the packed bytes: two forms of a file have two tags."""


class Form(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    output: OutputFormat
    media: str
    least_line_bytes: int
    """No line has fewer, so that a batch of many rows is known to be too large without a look at them."""


WRITTEN: dict[Form, _Written] = {
    Form.JSONL: _Written(output=OutputFormat.INFRAI, media="application/x-ndjson", least_line_bytes=100),
    Form.CSV: _Written(output=OutputFormat.CSV, media="text/csv; charset=utf-8; header=present", least_line_bytes=20),
}
EXPORTED = shape(
    {
        "batch_id": TEXT,
        "format": {"enum": [form.value for form in Form]},
        "content": {"type": ["string", "null"], "description": "All lines; null: too large, download_url has them"},
        "row_count": COUNT,
        "bytes": {"type": ["integer", "null"], "description": "Of content; null with it"},
        "max_bytes": COUNT,
        "download_url": TEXT,
        "url": {
            "type": ["string", "null"],
            "description": "Where content is null and bodies lie in an object store: a link to the whole file, good "
            "for an hour and without a key; null while it is being written",
        },
        "terminal": FLAG,
    }
)


class _Options(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    format: Form | None = None


_read_options = msgspec.json.Decoder(_Options).decode


async def export(ask: Ask) -> Response:
    """All lines in the envelope, where they fit into `ceilings.export_bytes`; never more than that is in memory."""
    form = await _form(ask)
    file = await _file(ask, form)
    at_most = ask.service.ceilings.export_bytes
    rows = file.status.total - file.status.counts.open
    content = None
    if rows * WRITTEN[form].least_line_bytes <= at_most:
        content, written = await _content(ask, file, at_most)
        rows = rows if content is None else written  # rows of a batch that runs end meanwhile
    url = None
    if content is None and file.tag and ask.service.exporting is not None:
        url = await ask.service.exporting.link(await _file(ask, form))
    return ask.answer(
        {
            "batch_id": file.status.batch_id,
            "format": form.value,
            "content": content if content is None else await asyncio.to_thread(_string, content),
            "row_count": rows,
            "bytes": content if content is None else len(content),
            "max_bytes": at_most,
            "download_url": f"/v1/ai/batch/export/{file.name}",
            "url": url,
            "terminal": file.status.terminal,
        }
    )


async def download_jsonl(ask: Ask) -> Response:
    return await _download(ask, Form.JSONL)


async def download_csv(ask: Ask) -> Response:
    return await _download(ask, Form.CSV)


async def refuse_other_file(ask: Ask) -> Response:
    """Without this the router would say that another method is meant, which it is not."""
    asked = str(ask.request.path_params["form"])
    known = " or ".join(f"{form.value!r}" for form in Form)
    raise Fault("NOT_FOUND", f"There is no export as {asked[:40]!r}; expected {known}.", param="format")


async def _download(ask: Ask, form: Form) -> Response:
    file = await _file(ask, form)
    headers = {
        "Content-Type": WRITTEN[form].media,
        "Content-Disposition": f'attachment; filename="{file.name}"',
        "Vary": "Accept-Encoding",
        "X-Request-Id": ask.request_id,
        TERMINAL: "true" if file.tag else "false",
    }
    packed = _takes_gzip(ask)
    if not file.tag:
        headers["Cache-Control"] = "no-store"
        return _whole(ask, file, headers, packed=packed)
    headers |= {"Cache-Control": "private, no-cache", "ETag": f'"{file.tag}"', "Accept-Ranges": "bytes"}
    if _knows(ask.request.headers.get("if-none-match", ""), file.tag):
        return Response(status_code=304, headers=headers)
    asked = _RANGE.fullmatch(ask.request.headers.get("range", "").replace(" ", ""))
    condition = ask.request.headers.get("if-range", "").strip()
    if asked is not None and asked[0] != "bytes=-" and condition in ("", headers["ETag"]):
        index = await file.measure(ask.service.files)
        return _part(ask, file, index, headers, (asked[1], asked[2]))
    return _whole(ask, file, headers, packed=packed)


def _whole(ask: Ask, file: RowFile, headers: dict[str, str], *, packed: bool) -> Response:
    index = ask.service.files.find(file.name, file.tag)
    if packed:
        headers["Content-Encoding"] = "gzip"
        if file.tag:
            headers["ETag"] = f'"{file.tag}{ZIPPED}"'
    elif index is not None:
        headers["Content-Length"] = str(index.length)
    if ask.request.method == "HEAD":
        return _Head(headers=headers)
    pieces = file.whole(ask.service.files)
    return _Streamed(ask, zipped(pieces) if packed else pieces, headers)


def _part(ask: Ask, file: RowFile, index: FileIndex, headers: dict[str, str], asked: tuple[str, str]) -> Response:
    """206, or 416 where there is no such part; a part that cannot be meant (its end before its start) is the whole."""
    first_text, last_text = asked
    if not first_text:
        first, last = max(0, index.length - int(last_text)), index.length - 1
    else:
        first = int(first_text)
        last = min(int(last_text), index.length - 1) if last_text else index.length - 1
        if last_text and int(last_text) < first:
            return _whole(ask, file, headers, packed=False)
    if first > last:
        fault = Fault("RANGE_NOT_SATISFIABLE", f"The file has {index.length:,} bytes; {first:,} is past its end.")
        answer = ask.refuse(fault)
        answer.headers["Content-Range"] = f"bytes */{index.length}"
        return answer
    headers["Content-Range"] = f"bytes {first}-{last}/{index.length}"
    headers["Content-Length"] = str(last - first + 1)
    if ask.request.method == "HEAD":
        return _Head(status_code=206, headers=headers)
    return _Streamed(ask, file.part(index, first, last), headers, status_code=206)


class _Head(Response):
    """Headers alone: what a GET would say of a body that is not made."""

    def __init__(self, *, headers: dict[str, str], status_code: int = 200) -> None:
        super().__init__(status_code=status_code, headers=headers)
        if "Content-Length" not in headers:
            del self.headers["content-length"]


class _Streamed(StreamingResponse):
    """Cut off, without the end that says it is whole, when the pieces cannot be made any more."""

    def __init__(
        self, ask: Ask, pieces: AsyncIterator[bytes], headers: dict[str, str], *, status_code: int = 200
    ) -> None:
        super().__init__(pieces, status_code=status_code, headers=headers)
        self._ask = ask

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except Exception as error:
            self._ask.service.report(f"request {self._ask.request_id}: broken off: {error or type(error).__name__}")


async def _form(ask: Ask) -> Form:
    body = await read_json(ask.request, MOST_OPTIONS_BYTES)
    if not body.strip():
        return Form.JSONL
    try:
        return _read_options(body).format or Form.JSONL
    except msgspec.ValidationError as error:
        raise Fault("INVALID_REQUEST", f"The body is not as expected: {error}", param="format") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Fault("INVALID_JSON", f"The body is not JSON: {error}") from None


async def _file(ask: Ask, form: Form) -> RowFile:
    status = await ask.batches.status(ask.batch_id())
    head, line = line_writer(WRITTEN[form].output, status.batch_id, status.spec)
    return RowFile(
        name=f"{status.batch_id}.{form.value}",
        batches=ask.batches,
        status=status,
        tag=tag_of(status),
        head=head,
        line=line,
        texts_of=None if form is Form.CSV and status.spec.csv_columns else frozenset(),
    )


async def _content(ask: Ask, file: RowFile, at_most: int) -> tuple[bytes | None, int]:
    """And how many rows are in it. None: it has more bytes."""
    pieces: list[bytes] = []
    size = rows = 0

    def line(view: RowView) -> bytes:
        nonlocal rows
        rows += 1
        return file.line(view)

    async with aclosing(replace(file, line=line).whole(ask.service.files)) as whole:
        async for piece in whole:
            size += len(piece)
            if size > at_most:
                return None, rows
            pieces.append(piece)
    return b"".join(pieces), rows


def _string(content: bytes) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(content.decode()))


def _takes_gzip(ask: Ask) -> bool:
    for part in ask.request.headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = part.replace(" ", "").partition(";q=")
        if name in ("gzip", "x-gzip", "*"):
            return not re.fullmatch(r"0(\.0*)?", weight)
    return False


def _knows(header: str, tag: str) -> bool:
    """Whether If-None-Match names these bytes, packed or not."""
    return header.strip() == "*" or not {tag, tag + ZIPPED}.isdisjoint(_TAG.findall(header))
