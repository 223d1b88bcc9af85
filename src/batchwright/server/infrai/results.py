"""`GET /v1/ai/batch/results/{id}`: pages of rows, in order, from the `request_index` that the cursor names.

A page covers settled rows; rows without an outcome are left out unless `include=pending`. So a page may be short, or
empty: only a null `next_cursor` is the end. While the batch runs a page is what stands at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Raw
from starlette.responses import Response

from batchwright.core import row_map
from batchwright.core.failures import FailureKind, Flag
from batchwright.ports.batches import Batches
from batchwright.server.asking import Ask
from batchwright.server.faults import Fault
from batchwright.wire.output_lines import regions_of
from batchwright.wire.results import page_item

OPENED_SEGMENTS = 40
"""Segments that a page opens at most, where few of their rows are wanted."""
SEARCHED_ROWS = 100_000
"""Rows that a page looks at, at most, to find those that are wanted; of most only the segment's row map. After either
bound it is given as it is, with where to go on."""
ENDS = frozenset(byte for byte in range(256) if row_map.is_end(byte))
INCLUDES = frozenset({"response", "pending"})
DEFAULT_ROWS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """Which rows are asked for, and what of them."""

    batch_id: str
    start: int
    limit: int
    response: bool
    wanted: frozenset[int]


async def results(ask: Ask) -> Response:
    batch_id = ask.batch_id()  # first: the log's line of what is refused names it
    include = _include(ask)
    page = _Page(
        batch_id=batch_id,
        start=ask.number("cursor", 0, least=0, most=10**15),
        limit=ask.number("limit", DEFAULT_ROWS, least=1, most=ask.service.ceilings.page_rows),
        response="response" in include,
        wanted=_wanted(ask, pending="pending" in include),
    )
    return await ask.answer_recent(lambda: _read(ask.batches, page))


async def _read(batches: Batches, page: _Page) -> object:
    status = await batches.status(page.batch_id)
    regions, checked = regions_of(status.spec), status.spec.answers is not None
    items: list[Raw] = []
    next_index: int | None = None
    opened = 0
    end = page.start + SEARCHED_ROWS
    async for views in batches.rows(page.batch_id, start=page.start, end=end, wanted=page.wanted, texts_of=frozenset()):
        opened += 1
        for view in views:
            if len(items) == page.limit:
                next_index = view.request_index
                break
            items.append(Raw(page_item(view, response=page.response, regions=regions, checked=checked)))
        if next_index is None and opened == OPENED_SEGMENTS:
            next_index = views[-1].request_index + 1
        if next_index is not None:
            break
    else:
        next_index = end
    return {
        "items": items,
        "total_count": status.total,
        "next_cursor": str(next_index) if next_index < status.total else None,
        "terminal": status.terminal,
    }


def _include(ask: Ask) -> frozenset[str]:
    names = frozenset(name for name in ask.text("include").split(",") if name)
    if unknown := sorted(names - INCLUDES):
        known = ", ".join(sorted(INCLUDES))
        raise Fault("INVALID_REQUEST", f"include: expected some of {known}, found {unknown[0][:40]!r}", param="include")
    return names


def _wanted(ask: Ask, *, pending: bool) -> frozenset[int]:
    """Row-map bytes, by `ok` (true, false), `kind` and `flag`; with several, those that all of them mean."""
    okay = _one_of(ask, "ok", ("true", "false"))
    kind = _one_of(ask, "kind", tuple(FailureKind))
    flag = _one_of(ask, "flag", tuple(Flag))
    wanted = ENDS
    if okay:
        wanted = frozenset(byte for byte in wanted if row_map.is_success(byte) == (okay == "true"))
    if kind:
        wanted &= {row_map.KIND_BYTES[FailureKind(kind)]}
    if flag:
        wanted &= {row_map.FLAG_BYTES[Flag(flag)]}
    return wanted | {row_map.PENDING, row_map.RESERVED} if pending else wanted


def _one_of(ask: Ask, name: str, choices: tuple[str, ...]) -> str:
    """Empty: not given."""
    text = ask.text(name)
    if text and text not in choices:
        raise Fault("INVALID_REQUEST", f"{name}: expected one of {', '.join(choices)}, found {text[:40]!r}", param=name)
    return text
