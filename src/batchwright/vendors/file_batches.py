"""Batch APIs to which rows go as an uploaded file of lines. Implements `ports.vendor_batches.VendorBatches`.

What a vendor calls things is its `FileProtocol`, one module each; what it allows is data (`profiles.toml`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from io import BytesIO
from typing import Protocol

import msgspec

from batchwright.core.failures import FailureKind
from batchwright.ports.vendor import Answer
from batchwright.ports.vendor_batches import (
    MAX_FILE_BYTES,
    BatchFault,
    BatchFile,
    BatchLimits,
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
from batchwright.vendors.batch_calls import BatchCalls, JsonObject
from batchwright.vendors.batch_input import (
    FORM_TAIL,
    MULTIPART,
    file_name,
    form_head,
    tag_of,
    unfit_for_files,
    write_rows,
)
from batchwright.vendors.batch_results import ResultReader, cut_lines
from batchwright.vendors.batch_views import count, moment_ms, objects_of, text_of
from batchwright.vendors.profiles import BatchApi
from batchwright.vendors.urls import escaped

SLACK_MS = 600_000
"""A vendor's clock is another one."""
MAX_PAGES = 1000
"""Of a list: far more batches than any account has within a window."""
MAX_NAME_CHARS = 200


class Page(msgspec.Struct, frozen=True, kw_only=True):
    views: tuple[BatchView, ...]
    next_path: str
    """Empty: this is the last."""


class FileProtocol(Protocol):
    """A vendor's words. Pure; what it is given came over the wire and may be anything."""

    upload_path: str
    batches_path: str
    tag_kept: TagKept

    def form_fields(self, name: str) -> dict[str, str]:
        """Of an upload, beside the file itself."""

    def line(self, line: BatchLine, endpoint: str) -> bytes: ...

    def create_body(self, file_id: str, order: BatchOrder, window: str) -> JsonObject: ...

    def view(self, value: JsonObject) -> BatchView: ...

    def first_page(self) -> str:
        """Path of the newest batches."""

    def page(self, value: object, path: str) -> Page:
        """`path`: the one that was asked."""

    def files_path(self) -> str:
        """Path of the list of uploads."""

    def next_files(self, value: object, path: str) -> str:
        """Path of the page behind this one; empty: it is the last."""


class FileBatches:
    """One vendor, address and key. To be used on the loop's thread."""

    def __init__(self, calls: BatchCalls, api: BatchApi, protocol: FileProtocol) -> None:
        self._calls = calls
        self._api = api
        self._protocol = protocol
        self.limits = limits_of(api, protocol.tag_kept)

    def unfit(self, endpoint: str, body: bytes) -> Answer | None:
        return unfit_for_files(endpoint, body, self.limits)

    async def create(self, lines: Iterable[BatchLine], order: BatchOrder) -> CreatedBatch:
        protocol = self._protocol
        name = file_name(order.tag)
        content = BytesIO()
        content.write(form_head(protocol.form_fields(name), name))
        await write_rows(
            lines,
            order,
            limits=self.limits,
            write=lambda line: b"%b\n" % protocol.line(line, order.endpoint),
            into=content,
            breathe=self._calls.breathe,
        )
        content.write(FORM_TAIL)
        try:
            made = await self._calls.ask(
                "uploading the rows of a batch", "POST", protocol.upload_path, body=content.getvalue(), kind=MULTIPART
            )
            file_id = _id_in(made, "the upload's answer")
        except BatchFault as fault:
            fault.step = CreateStep.UPLOAD
            raise
        del content
        try:
            window = next(text for text, seconds in self._api.windows.items() if seconds == order.window_s)
            made = await self._calls.ask(
                "creating a batch",
                "POST",
                protocol.batches_path,
                body=msgspec.json.encode(protocol.create_body(file_id, order, window)),
                headers={"idempotency-key": order.tag} if self._api.idempotency else {},
            )
            return CreatedBatch(batch_id=_id_in(_unwrapped(made), "the new batch"), file_id=file_id)
        except BatchFault as fault:
            fault.step, fault.file_id = CreateStep.CREATE, file_id
            raise

    async def find(self, tag: str, *, since_ms: int, rows: int) -> tuple[FoundBatch, ...]:
        files: frozenset[str] = frozenset()
        if self._protocol.tag_kept is TagKept.FILE_NAME:
            files = frozenset(file.file_id for file in await self.files(since_ms=since_ms) if file.tag == tag)
            if not files:
                return ()
        found = [
            FoundBatch(view=view, certain=True)
            async for view in self._listed(since_ms - SLACK_MS)
            if (view.input_ref in files if files else view.tag == tag)
        ]
        return tuple(found)

    async def look(self, batch_id: str) -> BatchView:
        value = await self._calls.ask("looking at a batch", "GET", self._path(batch_id))
        return self._view(_unwrapped(value))

    async def results(self, view: BatchView) -> AsyncGenerator[ResultLine, None]:
        error_ref = view.error_ref if view.error_ref != view.output_ref else ""
        for ref, what in ((view.output_ref, "the output file"), (error_ref, "the error file")):
            if not ref:
                continue
            reader = ResultReader(self._calls, view.endpoint, what)
            pieces = self._calls.stream(f"reading {what} of a batch", f"/files/{escaped(ref)}/content")
            async with aclosing(cut_lines(pieces)) as lines:
                async for line in lines:
                    yield reader.read(line)

    async def cancel(self, batch_id: str) -> None:
        await cancel_or_look(self._calls, f"{self._path(batch_id)}/cancel", lambda: self.look(batch_id))

    async def files(self, *, since_ms: int) -> tuple[BatchFile, ...]:
        found: dict[str, BatchFile] = {}
        path = self._protocol.files_path()
        for _ in range(MAX_PAGES):
            value = await self._calls.ask_any("listing files", "GET", path)
            page = [_file(each) for each in objects_of(value)]
            recent = [file for file in page if is_since(file.created_ms, since_ms - SLACK_MS)]
            fresh = {file.file_id: file for file in recent if file.file_id not in found}
            found |= fresh
            path = self._protocol.next_files(value, path)
            if not path or not fresh:
                break
        return tuple(sorted((file for file in found.values() if file.tag), key=lambda file: -file.created_ms))

    async def delete_files(self, refs: Iterable[str]) -> None:
        for ref in refs:
            if ref:
                await self._calls.delete("deleting a file", f"/files/{escaped(ref)}")

    def _path(self, batch_id: str) -> str:
        return f"{self._protocol.batches_path}/{escaped(batch_id)}"

    def _view(self, value: JsonObject) -> BatchView:
        if not text_of(value, "id"):
            raise no_id("the batch")
        return judged(self._protocol.view(value), self._calls)

    async def _listed(self, since_ms: int) -> AsyncIterator[BatchView]:
        """Newest first, as far as the vendor keeps to that: it ends with a whole page of older ones."""
        path, seen = self._protocol.first_page(), set[str]()
        for _ in range(MAX_PAGES):
            page = self._protocol.page(await self._calls.ask_any("listing batches", "GET", path), path)
            recent = [view for view in page.views if is_since(view.created_ms, since_ms)]
            for view in recent:
                if view.batch_id not in seen:
                    yield judged(view, self._calls)
            known = all(view.batch_id in seen for view in page.views)
            seen.update(view.batch_id for view in page.views)
            if not page.next_path or known or not recent:
                return
            path = page.next_path


