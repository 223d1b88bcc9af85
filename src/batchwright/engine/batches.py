"""`ports.batches` on this machine's store. Reads run in threads of their own; nothing here knows where workers are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from batchwright.core import row_map
from batchwright.core.batch_state import PauseCause, count, derive
from batchwright.core.errors import InUse, NoSuchBatch, UsageError, WrongState
from batchwright.core.failures import FailureKind
from batchwright.core.records import UsageKey, UsageSum
from batchwright.core.rows import RowView, SourceRow
from batchwright.core.worker_id import WorkerId
from batchwright.engine.bounds import lane_prices, refuse_unbounded, with_worst_cases
from batchwright.engine.floor import FindPrice
from batchwright.engine.intake import take_in
from batchwright.engine.repricing import BatchRepricing, MayStateCost, RepricingParts
from batchwright.engine.writer import Writer
from batchwright.ports.batches import BatchStatus, RepriceResult, Selector, Submit
from batchwright.ports.clock import Clock
from batchwright.ports.store import BatchRow, NewBatch, SegmentView, Store

ACCOUNT = "local"
"""The one account of a machine without a service."""

CLOSED_BYTES = frozenset(row_map.KIND_BYTES[kind] for kind in row_map.CLOSING_KINDS)


class StoreBatches:
    """`is_live` tells whether some live process takes a batch in or works on it."""

    def __init__(
        self,
        store: Store,
        *,
        writer: Writer,
        clock: Clock,
        owner: WorkerId,
        is_live: Callable[[BatchRow], bool],
        find_price: FindPrice,
        may_state_cost: MayStateCost,
        day_of: Callable[[int], str],
    ) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock
        self._owner = owner
        self._is_live = is_live
        self._find_price = find_price
        self._repricing = RepricingParts(
            store=store, writer=writer, clock=clock, find_price=find_price, may_state_cost=may_state_cost, day_of=day_of
        )

    async def submit(self, submit: Submit, rows: Iterable[Sequence[SourceRow]]) -> BatchStatus:
        now_ms = self._clock.now_ms()
        batch = NewBatch(
            batch_id=submit.batch_id,
            account=ACCOUNT,
            spec=submit.spec,
            created_at_ms=now_ms,
            deadline_ms=now_ms + int(submit.deadline_s * 1000) if submit.deadline_s else 0,
            owner=self._owner,
        )
        # In the writer's thread: reading, checking and cutting the input are one pass with writing it.
        price_of = lane_prices(self._find_price, submit.spec.destinations)
        bounded = with_worst_cases(rows, price_of)
        if submit.spec.max_cost_picousd >= 0 and not submit.spec.soft_cap:
            bounded = refuse_unbounded(bounded, price_of)
        await self._writer.do(lambda: take_in(self._store, batch, bounded, clock=self._clock))
        return await self.status(submit.batch_id)

    async def status(self, batch_id: str) -> BatchStatus:
        return self._status(await asyncio.to_thread(self._store.get_batch, batch_id))

    async def resolve(self, text: str) -> str:
        if text == "@last":
            newest = await asyncio.to_thread(self._store.find_batches, limit=1)
            if not newest:
                raise NoSuchBatch("@last names the newest batch, and there is none here yet")
            return newest[0].batch_id
        prefix = text if text.startswith("batch_") else f"batch_{text}"
        found = await asyncio.to_thread(self._store.find_batches, prefix=prefix, limit=10) if text.isascii() else []
        if not found:
            raise NoSuchBatch(f"no batch begins with {text!r}; `batchwright list` shows those there are")
        if len(found) > 1 and all(batch.batch_id != prefix for batch in found):
            names = ", ".join(batch.batch_id for batch in found)
            raise NoSuchBatch(f"{text!r} begins more than one batch: {names}; give more digits")
        return next((batch.batch_id for batch in found if batch.batch_id == prefix), found[0].batch_id)

    async def find(self, *, identity: str = "", source: str = "", limit: int = 50) -> list[BatchStatus]:
        found = await asyncio.to_thread(self._store.find_batches, identity=identity, source=source, limit=limit)
        return [self._status(batch) for batch in found]

    async def rows(
        self,
        batch_id: str,
        *,
        start: int = 0,
        wanted: frozenset[int] | None = None,
        texts_of: frozenset[int] | None = None,
    ) -> AsyncIterator[list[RowView]]:
        reader = self._store.read_segments(
            batch_id, first_index=start, with_input=True, wanted=wanted, texts_of=texts_of
        )
        while (segment := await asyncio.to_thread(next, reader, None)) is not None:
            views = views_of(segment, start=start, wanted=wanted)
            if views:
                yield views

    async def find_custom_id(self, batch_id: str, custom_id: str) -> list[int]:
        # What is no text (bytes of a command line that are no UTF-8) is in no file: a line that has it is refused.
        if custom_id.encode("utf-8", "ignore").decode() != custom_id:
            return []
        return await asyncio.to_thread(self._store.find_custom_id, batch_id, custom_id)

    async def retry(self, batch_id: str, selector: Selector, deadline_s: float = 0.0) -> int:
        chosen = row_map.select_bytes(selector.kinds, selector.flags) or row_map.RETRIED_BYTES
        if never := chosen & row_map.NEVER_SENDABLE:
            names = ", ".join(sorted(row_map.name_of(byte) for byte in never))
            raise UsageError(
                f"rows that ended as {names} were refused when the input was read and hold no request that could be "
                "sent; put them right in the input and run that"
            )
        now_ms = self._clock.now_ms()
        deadline_ms = now_ms + int(deadline_s * 1000) if deadline_s else 0
        reopened = await self._writer.do(lambda: self._store.reopen(batch_id, chosen, now_ms, deadline_ms))
        return reopened.rows

    async def cancel(self, batch_id: str) -> BatchStatus:
        status = await self.status(batch_id)
        if status.terminal and status.counts.cancelled:
            return status
        if status.terminal:
            raise WrongState(f"{batch_id} has ended as {status.state.value}; only one that has not can be cancelled")

        def close() -> None:
            self._store.request_close(batch_id, FailureKind.CANCELLED, self._clock.now_ms())
            while self._store.close_step(batch_id, self._clock.now_ms()):
                pass

        await self._writer.do(close)
        return await self.status(batch_id)

    async def resume(self, batch_id: str, *, max_cost_picousd: int = -1) -> BatchStatus:
        def clear() -> None:
            batch = self._store.get_batch(batch_id)
            if max_cost_picousd >= 0:
                self._store.set_cap(batch_id, max_cost_picousd, soft=batch.spec.soft_cap)
            for pause in batch.pauses:
                if pause.cause is PauseCause.LANE and pause.lane:
                    self._store.clear_lane(pause.lane)
            self._store.resume_batch(batch_id)

        await self._writer.do(clear)
        return await self.status(batch_id)

    async def reprice(self, batch_id: str, *, every: bool = False) -> RepriceResult:
        batch = await asyncio.to_thread(self._store.get_batch, batch_id)
        return await BatchRepricing(self._repricing, batch, every=every).run()

    async def check_delete(self, batch_id: str) -> None:
        batch = await asyncio.to_thread(self._store.get_batch, batch_id)
        if not batch.facts.settled:
            state = derive(batch.facts, batch.tally).value
            raise WrongState(f"{batch_id} has not ended ({state}); `batchwright cancel {batch_id}` ends it")
        if self._is_live(batch):
            raise InUse(f"another process is writing the answers of {batch_id}; delete it once that has ended")

    async def delete(self, batch_id: str) -> None:
        await self.check_delete(batch_id)
        await self._writer.do(lambda: self._store.drop_batch(batch_id))

    async def usage(self, *, since_day: str = "") -> list[tuple[UsageKey, UsageSum]]:
        lines = await asyncio.to_thread(self._store.read_usage, since_day=since_day)
        return [(line.key, line.sum) for line in lines]

    def _status(self, batch: BatchRow) -> BatchStatus:
        state = derive(batch.facts, batch.tally)
        return BatchStatus(
            batch_id=batch.batch_id,
            state=state,
            terminal=state.terminal,
            spec=batch.spec,
            round=batch.round,
            total=batch.facts.total,
            counts=count(batch.facts.total, batch.tally),
            by_byte=dict(batch.tally.counts),
            tally=batch.tally,
            created_at_ms=batch.created_at_ms,
            settled_at_ms=batch.settled_at_ms,
            deadline_ms=batch.deadline_ms,
            pauses=tuple(batch.pauses),
            budget_taken_picousd=batch.budget_taken_picousd,
            live=not state.terminal and self._is_live(batch),
        )


def views_of(segment: SegmentView, *, start: int, wanted: frozenset[int] | None) -> list[RowView]:
    """A segment's rows from request_index `start` on, those with a wanted byte."""
    assert segment.input is not None
    find_record = segment.records.get
    first = segment.first_index
    # One comprehension: a call a row would cost as much as the row's view.
    return [
        RowView(
            request_index=first + position,
            byte=byte,
            record=find_record(position),
            input=row,
            may_have_been_sent=byte in CLOSED_BYTES and _may_have_been_sent(segment, position),
        )
        for position, (row, byte) in enumerate(zip(segment.input.rows, segment.row_map, strict=True))
        if first + position >= start and (wanted is None or byte in wanted)
    ]


def _may_have_been_sent(segment: SegmentView, position: int) -> bool:
    record = segment.records.get(position)
    return segment.reserved[position] == row_map.RESERVED or (record is not None and record.doubts > 0)
