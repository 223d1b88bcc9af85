"""`/v1/files`: uploads, and the files that batches wrote."""

from __future__ import annotations

import asyncio
import re

from starlette.responses import Response, StreamingResponse

from batchwright.ports.files import FilePage, Purpose, StoredFile
from batchwright.server.asking import Ask
from batchwright.server.bodies import BodyLimits
from batchwright.server.faults import Fault
from batchwright.server.openai.multipart import Form, read_form
from batchwright.server.openai.shell import FILE_ID, answer, file_id, files
from batchwright.server.openai.views import file_view, list_view
from batchwright.wire.openai_batch import MAX_EXPIRES_S, MIN_EXPIRES_S

DEFAULT_EXPIRES_S = 30 * 86_400
"""Of an upload that says nothing, as at OpenAI for files of batches."""
PAGE_FILES = 10_000


async def create_file(ask: Ask) -> Response:
    ceilings = ask.service.ceilings
    limits = BodyLimits(at_most=ceilings.stream_bytes, silent_s=ceilings.silent_s, whole=False)
    upload = await files(ask).upload()
    try:
        form = await read_form(ask.request, upload, limits)
        _check_purpose(form.fields)
        file = await upload.finish(filename=form.filename or "", expires_s=_expires_s(form))
    finally:
        # After `finish` it does nothing; else nothing of the upload stays, also when the client went away.
        await asyncio.shield(upload.drop())
    ask.said["file_id"] = file.file_id
    return answer(ask, file_view(file))


async def retrieve_file(ask: Ask) -> Response:
    own = files(ask)
    return answer(ask, file_view(await own.sized(await own.find(file_id(ask)))))


async def list_files(ask: Ask) -> Response:
    limit = ask.number("limit", PAGE_FILES, least=1, most=PAGE_FILES)
    order, purpose, after = ask.text("order", "desc"), ask.text("purpose"), ask.text("after")
    if order not in ("asc", "desc"):
        raise Fault("INVALID_REQUEST", f"order: expected asc or desc, found {order[:40]!r}", param="order")
    if after and not FILE_ID.fullmatch(after):
        raise Fault("INVALID_REQUEST", f"after: expected a file's id, found {after[:40]!r}", param="after")
    page = FilePage(after=after, limit=limit + 1, ascending=order == "asc", purpose=purpose)
    own = files(ask)
    found = await own.list_files(page)
    views = [file_view(await own.sized(file)) for file in found[:limit]]
    return answer(ask, list_view(views, more=len(found) > limit))


async def file_content(ask: Ask) -> Response:
    own = files(ask)
    file = await own.find(file_id(ask))
    headers = {"X-Request-Id": ask.request_id}
    if file.size >= 0:  # else nobody is to wait until its lines were written once to be counted
        headers["Content-Length"] = str(file.size)
    return StreamingResponse(own.read(file), media_type=_media_type(file), headers=headers)


async def delete_file(ask: Ask) -> Response:
    name = file_id(ask)
    await files(ask).delete(name)
    return answer(ask, {"id": name, "object": "file", "deleted": True})


def _media_type(file: StoredFile) -> str:
    return "application/jsonl" if file.purpose == Purpose.BATCH_OUTPUT else "application/octet-stream"


def _check_purpose(fields: dict[str, str]) -> None:
    purpose = fields.get("purpose", "")
    if not purpose:
        raise Fault("INVALID_REQUEST", "The form has no field purpose; expected 'batch'.", param="purpose")
    if purpose != Purpose.BATCH:
        raise Fault(
            "INVALID_REQUEST",
            f"purpose: expected 'batch', found {purpose[:40]!r}; files of other purposes are not kept here.",
            param="purpose",
        )


def _expires_s(form: Form) -> float:
    anchor, seconds = form.fields.get("expires_after[anchor]"), form.fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return DEFAULT_EXPIRES_S
    if anchor != "created_at":
        raise Fault(
            "INVALID_REQUEST",
            f"expires_after[anchor]: expected 'created_at', found {(anchor or '')[:40]!r}",
            param="expires_after",
        )
    found = seconds or ""
    if not re.fullmatch(r"[0-9]{1,9}", found) or not MIN_EXPIRES_S <= int(found) <= MAX_EXPIRES_S:
        raise Fault(
            "INVALID_REQUEST",
            f"expires_after[seconds]: expected a whole number from {MIN_EXPIRES_S} to {MAX_EXPIRES_S}, "
            f"found {found[:40]!r}",
            param="expires_after",
        )
    return int(found)
