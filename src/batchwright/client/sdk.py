"""`AsyncClient.batches`: what can be asked of a service's batches, typed, with retries.

Every call may raise, beside what its own docstring names:

    KeyRefused            no key, an unknown or expired one, or one that may not do this
    RateLimited           still too many requests after the retries; `retry_after_s` says when
    ServiceUnavailable    it cannot work now, or a fault of its own
    NoAnswer              no answer came; `may_have_arrived` says whether the call may have been done
    BadReply              what came is no reply of a batch service

A row that failed is a `RowResult` with `ok` False, never an exception.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Mapping

from batchwright.client import calls, replies
from batchwright.client.asking import Asker
from batchwright.client.calls import Amount, Duration, RowBody
from batchwright.client.errors import BadReply, NoAnswer, NoSuchBatchThere, StateConflict
from batchwright.client.event_stream import EventReader
from batchwright.client.fields import Fields
from batchwright.client.replies import Reply
from batchwright.client.values import Batch, BatchPage, ResultsPage, RowResult, SubmittedBatch

PAGE_BATCHES = 50
PAGE_ROWS = 100
LONG_POLL_S = 30.0
POLL_S = 1.0
"""Between two looks at a service that answers a long poll at once."""
KEY_DIGITS = 32


class AsyncBatches:
    """Reached as `client.batches`; see `batchwright.AsyncClient`."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def submit(
        self,
        requests: Iterable[RowBody],
        *,
        batch_timeout: Duration | None = None,
        metadata: Mapping[str, str] | None = None,
        max_cost_usd: Amount | None = None,
        max_attempts: int | None = None,
        on_uncertain: str | None = None,
        on_gate: str | None = None,
        webhook: object = None,
        idempotency_key: str | None = None,
    ) -> SubmittedBatch:
        """Submits request bodies (mappings, or the JSON text of one each) as one batch.

        It is sent again where no answer came, under the same idempotency key, so that one batch is made however often
        it takes; without `idempotency_key` a fresh one is drawn. A service that runs the rows before it answers gives
        a batch that has ended.

        Raises UsageError before anything is sent for rows that are no JSON objects; BadRequest for an option that the
        service does not take; BatchRejected above a ceiling (nothing is kept); IdempotencyConflict for a key that was
        used for another request; CreditSpent.
        """
        options = calls.SubmitOptions(
            batch_timeout=batch_timeout,
            metadata=metadata,
            max_cost_usd=max_cost_usd,
            max_attempts=max_attempts,
            on_uncertain=on_uncertain,
            on_gate=on_gate,
            webhook=webhook,
        )
        return await self._asker.ask(calls.submit(requests, options, idempotency_key=idempotency_key or self._key()))

    async def get(self, batch_id: str, *, wait_s: float = 0.0) -> Batch:
        """How the batch stands. `wait_s`: the service answers when its state changes, at the latest after so long.

        Raises NoSuchBatchThere.
        """
        return await self._asker.ask(calls.status(batch_id, wait_s=wait_s))

    async def list_page(
        self,
        *,
        limit: int = PAGE_BATCHES,
        cursor: str | None = None,
        state: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> BatchPage:
        """The account's batches, newest first, a page of them; `cursor`: the `next_cursor` of the page before.

        Raises BadRequest for a filter that the service does not take.
        """
        return await self._asker.ask(calls.list_batches(limit=limit, cursor=cursor, state=state, metadata=metadata))

    async def list(
        self, *, limit: int = PAGE_BATCHES, state: str = "", metadata: Mapping[str, str] | None = None
    ) -> AsyncIterator[Batch]:
        """All of the account's batches, newest first, page by page (`limit` of them each); see `list_page`.

        Raises BadRequest for a filter that the service does not take.
        """
        cursor: str | None = None
        while True:
            page = await self.list_page(limit=limit, cursor=cursor, state=state, metadata=metadata)
            for batch in page.batches:
                yield batch
            if page.next_cursor is None:
                return
            if page.next_cursor == cursor:
                raise BadReply(f"the list of batches does not go on: the cursor {cursor} leads to itself")
            cursor = page.next_cursor

    async def results_page(
        self,
        batch_id: str,
        *,
        limit: int = PAGE_ROWS,
        cursor: str | None = None,
        ok: bool | None = None,
        kind: str = "",
        pending: bool = False,
        response: bool = False,
    ) -> ResultsPage:
        """One page of rows, in order. `ok` and `kind` choose among those that have ended, `pending` adds the others;
        `response`: with the vendor's whole answer.

        Raises NoSuchBatchThere; BadRequest for a filter that the service does not take.
        """
        rows = calls.RowFilter(ok=ok, kind=kind, pending=pending)
        return await self._asker.ask(calls.results(batch_id, rows, limit=limit, cursor=cursor, response=response))

    async def results(
        self,
        batch_id: str,
        *,
        limit: int = PAGE_ROWS,
        ok: bool | None = None,
        kind: str = "",
        pending: bool = False,
        response: bool = False,
    ) -> AsyncIterator[RowResult]:
        """All rows, in order, page by page (`limit` rows each); see `results_page`.

        Raises NoSuchBatchThere; BadRequest for a filter that the service does not take.
        """
        cursor: str | None = None
        while True:
            page = await self.results_page(
                batch_id, limit=limit, cursor=cursor, ok=ok, kind=kind, pending=pending, response=response
            )
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            if page.next_cursor == cursor:
                raise BadReply(f"the results of {batch_id} do not go on: the cursor {cursor} leads to itself")
            cursor = page.next_cursor

    async def retry(
        self,
        batch_id: str,
        *,
        kinds: Iterable[str] = (),
        flags: Iterable[str] = (),
        batch_timeout: Duration | None = None,
        gate: bool = True,
    ) -> Batch:
        """Sends rows of an ended batch again, in place, as a new round: by default all without success, or those that
        ended with these kinds or flags. Said twice because no answer came, it begins one round. A service may stop a
        round whose first rows all fail alike (`Batch.left_count` says how many it has left); without `gate` it does
        not.

        Raises NoSuchBatchThere; StateConflict for a batch that has not ended; BadRequest; CreditSpent.
        """
        options = calls.RetryOptions(kinds=tuple(kinds), flags=tuple(flags), batch_timeout=batch_timeout, gate=gate)
        before = await self.get(batch_id)
        try:
            said = await self._asker.ask(calls.retry(batch_id, options, round_number=before.round))
        except StateConflict as error:
            now = await self.get(batch_id)
            if not error.unheard or now.round != before.round + 1:
                raise
            return now  # the sending that was not heard of began it
        return said or await self.get(batch_id)

    async def retry_as_new(
        self,
        batch_id: str,
        *,
        kinds: Iterable[str] = (),
        flags: Iterable[str] = (),
        batch_timeout: Duration | None = None,
        gate: bool = True,
        max_cost_usd: Amount | None = None,
        idempotency_key: str | None = None,
    ) -> SubmittedBatch:
        """Submits rows of an ended batch as a batch of their own; which rows, and `gate`, as in `retry`.

        Raises NoSuchBatchThere; StateConflict for a batch that has not ended or has no such row; BadRequest;
        IdempotencyConflict; CreditSpent.
        """
        options = calls.RetryOptions(kinds=tuple(kinds), flags=tuple(flags), batch_timeout=batch_timeout, gate=gate)
        key = idempotency_key or self._key()
        call = calls.retry_as_new(batch_id, options, max_cost_usd=max_cost_usd, idempotency_key=key)
        return await self._asker.ask(call)

    async def cancel(self, batch_id: str) -> Batch:
        """Ends a batch; answers it has are kept, and what is out may finish. Harmless when asked twice.

        Raises NoSuchBatchThere; StateConflict for a batch that has ended otherwise.
        """
        return await self._asker.ask(calls.cancel(batch_id)) or await self.get(batch_id)

    async def pause(self, batch_id: str, *, reason: str | None = None) -> Batch:
        """Nothing more is sent until `resume`; what is out finishes. The deadline goes on.

        Raises NoSuchBatchThere; StateConflict for a batch that has ended.
        """
        return await self._asker.ask(calls.pause(batch_id, reason=reason)) or await self.get(batch_id)

    async def resume(self, batch_id: str, *, max_cost_usd: Amount | None = None) -> Batch:
        """Clears every pause; one by budget needs a higher cap.

        Raises NoSuchBatchThere; StateConflict for a batch that has ended; BadRequest.
        """
        return await self._asker.ask(calls.resume(batch_id, max_cost_usd=max_cost_usd)) or await self.get(batch_id)

    async def prioritise(self, batch_id: str, priority: int) -> Batch:
        """Moves a batch before others of its account, or (below 0) behind them; from -100 to 100, 0 at first.

        Raises NoSuchBatchThere; StateConflict for a batch that has ended; BadRequest.
        """
        return await self._asker.ask(calls.prioritise(batch_id, priority)) or await self.get(batch_id)

    async def delete(self, batch_id: str) -> None:
        """Removes an ended batch with its rows and results, for good; what it used stays in the account's usage.

        Raises NoSuchBatchThere; StateConflict for a batch that has not ended; BusyThere.
        """
        try:
            await self._asker.ask(calls.delete(batch_id))
        except NoSuchBatchThere as error:
            if not error.unheard:
                raise  # otherwise the sending that was not heard of removed it

    async def export(self, batch_id: str, *, file_format: str = "jsonl") -> AsyncIterator[bytes]:
        """The results as one file, `jsonl` or `csv`, in pieces as they come: a million rows need no memory.

        A service without that route (Infrai) gives JSONL in one piece. Raises UsageError for another format,
        NoSuchBatchThere, NoAnswer where it breaks off.
        """
        try:
            async for piece in self._asker.stream(calls.export_stream(batch_id, file_format)):
                yield piece
        except NoSuchBatchThere:
            if file_format != "jsonl":
                raise
            yield await self._asker.ask(calls.export_content(batch_id))

    async def events(self, batch_id: str) -> AsyncIterator[Batch]:
        """How the batch stands, again with each change, until it has ended; the last is terminal.

        A stream that breaks off is taken up again. Raises NoSuchBatchThere; NoAnswer once that fails too.
        """
        last_id, broken = "", 0
        while True:
            reader = EventReader()
            try:
                async for piece in self._asker.stream(calls.events(batch_id, last_event_id=last_id)):
                    for event in reader.feed(piece):
                        broken, last_id = 0, event.event_id
                        batch = replies.read_batch(Reply(data=Fields(event.data)))
                        yield batch
                        if batch.terminal:
                            return
                broken += 1
            except ValueError as error:
                raise BadReply(f"the events of {batch_id} cannot be read: {error}") from None
            except NoAnswer:
                broken += 1
                if broken > 1:
                    raise
            if broken > 1:
                raise BadReply(f"the events of {batch_id} end before the batch does")

    async def wait(self, batch_id: str, *, timeout_s: float = math.inf) -> Batch:
        """Returns once the batch has ended. One that is paused has not: it waits for a person, or for more money. A
        state that nobody has told us of is one that still runs.

        Raises NoSuchBatchThere, and TimeoutError, which says how the batch stands, after `timeout_s`.
        """
        clock = self._asker.clock
        until_s = clock.now_s() + timeout_s
        while True:
            asked_s = clock.now_s()
            batch = await self.get(batch_id, wait_s=max(0.0, min(LONG_POLL_S, until_s - asked_s) // 1))
            if batch.terminal:
                return batch
            if clock.now_s() >= until_s:
                why = f" ({batch.paused_reason})" if batch.paused_reason else ""
                raise TimeoutError(
                    f"{batch_id} is {batch.state}{why} after {timeout_s:g} s, {batch.pending_count:,} rows open"
                )
            if clock.now_s() - asked_s < POLL_S:
                await clock.sleep(POLL_S)

    def _key(self) -> str:
        return self._asker.chance.hex_id(KEY_DIGITS)
