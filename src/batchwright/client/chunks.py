"""Rows on their way through a service, a chunk at a time: submitted, waited for, its items handed to the rows.

    queued -> journalled -> submitted -> named (its batch id is durable) -> ended -> every row has its answer

What is asked again, and under which key: `client.asking`. Beyond that a chunk whose submit may have been read is never
given up within `PATIENCE_S`: the same submit is said again under the same key, and a batch that is known is asked for,
since its rows are paid. Only what surely was not read goes back to the rows as a failure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from batchwright.client import calls
from batchwright.client.asking import Asker
from batchwright.client.errors import BadReply, NoAnswer, RateLimited, ServiceError, ServiceUnavailable
from batchwright.client.sdk import AsyncBatches
from batchwright.client.values import Batch, RowResult
from batchwright.ports.vendor import Answer

T = TypeVar("T")
PATIENCE_S = 1_800.0
"""As long as a lane is kept that has only outages."""
MOST_WAIT_S = 60.0
POLL_FIRST_S, POLL_MOST_S = 0.2, 5.0
"""Between two looks at a batch, where the service does not wait with its reply."""
LONG_POLL_S = 20.0
PAGE_ROWS = 500
STALE_S = 900.0
"""A batch that has not changed for so long is told of, once each time."""


class Row:
    """A row at the service, from `send` to its answer. Implements `ports.vendor.VendorCall`."""

    __slots__ = ("_abandoned", "body", "digest", "endpoint", "on_end")

    def __init__(
        self,
        endpoint: str,
        body: bytes,
        digest: str,
        *,
        on_end: Callable[[Answer], None],
        abandoned: Callable[[Row], None],
    ) -> None:
        self.endpoint = endpoint
        self.body = body
        self.digest = digest
        self.on_end: Callable[[Answer], None] | None = on_end
        """None: it has its answer, or nobody waits for one."""
        self._abandoned = abandoned

    def answer(self, answer: Answer) -> None:
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(answer)

    def abort(self) -> None:
        if self.on_end is not None:
            self.on_end = None
            self._abandoned(self)


@dataclass(eq=False)
class Chunk:
    key: str
    body: bytes
    """Of the submit, whole."""
    rows: list[Row | None]
    """By request_index; None: nobody waits for that one (yet)."""
    digests: list[str]
    left_over: bool = False
    """It was a dead process's: what it has not answered well is sent anew."""
    earlier: bool = False
    """It was an earlier run's."""
    too_old: bool = False
    """Of an earlier run, never named, and older than services keep idempotency keys."""
    batch_id: str = ""
    """Empty: not named yet."""
    waiting: str = ""
    """What holds it up at the service, for a person; empty: nothing that the service says."""
    ended: Batch | None = None
    items: dict[int, RowResult] = field(default_factory=dict)
    """Of a chunk that is left over: successes that nobody has asked for yet."""

    @property
    def wanted(self) -> bool:
        return any(row is not None and row.on_end is not None for row in self.rows)


class Carrier:
    """Carries chunks: what of it is a conversation with the service."""

    def __init__(self, asker: Asker, *, report: Callable[[str], None]) -> None:
        self._asker = asker
        self._batches = AsyncBatches(asker)
        self._clock = asker.clock
        self._report = report

    async def submit(self, chunk: Chunk) -> None:
        """Until the batch is named. Raises ServiceError where the service has surely not taken
        it, or patience is over."""
        submitted = await self._persist(
            lambda: self._asker.ask(calls.submit_again(chunk.body, chunk.key)), what="a submit", submit=True
        )
        chunk.batch_id = submitted.batch_id

    async def wait(self, chunk: Chunk) -> Batch:
        """Until it has ended, whatever its state is called meanwhile."""
        pause_s, changed_s, seen = POLL_FIRST_S, self._clock.now_s(), None
        while True:
            asked_s = self._clock.now_s()
            batch = await self._persist(
                lambda: self._batches.get(chunk.batch_id, wait_s=LONG_POLL_S), what=f"the status of {chunk.batch_id}"
            )
            self._tell_of_wait(chunk, batch)
            if batch.terminal:
                return batch
            now_s = self._clock.now_s()
            mark = (batch.state, batch.completed_count, batch.failed_count)
            if mark != seen:
                seen, changed_s, pause_s = mark, now_s, POLL_FIRST_S
            elif now_s - changed_s >= STALE_S:
                changed_s = now_s
                self._report(
                    f"{chunk.batch_id} at the service has been {batch.state!r}, unchanged, for {STALE_S / 60:g} "
                    "minutes; still waiting. Ctrl-C twice cancels it"
                )
            if now_s - asked_s < 1.0:
                await self._clock.sleep(pause_s)
                pause_s = min(POLL_MOST_S, pause_s * 1.5)

    def _tell_of_wait(self, chunk: Chunk, batch: Batch) -> None:
        """Says what holds a chunk up once it does; the progress shows it as long as it does."""
        before = chunk.waiting
        chunk.waiting = waiting_text(batch)
        if chunk.waiting and not before:
            url = self._asker.base_url
            there = f"batchwright resume {batch.batch_id} --service {url}"
            how = f"; once that is put right, this goes on there: {there}" if batch.paused_reason else ""
            self._report(f"{batch.batch_id} {chunk.waiting}{how}")

    async def items(self, chunk: Chunk, take: Callable[[RowResult], None]) -> None:
        """Hands over each item once. A page that cannot be had is asked for again."""
        cursor: str | None = None
        limit = PAGE_ROWS
        while True:
            try:
                page = await self._persist(
                    partial(self._batches.results_page, chunk.batch_id, limit=limit, cursor=cursor, response=True),
                    what=f"the results of {chunk.batch_id}",
                )
            except BadReply as error:
                if not error.too_large or limit == 1:
                    raise
                limit = max(1, limit // 4)  # long answers: fewer of them fit a reply
                continue
            for item in page.items:
                take(item)
            if page.next_cursor is None or page.next_cursor == cursor:
                return
            cursor = page.next_cursor

    async def cancel(self, batch_id: str) -> None:
        """As far as it can be done now."""
        try:
            await self._asker.ask(calls.cancel(batch_id))
        except ServiceError as error:
            self._report(f"{batch_id} at the service could not be cancelled: {error}")

    async def _persist(self, ask: Callable[[], Awaitable[T]], *, what: str, submit: bool = False) -> T:
        begun_s, wait_s, unheard = self._clock.now_s(), 1.0, False
        while True:
            try:
                return await ask()
            except (NoAnswer, ServiceUnavailable, RateLimited) as error:
                unheard = unheard or error.unheard or isinstance(error, ServiceUnavailable)
                if submit and not unheard:
                    raise  # it was not read: the rows may go another way, or wait
                error.unheard = unheard
                if self._clock.now_s() - begun_s >= PATIENCE_S:
                    raise
                if wait_s == 1.0:
                    self._report(f"{what}: {error}; trying again under the same key for up to {PATIENCE_S / 60:g} min")
                await self._clock.sleep(max(error.retry_after_s, wait_s))
                wait_s = min(MOST_WAIT_S, wait_s * 2)


def waiting_text(batch: Batch) -> str:
    """What a service says of its own troubles with a batch; empty: of none."""
    if batch.terminal:
        return ""
    if batch.paused_reason:
        return f"is paused at the service: {batch.paused_reason}"
    lane = next(iter(batch.waiting), None)
    return f"waits at the service: {f'{lane.vendor} {lane.model}'.strip()}: {lane.reason}" if lane is not None else ""
