"""`GET /v1/ai/batch/list`: the account's batches, newest first, true at once after a submit.

The cursor is the last batch's id. A page with filters looks at a bounded number of batches, so it may be short or
empty: only a null `next_cursor` is the end, as with pages of results.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.responses import Response

from batchwright.core.batch_state import BatchState
from batchwright.core.errors import NoSuchBatch
from batchwright.ports.batches import BatchStatus
from batchwright.server.asking import BATCH_ID, Ask
from batchwright.server.faults import Fault
from batchwright.server.infrai.status_view import view_for

DEFAULT_BATCHES = 50
MOST_BATCHES = 200
LOOKED_AT = 1_000
"""Batches that one page with filters reads at most: each costs a few statements."""
METADATA_PREFIX = "metadata."
"""Of a parameter that asks for a value of the metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filter:
    """What is empty does not matter."""

    states: frozenset[str]
    metadata: dict[str, str]

    def fits(self, status: BatchStatus) -> bool:
        if self.states and status.state.value not in self.states:
            return False
        return all(status.spec.metadata.get(name) == value for name, value in self.metadata.items())

    @property
    def wants_all(self) -> bool:
        return not self.states and not self.metadata


async def list_batches(ask: Ask) -> Response:
    limit = ask.number("limit", DEFAULT_BATCHES, least=1, most=MOST_BATCHES)
    wish = _read_filter(ask)
    after_ms, before_ms = _moment(ask, "created_after"), _moment(ask, "created_before")
    cursor = await _cursor(ask)
    found: list[BatchStatus] = []
    looked, more = 0, True
    while more and len(found) < limit and looked < LOOKED_AT:
        asked = limit - len(found) if wish.wants_all else MOST_BATCHES
        # One more than is needed tells whether there is another page.
        page = await ask.batches.find(
            before=cursor, limit=asked + 1, created_after_ms=after_ms, created_before_ms=before_ms
        )
        more = len(page) > asked
        for place, status in enumerate(page[:asked]):
            cursor = status.batch_id
            if wish.fits(status):
                found.append(status)
            if len(found) == limit:
                more = more or place + 1 < len(page[:asked])
                break
        looked += asked
    items = [view_for(ask.service, status) for status in found]
    return ask.answer({"items": items, "next_cursor": cursor if more else None})


def _read_filter(ask: Ask) -> _Filter:
    metadata = {
        name.removeprefix(METADATA_PREFIX): ask.text(name)
        for name in set(ask.request.query_params)
        if name.startswith(METADATA_PREFIX)
    }
    states = frozenset(state for state in ask.text("state").split(",") if state)
    if wrong := sorted(states - set(BatchState)):
        known = ", ".join(BatchState)
        raise Fault("INVALID_REQUEST", f"state: expected some of {known}, found {wrong[0][:40]!r}", param="state")
    return _Filter(states=states, metadata=metadata)


async def _cursor(ask: Ask) -> str:
    cursor = ask.text("cursor")
    if not cursor:
        return ""
    try:
        if not BATCH_ID.fullmatch(cursor):
            raise NoSuchBatch(cursor)
        await ask.batches.status(cursor)
    except NoSuchBatch:
        raise Fault(
            "INVALID_REQUEST",
            "cursor: expected the next_cursor of a page, which is the id of a batch of this account.",
            hint="If that batch was deleted meanwhile, begin anew without a cursor.",
            param="cursor",
        ) from None
    return cursor


def _moment(ask: Ask, name: str) -> int:
    """Milliseconds since the epoch, from ISO 8601 (UTC unless it says otherwise) or seconds; 0: not given."""
    text = ask.text(name)
    if not text:
        return 0
    try:
        if re.fullmatch(r"[0-9]{1,11}(\.[0-9]{1,6})?", text):
            return round(float(text) * 1000)  # downwards it would often be the millisecond before
        # A plus sign that was not escaped has become a blank.
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Fault(
            "INVALID_REQUEST",
            f"{name}: expected a moment such as 2026-07-26T09:00:00Z or seconds since 1970, found {text[:40]!r}",
            param=name,
        ) from None
