"""`ports.batches` at a service: its batches as the commands and the runner see those of this machine.

What a service does not know of a batch is said where it is asked for: the file it came from, the requests themselves
(so rows that failed cannot be written as input again), prices of its own.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TypeVar

from batchwright.client import calls
from batchwright.client.asking import Asker
from batchwright.client.errors import BadReply, ServiceError, StateConflict
from batchwright.client.row_views import status_of, usage_of, view_of
from batchwright.client.sdk import AsyncBatches
from batchwright.client.values import Batch
from batchwright.core import row_map
from batchwright.core.batch_spec import Destination
from batchwright.core.batch_state import BatchState
from batchwright.core.errors import NoSuchBatch, UsageError, WrongState
from batchwright.core.money import PICO
from batchwright.core.records import UsageKey, UsageSum
from batchwright.core.rows import RowView, SourceRow
from batchwright.core.service_keys import KEY_VARIABLES
from batchwright.ports.batches import BatchStatus, RepriceResult, Rows, Selector, Submit, Submitted

T = TypeVar("T")
LOOK_S = 1.0
"""A status that is younger is not asked for again: a screen asks five times a second."""
PAGE_BATCHES = 200
PAGE_ROWS = 500
MOST_DAYS = 400
"""Of usage, in one call."""
MOST_LOOKED_AT = 10_000
"""Batches among which the beginning of an id is looked for."""
ID = "batch_"
ID_CHARS = len(ID) + 24


class ServiceBatches:
    """Implements `ports.batches.Batches`."""

    def __init__(self, asker: Asker, destination: Destination) -> None:
        """`destination`: the service, as what is shown of a batch names it."""
        self._asker = asker
        self._batches = AsyncBatches(asker)
        self._destination = destination
        self._seen: dict[str, tuple[float, BatchStatus]] = {}

    async def submit(self, submit: Submit, rows: Rows) -> Submitted:
        """In one call: the rows are in memory whole. What is refused of them becomes failed rows there."""
        found: list[bytes] = []
        if isinstance(rows, AsyncIterable):
            async for chunk in rows:
                found += map(_item, chunk)
        else:
            for chunk in rows:
                found += map(_item, chunk)
        key = submit.idempotency.key if submit.idempotency is not None else self._asker.chance.hex_id(32)
        body = calls.array_body(found, key)
        made = await self._asker.ask(calls.submit_again(body, key))
        return Submitted(status=await self.status(made.batch_id), replayed=made.replayed)

    async def status(self, batch_id: str) -> BatchStatus:
        now_s = self._asker.clock.now_s()
        seen = self._seen.get(batch_id)
        if seen is not None and now_s - seen[0] < LOOK_S:
            return seen[1]
        status = status_of(await self._batches.get(batch_id), self._destination)
        self._seen[batch_id] = (now_s, status)
        return status

    async def resolve(self, text: str) -> str:
        if text == "@last":
            newest = await self._batches.list_page(limit=1)
            if not newest.batches:
                raise NoSuchBatch("@last names the newest batch, and this account has none yet")
            return newest.batches[0].batch_id
        prefix = text if text.startswith(ID) else f"{ID}{text}"
        if len(prefix) == ID_CHARS:
            return (await self.status(prefix)).batch_id
        found = [status.batch_id for status in await self._many(MOST_LOOKED_AT, "") if _begins(status, prefix)]
        if not found:
            raise NoSuchBatch(
                f"no batch of this account begins with {text!r}; `list` with --service shows those it has"
            )
        if len(found) > 1:
            raise NoSuchBatch(f"{text!r} begins more than one batch: {', '.join(found[:10])}; give more digits")
        return found[0]

    async def find(
        self,
        *,
        identity: str = "",
        source: str = "",
        before: str = "",
        limit: int = 50,
        created_after_ms: int = 0,
        created_before_ms: int = 0,
        chunks: bool = True,
    ) -> list[BatchStatus]:
        """Which of its batches are chunks of whose run the service does not know: it tells of all. Raises UsageError
        for `identity` and `source`: the service does not know the files of this machine."""
        if identity or source:
            raise UsageError("a service does not know which file a batch came from; leave the file out")
        return await self._many(limit, before, (created_after_ms, created_before_ms))

    async def rows(
        self,
        batch_id: str,
        *,
        start: int = 0,
        end: int | None = None,
        wanted: frozenset[int] | None = None,
        texts_of: frozenset[int] | None = None,
    ) -> AsyncIterator[list[RowView]]:
        """Requests are not among what a service gives back: bodies are empty, whatever `texts_of` says."""
        pending = wanted is None or bool(wanted & {row_map.PENDING, row_map.RESERVED})
        okay = None if wanted is None or pending else _all_alike(wanted)
        cursor, limit = str(start), PAGE_ROWS
        while True:
            try:
                page = await self._batches.results_page(
                    batch_id, limit=limit, cursor=cursor, ok=okay, pending=pending, response=True
                )
            except BadReply as error:
                if not error.too_large or limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            views = [view_of(item) for item in page.items]
            found = [
                view
                for view in views
                if (wanted is None or view.byte in wanted) and (end is None or view.request_index < end)
            ]
            if found:
                yield found
            if end is not None and views and views[-1].request_index >= end - 1:
                return
            if page.next_cursor is None or page.next_cursor == cursor:
                return
            cursor = page.next_cursor

    async def find_custom_id(self, batch_id: str, custom_id: str) -> list[int]:
        found = []
        async for views in self.rows(batch_id):
            found += [view.request_index for view in views if view.input.custom_id == custom_id]
        return found

    async def retry(self, batch_id: str, selector: Selector, deadline_s: float = 0.0, *, gate: bool = True) -> int:
        begun = await self._told(
            batch_id,
            self._batches.retry(
                batch_id,
                kinds=sorted(kind.value for kind in selector.kinds),
                flags=sorted(flag.value for flag in selector.flags),
                batch_timeout=deadline_s or None,
                gate=gate,
            ),
        )
        self._seen.pop(batch_id, None)
        return begun.pending_count

    async def cancel(self, batch_id: str) -> BatchStatus:
        return await self._changed(batch_id, self._batches.cancel(batch_id))

    async def pause(self, batch_id: str, reason: str) -> BatchStatus:
        return await self._changed(batch_id, self._batches.pause(batch_id, reason=reason))

    async def resume(
        self,
        batch_id: str,
        *,
        max_cost_picousd: int = -1,
        keys_of: Sequence[Destination] = (),
        past_gate: bool = False,
    ) -> BatchStatus:
        cap = None if max_cost_picousd < 0 else Decimal(max_cost_picousd) / PICO
        return await self._changed(batch_id, self._batches.resume(batch_id, max_cost_usd=cap))

    async def prioritise(self, batch_id: str, priority: int) -> BatchStatus:
        return await self._changed(batch_id, self._batches.prioritise(batch_id, priority))

    async def reprice(self, batch_id: str, *, every: bool = False) -> RepriceResult:
        raise UsageError("what a service's rows cost is the service's to say; its own machine can reprice them")

    async def check_delete(self, batch_id: str) -> None:
        status = await self.status(batch_id)
        if not status.terminal:
            raise WrongState(f"{batch_id} has not ended ({status.state.value}). {self._what_to_do(status)}")

    async def delete(self, batch_id: str) -> None:
        self._seen.pop(batch_id, None)
        await self._told(batch_id, self._batches.delete(batch_id))

    async def usage(self, *, since_day: str = "") -> list[tuple[UsageKey, UsageSum]]:
        """Of the last `MOST_DAYS` at most. Which account at its vendor a service used it keeps to itself."""
        today = datetime.fromtimestamp(self._asker.clock.now_ms() / 1000, UTC).date()
        days = MOST_DAYS
        if since_day:
            days = min(MOST_DAYS, max(1, (today - date.fromisoformat(since_day)).days + 1))
        lines = await self._asker.ask(calls.usage(days))
        return [usage_of(line) for line in lines if line.day >= since_day]

    async def _changed(self, batch_id: str, change: Awaitable[Batch]) -> BatchStatus:
        status = status_of(await self._told(batch_id, change), self._destination)
        self._seen.pop(batch_id, None)
        return status

    async def _told(self, batch_id: str, change: Awaitable[T]) -> T:
        """A state that does not allow it is told with commands to give: what a service says is for programs."""
        try:
            return await change
        except StateConflict as error:
            self._seen.pop(batch_id, None)
            with suppress(ServiceError):
                error.args = (f"{error.message} {self._what_to_do(await self.status(batch_id))}",)
            raise

    def _what_to_do(self, status: BatchStatus) -> str:
        def command(verb: str) -> str:
            key_env = self._destination.key_env
            named = [] if key_env in KEY_VARIABLES else ["--service-key-env", key_env]
            service = ["--service", self._destination.base_url, *named]
            return f"`{shlex.join(['batchwright', verb, status.batch_id, *service])}`"

        if status.terminal:
            return f"It has ended; {command('retry')} sends rows without success again."
        if status.state is BatchState.PAUSED:
            return f"It is paused; {command('resume')} goes on with it, {command('cancel')} ends it."
        return f"It has not ended; {command('watch')} waits for its end, {command('cancel')} ends it."

    async def _many(self, limit: int, before: str, moments_ms: tuple[int, int] = (0, 0)) -> list[BatchStatus]:
        """`moments_ms`: created at the first or later, and before the second; 0: whenever."""
        found: list[BatchStatus] = []
        cursor = before or None
        after_ms, before_ms = moments_ms
        while len(found) < limit:
            page = await self._asker.ask(
                calls.list_batches(
                    limit=min(PAGE_BATCHES, limit - len(found)),
                    cursor=cursor,
                    created_after_ms=after_ms,
                    created_before_ms=before_ms,
                )
            )
            found += [status_of(batch, self._destination) for batch in page.batches]
            if page.next_cursor is None or page.next_cursor == cursor:
                break
            cursor = page.next_cursor
        return found


def _begins(status: BatchStatus, prefix: str) -> bool:
    return status.batch_id.startswith(prefix)


def _all_alike(wanted: frozenset[int]) -> bool | None:
    """Whether rows with these bytes are all successes, all failures, or some of each."""
    good = {row_map.is_success(byte) for byte in wanted}
    return good.pop() if len(good) == 1 else None


def _item(row: SourceRow) -> bytes:
    if row.row.files:
        raise UsageError("a row with pictures of this machine cannot be submitted as it is; give their URLs")
    return calls.item(row.row.endpoint, row.row.body, row.row.custom_id)
