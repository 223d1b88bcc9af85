"""`POST /v1/ai/batch/submit`: an array of requests, or lines that arrive, as one durable batch."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from batchwright.core.batch_spec import BatchSpec
from batchwright.core.gate import GateRule
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import SourceRow
from batchwright.core.webhooks import SECRET_DIGITS, new_secret
from batchwright.ports.batches import Rows, Submit, Submitted
from batchwright.ports.store import Idempotency
from batchwright.ports.webhooks import Webhook
from batchwright.server.asking import Ask, Query
from batchwright.server.bodies import LINES_TYPES, BodyLimits, is_json, media_type, read_body, wrong_type
from batchwright.server.faults import Fault, of_bad_body
from batchwright.server.infrai.status_view import submit_view
from batchwright.server.infrai.targets import read_url
from batchwright.server.infrai.upload import Upload, long_row, too_many_rows
from batchwright.server.service import Service
from batchwright.wire.bad_body import BadBody
from batchwright.wire.infrai_submit import BatchOptions, InfraiSubmit, read_options, read_submit
from batchwright.wire.rows import RowDecoder

TIMEOUT_S = 24 * 3600.0
"""Of a batch that names none: over HTTP nobody sits at the terminal, so every batch ends."""
CHUNK_ROWS = 1_000
REPLAYED = "Idempotency-Replayed"


async def submit(ask: Ask) -> Response:
    media = media_type(ask.request)
    if media in LINES_TYPES:
        return await submit_lines(ask)
    if is_json(media):
        ask.check_query(Query())  # only a body of lines leaves the options to it
        return await submit_array(ask)
    raise wrong_type(media, "application/json", "application/x-ndjson")


async def submit_array(ask: Ask) -> Response:
    ceilings = ask.service.ceilings
    limits = BodyLimits(at_most=ceilings.array_bytes, silent_s=ceilings.silent_s, too_large="BATCH_REJECTED")
    body = await read_body(ask.request, limits)
    try:
        asked = await asyncio.to_thread(read_submit, body, ceilings.rows)
    except BadBody as error:
        raise of_bad_body(error) from None
    if len(asked.rows) > ceilings.rows:
        raise too_many_rows(len(asked.rows), ceilings)
    key = idempotency_key(ask, asked.options)
    wish = None if not key else Idempotency(key, hashlib.sha256(body).hexdigest())
    del body  # as large as the rows, which hold it
    return await _take(ask, asked.options, _rows(asked, ask.service), idempotency=wish)


async def submit_lines(ask: Ask) -> Response:
    """The options stand in the query; rows become durable as they arrive, and claimable at the end."""
    options = options_of_query(ask)
    key = idempotency_key(ask, options)
    upload = Upload(options, row_options(ask.service, in_lines=True), ask.service.ceilings)
    wish = None if not key else Idempotency(key, "")
    return await _take(
        ask, options, upload.rows(ask.request), idempotency=wish, digest_at_end=upload.digest if key else None
    )


async def _take(ask: Ask, options: BatchOptions, rows: Rows, **wishes: Any) -> Response:
    batch_id = f"batch_{ask.service.chance.hex_id(24)}"
    webhook = own_webhook(ask, options, batch_id)
    submitted = await ask.batches.submit(
        Submit(
            batch_id=batch_id,
            spec=spec_of(ask.service, options),
            deadline_s=options.timeout_s or TIMEOUT_S,
            webhook=webhook,
            **wishes,
        ),
        rows,
    )
    ask.said["batch_id"] = submitted.status.batch_id
    data = submit_view(submitted.status) | {"webhook": webhook_view(submitted, options, webhook)}
    return ask.answer(data, {REPLAYED: "true"} if submitted.replayed else None)


def options_of_query(ask: Ask) -> BatchOptions:
    names = dict.fromkeys(ask.request.query_params.keys())
    try:
        return read_options({name: ask.text(name) for name in names})
    except BadBody as error:
        raise of_bad_body(error) from None


def idempotency_key(ask: Ask, options: BatchOptions) -> str:
    return check_key(ask.request.headers.get("idempotency-key", ""), options.idempotency_key)


def check_key(header: str, field: str) -> str:
    """From the header or the field; both only if they agree."""
    if header and field and header != field:
        raise Fault(
            "INVALID_REQUEST",
            "The header Idempotency-Key and the field idempotency_key differ.",
            param="idempotency_key",
        )
    if len(header) > 255:
        raise Fault("INVALID_REQUEST", "Idempotency-Key has more than 255 characters.", param="idempotency_key")
    return header or field


def own_webhook(ask: Ask, options: BatchOptions, batch_id: str) -> Webhook | None:
    """What a submit's `webhook` asks for. Where its host leads is looked up when there is something to send."""
    if not options.webhook:
        return None
    return Webhook(
        webhook_id=_webhook_id(batch_id),
        account=ask.tenant.account,
        url=read_url(ask, options.webhook, "webhook").url,
        secret=options.webhook_secret or new_secret(ask.service.chance.hex_id(SECRET_DIGITS)),
        batch_id=batch_id,
        created_at_ms=ask.service.clock.now_ms(),
    )


def webhook_view(submitted: Submitted, options: BatchOptions, webhook: Webhook | None) -> dict[str, object] | None:
    """`webhook` of a submit's answer. A secret that was made is shown once: not when the answer is a replay."""
    if webhook is None:
        return None
    shown = None if submitted.replayed or options.webhook_secret else webhook.secret
    return {"id": _webhook_id(submitted.status.batch_id), "url": webhook.url, "secret": shown}


def _webhook_id(batch_id: str) -> str:
    """A batch has at most one of its own, so the batch's id tells it."""
    return f"wh_{batch_id.removeprefix('batch_')}"


def spec_of(service: Service, options: BatchOptions) -> BatchSpec:
    spec = BatchSpec(
        name="",
        destinations=service.destinations,
        routes=service.routes,
        on_uncertain=options.on_uncertain,
        gate=GateRule(options.on_gate),
        max_cost_picousd=options.max_cost_picousd,
        metadata=options.metadata,
    )
    return msgspec.structs.replace(spec, max_attempts=options.max_attempts) if options.max_attempts else spec


def row_options(service: Service, *, in_lines: bool) -> RowOptions:
    """What of a row the service fills in or bounds. Endpoints may be mixed: each row says its own."""
    return RowOptions(
        destinations=service.destinations,
        routes=service.routes,
        model=service.model,
        mixed_endpoints=True,
        max_row_bytes=service.ceilings.row_bytes,
        in_lines=in_lines,
    )


async def _rows(asked: InfraiSubmit, service: Service) -> AsyncIterator[Sequence[SourceRow]]:
    """Decoded some at a time, in a thread: the loop goes on with other requests between them."""
    decoder = RowDecoder(row_options(service, in_lines=False))
    at_most = service.ceilings.row_bytes

    def decode(start: int) -> list[SourceRow]:
        rows = []
        for number, raw in enumerate(asked.rows[start : start + CHUNK_ROWS], start + 1):
            line = bytes(raw)
            if len(line) > at_most:
                raise long_row(f"requests[{number - 1}]", len(line), at_most)
            rows.append(decoder.decode(line, number))
        return rows

    for start in range(0, len(asked.rows), CHUNK_ROWS):
        yield await asyncio.to_thread(decode, start)
