"""`/v1/batches`: batches made from files."""

from __future__ import annotations

import hashlib

from starlette.responses import Response

from batchwright.core.batch_spec import BatchSpec
from batchwright.core.errors import NoSuchFile, WrongState
from batchwright.core.gate import GateRule
from batchwright.ports.files import FileBatchRow, Purpose
from batchwright.ports.store import Idempotency
from batchwright.server.asking import BATCH_ID, Ask
from batchwright.server.bodies import read_body
from batchwright.server.faults import Fault, of_bad_body
from batchwright.server.openai.shell import FILE_ID, answer, files
from batchwright.server.openai.views import batch_view, list_view, status_word
from batchwright.wire.bad_body import BadBody
from batchwright.wire.openai_batch import CreateBatch, read_create

MAX_BODY_BYTES = 64 * 1024
"""Sixteen entries of metadata are the most of it."""
PAGE_BATCHES = 100
DEFAULT_BATCHES = 20
REPLAYED = "Idempotency-Replayed"
MAX_KEY_CHARS = 255


async def create_batch(ask: Ask) -> Response:
    body = await read_body(ask.request, MAX_BODY_BYTES)
    try:
        asked = read_create(body)
    except BadBody as error:
        raise of_bad_body(error) from None
    row = FileBatchRow(
        batch_id=f"batch_{ask.service.chance.hex_id(24)}",
        file_id=asked.input_file_id,
        endpoint=asked.endpoint,
        completion_window=asked.completion_window,
        output_expires_s=asked.output_expires_s,
    )
    wish = _idempotency(ask, body)
    try:
        spec = await _spec(ask, asked)
        batch, replayed = await files(ask).create_batch(row, spec=spec, window_s=asked.window_s, idempotency=wish)
    except NoSuchFile:
        raise Fault("NOT_FOUND", "There is no such file in this account.", param="input_file_id") from None
    ask.said["batch_id"] = batch.row.batch_id
    return answer(ask, batch_view(batch), {REPLAYED: "true"} if replayed else None)


async def retrieve_batch(ask: Ask) -> Response:
    return answer(ask, batch_view(await files(ask).batch(ask.batch_id())))


async def list_batches(ask: Ask) -> Response:
    limit = ask.number("limit", DEFAULT_BATCHES, least=1, most=PAGE_BATCHES)
    after = ask.text("after")
    if after and not BATCH_ID.fullmatch(after):
        raise Fault("INVALID_REQUEST", f"after: expected a batch's id, found {after[:40]!r}", param="after")
    found = await files(ask).batches(after=after, limit=limit + 1)
    return answer(ask, list_view([batch_view(batch) for batch in found[:limit]], more=len(found) > limit))


async def cancel_batch(ask: Ask) -> Response:
    batch_id = ask.batch_id()
    try:
        cancelled = await files(ask).cancel(batch_id)
    except WrongState:
        batch = await files(ask).batch(batch_id)
        word = status_word(batch.row, batch.status)
        raise Fault(
            "WRONG_STATE", f"Cannot cancel the batch {batch_id}: its status is '{word}', and it has ended."
        ) from None
    return answer(ask, batch_view(cancelled))


async def _spec(ask: Ask, asked: CreateBatch) -> BatchSpec:
    """Raises Fault for a file that no batch can be made from, NoSuchFile for one that is not there."""
    if not FILE_ID.fullmatch(asked.input_file_id):
        raise NoSuchFile(asked.input_file_id)
    file = await files(ask).find(asked.input_file_id)
    if file.purpose != Purpose.BATCH:
        raise Fault(
            "INVALID_REQUEST",
            f"The file {file.file_id} has the purpose '{file.purpose}'; expected one with the purpose 'batch'.",
            param="input_file_id",
        )
    return BatchSpec(
        name=file.filename,
        destinations=ask.service.destinations,
        routes=ask.service.routes,
        # Nobody sits at a terminal who could clear a pause.
        gate=GateRule.STOP,
        metadata=asked.metadata,
    )


def _idempotency(ask: Ask, body: bytes) -> Idempotency | None:
    key = ask.request.headers.get("idempotency-key", "")
    if len(key) > MAX_KEY_CHARS:
        raise Fault("INVALID_REQUEST", f"Idempotency-Key has more than {MAX_KEY_CHARS} characters.")
    return Idempotency(key, hashlib.sha256(body).hexdigest()) if key else None
