"""`GET /v1/ai/batch/results/{id}`: pages of rows, in order, from the `request_index` that the cursor names.

A page covers settled rows; rows without an outcome are left out unless `include=pending`. So a page may be short, or
empty: only a null `next_cursor` is the end. While the batch runs a page is what stands at that moment.
"""

from __future__ import annotations

from msgspec import Raw
from starlette.responses import Response

from batchwright.core import row_map
from batchwright.core.failures import FailureKind
from batchwright.server.asking import Ask
from batchwright.server.faults import Fault
from batchwright.wire.results import page_item

FILTERED_SEGMENTS = 40
"""Segments that a filtered page looks into at most, 20,000 rows: then it is given as it is, with where to go on."""
INCLUDES = frozenset({"response", "pending"})
DEFAULT_ROWS = 100


async def results(ask: Ask) -> Response:
    batch_id = ask.batch_id()
    limit = ask.number("limit", DEFAULT_ROWS, least=1, most=ask.service.ceilings.page_rows)
    start = ask.number("cursor", 0, least=0, most=10**15)
    include = _include(ask)
    wanted = _wanted(ask, pending="pending" in include)
    status = await ask.batches.status(batch_id)
    response = "response" in include
    regions = {to.vendor: to.region for to in status.spec.destinations if to.region}
    items: list[Raw] = []
    next_index: int | None = None
    looked = 0
    async for views in ask.batches.rows(batch_id, start=start, wanted=wanted, texts_of=frozenset()):
        looked += 1
        for view in views:
            if len(items) == limit:
                next_index = view.request_index
                break
            items.append(Raw(page_item(view, response=response, regions=regions)))
        if next_index is None and looked == FILTERED_SEGMENTS:
            next_index = views[-1].request_index + 1
        if next_index is not None:
            break
    return ask.answer(
        {
            "items": items,
            "total_count": status.total,
            "next_cursor": None if next_index is None or next_index >= status.total else str(next_index),
            "terminal": status.terminal,
        }
    )


def _include(ask: Ask) -> frozenset[str]:
    names = frozenset(name for name in ask.text("include").split(",") if name)
    if unknown := sorted(names - INCLUDES):
        known = ", ".join(sorted(INCLUDES))
        raise Fault("INVALID_REQUEST", f"include: expected some of {known}, found {unknown[0][:40]!r}", param="include")
    return names


def _wanted(ask: Ask, *, pending: bool) -> frozenset[int]:
    """Row-map bytes, by `ok` (true, false) and `kind`."""
    okay, kind = ask.text("ok"), ask.text("kind")
    if okay not in ("", "true", "false"):
        raise Fault("INVALID_REQUEST", f"ok: expected true or false, found {okay[:40]!r}", param="ok")
    if kind:
        if kind not in tuple(FailureKind):
            raise Fault(
                "INVALID_REQUEST", f"kind: expected one of {', '.join(FailureKind)}, found {kind[:40]!r}", param="kind"
            )
        return frozenset({row_map.KIND_BYTES[FailureKind(kind)]})
    wanted = {
        byte
        for byte in range(256)
        if row_map.is_end(byte) and (not okay or row_map.is_success(byte) == (okay == "true"))
    }
    if pending:
        wanted |= {row_map.PENDING, row_map.RESERVED}
    return frozenset(wanted)
