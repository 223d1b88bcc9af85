"""`POST retry/{id}` with `"as": "new"`: chosen rows of an ended batch as a batch of their own.

The new batch's metadata are the old one's and `retry_of`, its id; each item of its results has `source_index`, the
row's `request_index` there. Rows are read, checked and routed as if they were submitted anew: what was set right in the
service's vendors since then holds for them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence

import msgspec
from starlette.responses import Response

from batchwright.core import row_map
from batchwright.core.batch_spec import BatchSpec
from batchwright.core.gate import GateRule
from batchwright.core.rows import RowView, SourceRow
from batchwright.ports.batches import BatchStatus, Submit
from batchwright.ports.store import Idempotency
from batchwright.server.asking import Ask
from batchwright.server.faults import Fault
from batchwright.server.infrai.status_view import submit_view
from batchwright.server.infrai.submit import REPLAYED, TIMEOUT_S, check_key, row_options
from batchwright.wire.infrai_calls import RetryCall
from batchwright.wire.openai_lines import request_line
from batchwright.wire.rows import RowDecoder

RETRY_OF = "retry_of"


async def retry_as_new(ask: Ask, source: BatchStatus, call: RetryCall) -> Response:
    """`source` has ended."""
    chosen = row_map.select_bytes(call.kinds, call.flags) or row_map.RETRIED_BYTES
    chosen -= row_map.NEVER_SENDABLE
    rows = sum(source.by_byte.get(byte, 0) for byte in chosen)
    if not rows:
        raise Fault(
            "WRONG_STATE",
            f"{source.batch_id} is {source.state.value} and has no row of this choice that could be sent again.",
            hint="Rows that were refused when they came in are put right by their sender and submitted again.",
        )
    submitted = await ask.batches.submit(
        Submit(
            batch_id=f"batch_{ask.service.chance.hex_id(24)}",
            spec=_spec(ask, source, call),
            deadline_s=call.timeout_s or TIMEOUT_S,
            idempotency=_wish(ask, source, call),
        ),
        _rows_again(ask, source.batch_id, chosen, rows),
    )
    data = submit_view(submitted.status) | {"retried_count": submitted.status.total}
    return ask.answer(data, {REPLAYED: "true"} if submitted.replayed else None)


def _spec(ask: Ask, source: BatchStatus, call: RetryCall) -> BatchSpec:
    """As the old one's, but for what says which file it was made from: it is another input now."""
    return msgspec.structs.replace(
        source.spec,
        source="",
        identity="",
        input_digest="",
        options={},
        csv_columns=(),
        arrow_schema="",
        destinations=ask.service.destinations,
        routes=ask.service.routes,
        gate=source.spec.gate if call.gate else GateRule.OFF,
        metadata=source.spec.metadata | {RETRY_OF: source.batch_id},
        max_cost_picousd=call.max_cost_picousd if call.max_cost_picousd >= 0 else source.spec.max_cost_picousd,
    )


def _wish(ask: Ask, source: BatchStatus, call: RetryCall) -> Idempotency | None:
    key = check_key(ask.request.headers.get("idempotency-key", ""), call.idempotency_key)
    asked = msgspec.structs.replace(call, idempotency_key="")
    said = f"retry {source.batch_id} {source.round} ".encode() + msgspec.json.encode(asked, order="sorted")
    return Idempotency(key, hashlib.sha256(said).hexdigest()) if key else None


async def _rows_again(
    ask: Ask, batch_id: str, chosen: frozenset[int], expected: int
) -> AsyncIterator[Sequence[SourceRow]]:
    decoder = RowDecoder(row_options(ask.service, in_lines=False))

    def decode(views: Sequence[RowView]) -> list[SourceRow]:
        sources = []
        for view in views:
            line = request_line(view)
            assert line is not None, "a row that can never be sent is not chosen"
            source = decoder.decode(line, view.request_index + 1)
            source.row.source_index = view.request_index
            source.row.files = view.input.files
            sources.append(source)
        return sources

    found = 0
    async for views in ask.batches.rows(batch_id, wanted=chosen, texts_of=chosen):
        found += len(views)
        yield await asyncio.to_thread(decode, views)
    if found != expected:
        raise Fault("WRONG_STATE", f"{batch_id} was retried in place meanwhile; no new batch was made.")
