"""Anthropic's Message Batches. Implements `ports.vendor_batches.VendorBatches`.

    POST /messages/batches {"requests": [{"custom_id", "params"}]}
    GET /messages/batches?limit&after_id, newest first
    GET /messages/batches/ID, GET .../ID/results, POST .../ID/cancel, DELETE .../ID

Rows go in with the call, as `anthropic_request` maps them, and come back as chat completions. A batch keeps neither
metadata nor a name, so the tag stands in front of every row's id, as a mark of `MARK_CHARS`: who looks for it reads the
first line of its results, and before there are any, as many rows is all that tells.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from hashlib import blake2s
from io import SEEK_END, BytesIO

import msgspec

from batchwright.core.endpoints import CHAT
from batchwright.core.failures import FailureKind
from batchwright.core.records import UNKNOWN
from batchwright.ports.http import HttpReply
from batchwright.ports.vendor import Answer
from batchwright.ports.vendor_batches import (
    BatchFault,
    BatchFile,
    BatchLine,
    BatchOrder,
    BatchView,
    CreatedBatch,
    CreateStep,
    FoundBatch,
    ResultLine,
    TagKept,
    VendorBatchState,
)
from batchwright.vendors.anthropic import MESSAGES, AnswerReader, unmapped
from batchwright.vendors.batch_calls import BatchCalls, JsonObject
from batchwright.vendors.batch_input import write_rows
from batchwright.vendors.batch_results import CutLine, cut_lines, excerpt, too_long
from batchwright.vendors.batch_views import count, first_ms, object_of, objects_of, text_of
from batchwright.vendors.file_batches import MAX_PAGES, SLACK_MS, cancel_or_look, is_since, limits_of, no_id
from batchwright.vendors.profiles import BatchApi
from batchwright.vendors.urls import escaped
from batchwright.vendors.usage import NULL
from batchwright.vendors.valid_text import repair
from batchwright.wire.json_text import string

BATCHES = f"{MESSAGES}/batches"
PAGE = 100
MARK_CHARS = 17
"""`bw`, 14 hex digits of the tag's digest, a hyphen: with a row id of ours well below the 64 that an id may have."""
STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""With which status a live call is refused for it (Anthropic's page on errors)."""
NOT_DONE = {"expired": FailureKind.EXPIRED, "canceled": FailureKind.CANCELLED, "cancelled": FailureKind.CANCELLED}
_HEAD = b"HTTP/1.1 200 OK"
_MARK = re.compile(r"bw[0-9a-f]{14}-")


class _Result(msgspec.Struct, gc=False):
    type: str = ""
    message: msgspec.Raw = NULL
    error: msgspec.Raw = NULL


class _Line(msgspec.Struct, gc=False):
    custom_id: str | None = None
    result: _Result | None = None


class _ErrorBody(msgspec.Struct, gc=False):
    class Error(msgspec.Struct, gc=False):
        type: str = ""

    error: Error | None = None


_LINE = msgspec.json.Decoder(_Line)
_ERROR = msgspec.json.Decoder(_ErrorBody)


class AnthropicBatches:
    """One vendor, address and key. To be used on the loop's thread."""

    def __init__(self, calls: BatchCalls, api: BatchApi, reader: AnswerReader) -> None:
        self._calls = calls
        self._reader = reader
        self.limits = limits_of(api, TagKept.ROW_IDS)

    def unfit(self, endpoint: str, body: bytes) -> Answer | None:
        found = unmapped(endpoint, body)
        return found if isinstance(found, Answer) else None

    async def create(self, lines: Iterable[BatchLine], order: BatchOrder) -> CreatedBatch:
        mark = mark_of(order.tag)
        content = BytesIO()
        content.write(b'{"requests":[')
        await write_rows(
            lines,
            order,
            limits=self.limits,
            write=lambda line: _request(line, mark, order.endpoint),
            into=content,
            breathe=self._calls.breathe,
        )
        content.seek(-1, SEEK_END)  # the comma behind the last
        content.write(b"]}")
        try:
            made = await self._calls.ask("creating a batch", "POST", BATCHES, body=content.getvalue())
            batch_id = text_of(made, "id")
            if not batch_id:
                raise no_id("the new batch")
        except BatchFault as fault:
            fault.step = CreateStep.CREATE
            raise
        return CreatedBatch(batch_id=batch_id, file_id="")

    async def find(self, tag: str, *, since_ms: int, rows: int) -> tuple[FoundBatch, ...]:
        found = []
        for view in await self._listed(since_ms - SLACK_MS):
            if view.total not in (rows, UNKNOWN):
                continue
            mark = await self._first_mark(view) if view.output_ref else ""
            if mark == mark_of(tag):
                found.append(FoundBatch(view=msgspec.structs.replace(view, tag=tag), certain=True))
            elif not view.state.has_ended:
                found.append(FoundBatch(view=view, certain=False))
        return tuple(found)

    async def look(self, batch_id: str) -> BatchView:
        return _view(await self._calls.ask("looking at a batch", "GET", _path(batch_id)))

    async def results(self, view: BatchView) -> AsyncGenerator[ResultLine, None]:
        if not view.output_ref:
            return
        pieces = self._calls.stream("reading the results of a batch", f"{_path(view.output_ref)}/results")
        async with aclosing(cut_lines(pieces)) as lines:
            async for line in lines:
                yield self._read(line)

    async def cancel(self, batch_id: str) -> None:
        await cancel_or_look(self._calls, f"{_path(batch_id)}/cancel", lambda: self.look(batch_id))

    async def files(self, *, since_ms: int) -> tuple[BatchFile, ...]:
        return ()

    async def delete_files(self, refs: Iterable[str]) -> None:
        """A batch and its results are one there, and are deleted as one."""
        for ref in refs:
            if ref:
                await self._calls.delete("deleting a batch", _path(ref))

    async def _listed(self, since_ms: int) -> list[BatchView]:
        views: dict[str, BatchView] = {}
        path = f"{BATCHES}?limit={PAGE}"
        for _ in range(MAX_PAGES):
            page = await self._calls.ask("listing batches", "GET", path)
            items = [item for item in objects_of(page) if text_of(item, "id")]
            fresh = [view for item in items if (view := _view(item)).batch_id not in views]
            recent = [view for view in fresh if is_since(view.created_ms, since_ms)]
            views |= {view.batch_id: view for view in recent}
            if page.get("has_more") is not True or not recent:
                break
            path = f"{BATCHES}?limit={PAGE}&after_id={escaped(text_of(items[-1], 'id'))}"
        return list(views.values())

    async def _first_mark(self, view: BatchView) -> str:
        """Of the first line that has an id; empty: there is none."""
        async with aclosing(self._lines(view)) as lines:
            async for line in lines:
                if line.custom_id:
                    found = _MARK.match(line.custom_id)
                    return found[0] if found is not None else ""
        return ""

    async def _lines(self, view: BatchView) -> AsyncGenerator[_Line, None]:
        pieces = self._calls.stream("reading the results of a batch", f"{_path(view.output_ref)}/results")
        async with aclosing(cut_lines(pieces)) as cuts:
            async for cut in cuts:
                line = _decoded(cut.text)
                if line is not None:
                    yield line

    def _read(self, cut: CutLine) -> ResultLine:
        place = f"line {cut.number} of the results"
        if not cut.whole:
            long = too_long(cut, place)
            return msgspec.structs.replace(long, row_id=without_mark(long.row_id))
        text = repair(cut.text)
        line = _decoded(text)
        if line is None or not line.custom_id:
            what = "is no line of results" if line is None else "has no custom_id"
            problem = f"{place} {what}: {self._calls.hidden(excerpt(text))}"
            return ResultLine(row_id="", answer=None, place=place, problem=problem)
        result = line.result or _Result()
        return ResultLine(
            row_id=without_mark(line.custom_id),
            answer=self._answer(result),
            done=result.type not in NOT_DONE,
            place=place,
        )

    def _answer(self, result: _Result) -> Answer:
        if result.type == "succeeded":
            return self._reader.read(HttpReply(200, _HEAD, bytes(result.message)))
        if result.type == "errored":
            body = bytes(result.error)
            return self._reader.judge(HttpReply(_status(body), _HEAD, body), MESSAGES)
        if result.type in NOT_DONE:
            return Answer(
                kind=NOT_DONE[result.type],
                code=f"batch_{result.type}",
                message=f"the vendor's batch ended without this row: it is {result.type}, and not billed",
            )
        return Answer(
            kind=FailureKind.BAD_RESPONSE,
            code="no_answer",
            message=f"the vendor's line has a result of type {excerpt(result.type.encode()) or 'nothing'}",
        )


def mark_of(tag: str) -> str:
    return f"bw{blake2s(tag.encode(), digest_size=7).hexdigest()}-"


def without_mark(custom_id: str) -> str:
    """Our row id; of a batch that was made elsewhere the id as it is."""
    return custom_id[MARK_CHARS:] if _MARK.match(custom_id) else custom_id


def _request(line: BatchLine, mark: str, endpoint: str) -> bytes:
    params = unmapped(endpoint, line.body)
    if isinstance(params, Answer):
        raise ValueError(f"the row {line.row_id} is unfit: {params.message}")
    return b'{"custom_id":%b,"params":%b},' % (string(f"{mark}{line.row_id}"), params)


def _path(batch_id: str) -> str:
    return f"{BATCHES}/{escaped(batch_id)}"


def _view(value: JsonObject) -> BatchView:
    batch_id, status = text_of(value, "id"), text_of(value, "processing_status")
    if not batch_id:
        raise no_id("the batch")
    counts = object_of(value, "request_counts")
    told = {name: count(counts.get(name)) for name in ("processing", "succeeded", "errored", "canceled", "expired")}
    lost = [told[name] for name in ("errored", "canceled", "expired") if told[name] != UNKNOWN]
    known = all(number != UNKNOWN for number in told.values())
    return BatchView(
        batch_id=batch_id,
        state=_state(value, status, told),
        state_text=status,
        endpoint=CHAT,
        total=sum(told.values()) if known else UNKNOWN,
        succeeded=told["succeeded"],
        failed=sum(lost) if lost else UNKNOWN,
        output_ref=batch_id if status == "ended" and text_of(value, "results_url") else "",
        created_ms=first_ms(value, "created_at"),
        ended_ms=first_ms(value, "ended_at"),
        expires_ms=first_ms(value, "expires_at"),
    )


def _state(value: JsonObject, status: str, told: dict[str, int]) -> VendorBatchState:
    """A batch there just ends; what became of its rows says how."""
    match status:
        case "canceling" | "cancelling":
            return VendorBatchState.CANCELLING
        case "ended" if told["canceled"] > 0 or (text_of(value, "cancel_initiated_at") and not told["succeeded"]):
            return VendorBatchState.CANCELLED
        case "ended" if told["expired"] > 0:
            return VendorBatchState.EXPIRED
        case "ended":
            return VendorBatchState.COMPLETED
        case _:
            return VendorBatchState.IN_PROGRESS


def _decoded(text: bytes) -> _Line | None:
    try:
        return _LINE.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _status(error: bytes) -> int:
    try:
        found = _ERROR.decode(error).error
    except (msgspec.MsgspecError, RecursionError):
        found = None
    return STATUSES.get(found.type, 500) if found is not None else 500
