"""`POST /v1/ai/batch/submit`: an array of requests, or lines that arrive, as one durable batch."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence

from starlette.responses import Response

from batchwright.core.batch_spec import BatchSpec
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import SourceRow
from batchwright.ports.batches import Submit
from batchwright.ports.store import Idempotency
from batchwright.server.asking import Ask
from batchwright.server.bodies import read_body
from batchwright.server.faults import Fault
from batchwright.server.infrai.status_view import submit_view
from batchwright.server.service import Service
from batchwright.wire.infrai_submit import BadSubmit, BatchOptions, InfraiSubmit, read_submit
from batchwright.wire.rows import RowDecoder

TIMEOUT_S = 24 * 3600.0
"""Of a batch that names none: over HTTP nobody sits at the terminal, so every batch ends."""
CHUNK_ROWS = 1_000
REPLAYED = "Idempotency-Replayed"


async def submit(ask: Ask) -> Response:
    ceilings = ask.service.ceilings
    body = await read_body(ask.request, ceilings.array_bytes)
    try:
        asked = await asyncio.to_thread(read_submit, body)
    except BadSubmit as error:
        code = "INVALID_REQUEST" if error.json else "INVALID_JSON"
        raise Fault(code, str(error)[:500], param=error.param) from None
    if len(asked.rows) > ceilings.rows:
        raise Fault(
            "BATCH_REJECTED",
            f"requests has {len(asked.rows):,} rows; at most {ceilings.rows:,} are allowed.",
            hint="Nothing was kept. Submit it as several batches.",
            param="requests",
        )
    key = idempotency_key(ask, asked.options)
    wish = None if not key else Idempotency(key, hashlib.sha256(body).hexdigest())
    submitted = await ask.batches.submit(
        Submit(
            batch_id=f"batch_{ask.service.chance.hex_id(24)}",
            spec=spec_of(ask.service, asked.options),
            deadline_s=asked.options.timeout_s or TIMEOUT_S,
            idempotency=wish,
        ),
        _rows(asked, ask.service),
    )
    ask.said["batch_id"] = submitted.status.batch_id
    return ask.answer(submit_view(submitted.status), {REPLAYED: "true"} if submitted.replayed else None)


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


def spec_of(service: Service, options: BatchOptions) -> BatchSpec:
    spec = BatchSpec(
        name="",
        destinations=service.destinations,
        on_uncertain=options.on_uncertain,
        gate=options.on_gate.value,
        max_cost_picousd=options.max_cost_picousd,
        metadata=options.metadata,
    )
    if not options.max_attempts:
        return spec
    return BatchSpec(**{**_fields(spec), "max_attempts": options.max_attempts})  # type: ignore[arg-type]


def _fields(spec: BatchSpec) -> dict[str, object]:
    return {name: getattr(spec, name) for name in BatchSpec.__struct_fields__}


def row_options(service: Service) -> RowOptions:
    """What of a row the service fills in or bounds. Endpoints may be mixed: each row says its own."""
    return RowOptions(
        destinations=service.destinations,
        model=service.model,
        mixed_endpoints=True,
        max_row_bytes=service.ceilings.row_bytes,
    )


async def _rows(asked: InfraiSubmit, service: Service) -> AsyncIterator[Sequence[SourceRow]]:
    """Decoded some at a time, in a thread: the loop goes on with other requests between them."""
    decoder = RowDecoder(row_options(service))
    at_most = service.ceilings.row_bytes

    def decode(start: int) -> list[SourceRow]:
        return [
            decode_row(decoder, bytes(raw), number, at_most)
            for number, raw in enumerate(asked.rows[start : start + CHUNK_ROWS], start + 1)
        ]

    for start in range(0, len(asked.rows), CHUNK_ROWS):
        yield await asyncio.to_thread(decode, start)


def decode_row(decoder: RowDecoder, line: bytes, number: int, at_most: int) -> SourceRow:
    """One request of a batch; what cannot be sent becomes a failed row of that index."""
    if len(line) > at_most:
        raise Fault(
            "BATCH_REJECTED",
            f"Row {number} has {len(line):,} bytes; at most {at_most:,} are allowed.",
            hint="Nothing was kept.",
            param="requests",
        )
    return decoder.decode(line, number)