_OF_THE_KEY_OR_PACE = (
    FailureKind.AUTH,
    FailureKind.QUOTA_EXHAUSTED,
    FailureKind.RATE_LIMITED,
    FailureKind.MISSING_FROM_UPSTREAM,
)


async def cancel_or_look(calls: BatchCalls, path: str, look: Callable[[], Awaitable[BatchView]]) -> None:
    """A cancel of a batch that has ended, or is being cancelled, is refused by some vendors, in which words is
    anybody's guess: so the batch is looked at."""
    try:
        await calls.ask_any("cancelling a batch", "POST", path)
    except BatchFault as fault:
        if not 400 <= fault.http_status <= 499 or fault.kind in _OF_THE_KEY_OR_PACE:
            raise
        state = (await look()).state
        if not state.has_ended and state is not VendorBatchState.CANCELLING:
            raise


def limits_of(api: BatchApi, tag_kept: TagKept) -> BatchLimits:
    return BatchLimits(
        rows=api.rows,
        bytes=min(api.bytes, MAX_FILE_BYTES),
        windows_s=tuple(sorted(api.windows.values())),
        one_model=api.one_model,
        enqueued_tokens=api.enqueued_tokens,
        endpoints=api.endpoints,
        tag_kept=tag_kept,
    )


def judged(view: BatchView, calls: BatchCalls) -> BatchView:
    """With what the first error of a failed batch means, and no key in any text."""
    errors = tuple(msgspec.structs.replace(error, message=calls.hidden(error.message)) for error in view.errors)
    kind: FailureKind | None = None
    if view.state is VendorBatchState.FAILED:
        kind = calls.kind_of_batch(errors[0].code, errors[0].message) if errors else FailureKind.BAD_RESPONSE
    return msgspec.structs.replace(view, errors=errors, kind=kind)


def _unwrapped(value: JsonObject) -> JsonObject:
    """Together gives a new batch in `job`."""
    job = value.get("job")
    return job if isinstance(job, dict) else value


def _id_in(value: JsonObject, what: str) -> str:
    found = text_of(value, "id")
    if not found:
        raise no_id(what)
    return found


def no_id(what: str) -> BatchFault:
    return BatchFault(f"{what} has no id", kind=FailureKind.BAD_RESPONSE, may_be_done=True, http_status=200)


def _file(value: JsonObject) -> BatchFile:
    return BatchFile(
        file_id=text_of(value, "id"),
        tag=tag_of(text_of(value, "filename", "file_name", "name")),
        bytes=count(value.get("bytes")),
        created_ms=moment_ms(value.get("created_at")),
    )


def is_since(created_ms: int, since_ms: int) -> bool:
    """What has no date may be of any."""
    return not created_ms or created_ms >= since_ms
