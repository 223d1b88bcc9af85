"""`ports.batches` on this machine's store. Reads run in threads of their own; nothing here knows where workers are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from copy import copy

from batchwright.core import row_map
from batchwright.core.batch_spec import CHUNK_OF, Destination, LaneKey, grouped, with_keys_of
from batchwright.core.batch_state import BatchState, Pause, PauseCause, derive
from batchwright.core.errors import InUse, KeyReused, NoSuchBatch, UsageError, WrongState
from batchwright.core.failures import FailureKind
from batchwright.core.records import UsageKey, UsageSum
from batchwright.core.rows import RowView, SourceRow
from batchwright.core.tenants import LOCAL, Tenant
from batchwright.core.worker_id import WorkerId
from batchwright.engine.batch_views import NO_END, status_of, views_of, waiting_of
from batchwright.engine.bounds import LanePrices, refuse_unbounded, with_worst_cases
from batchwright.engine.credit import check_credit
from batchwright.engine.floor import FindPrice, lane_name
from batchwright.engine.intake import Intake, take_in, take_in_stream
from batchwright.engine.repricing import BatchRepricing, MayStateCost, RepricingParts
from batchwright.engine.writer import Reader, Writer
from batchwright.ports.batches import BatchStatus, RepriceResult, Rows, Selector, Submit, Submitted
from batchwright.ports.clock import Clock
from batchwright.ports.store import BatchRow, IdempotentBatch, NewBatch, Store

FIRST_SUBMIT_WAIT_S = 10.0
"""So long a second submit with an idempotency key waits for the first to be durable."""
LOOK_AGAIN_S = 0.05
PAGE_MIN = 50
"""Batches looked at at once where some are passed over."""


class StoreBatches:
    """`is_live` tells whether some live process takes a batch in or works on it."""

    def __init__(
        self,
        store: Store,
        *,
        writer: Writer,
        reader: Reader,
        clock: Clock,
        owner: WorkerId,
        is_live: Callable[[BatchRow], bool],
        find_price: FindPrice,
        may_state_cost: MayStateCost,
        day_of: Callable[[int], str],
        hold: Callable[[str], Callable[[], None]] = lambda batch_id: lambda: None,
        mark: str = "",
    ) -> None:
        """`hold` takes the lock of a batch whose rows arrive and gives what releases it: what no lock is held for is
        removed by every sweeper.

        `mark`: of the store, as chunks of its runs bear it (`CHUNK_OF`)."""
        self._mark = mark
        self.claimable: Callable[[], None] = lambda: None
        """Told when this process made segments claimable, """
        self.flagged: Callable[[], None] = lambda: None
        """and when it cancelled or paused a batch: its own commits wake no worker of its own."""
        self._hold = hold
        self._tenant = LOCAL
        self._sees = LOCAL.account
        """Whose batches are there for it; empty: every account's."""
        self._store = store
        self._writer, self._reader = writer, reader
        self._clock = clock
        self._owner = owner
        self._is_live = is_live
        self._find_price = find_price
        self._repricing = RepricingParts(
            store=store, writer=writer, clock=clock, find_price=find_price, may_state_cost=may_state_cost, day_of=day_of
        )

    def of(self, tenant: Tenant) -> StoreBatches:
        """The same for another account; what is submitted counts for that key."""
        other = copy(self)
        other._tenant, other._sees = tenant, tenant.account
        return other

    def of_operator(self, account: str = "") -> StoreBatches:
        """The same for whoever owns the state folder, who sees every account's batches, or those of the one named. What
        is submitted still belongs to this one's account."""
        other = copy(self)
        other._sees = account
        return other

    async def submit(self, submit: Submit, rows: Rows) -> Submitted:
        if submit.idempotency is not None and await self._find_key(submit.idempotency.key) is not None:
            first = await self._replayed(submit, submit.idempotency.key, rows)
            if first is not None:
                return Submitted(status=first, replayed=True)
        await self.check_credit()
        now_ms = self._clock.now_ms()
        batch = NewBatch(
            batch_id=submit.batch_id,
            tenant=self._tenant,
            spec=grouped(submit.spec, submit.batch_id),
            created_at_ms=now_ms,
            deadline_ms=now_ms + int(submit.deadline_s * 1000) if submit.deadline_s else 0,
            owner=self._owner,
            idempotency=submit.idempotency,
            webhook=submit.webhook,
        )
        try:
            await self._take_in(batch, rows, submit.digest_at_end)
        except KeyReused:
            # Another submit with the key came first, after it was looked for.
            first = await self._replayed(submit, batch.idempotency.key, rows) if batch.idempotency is not None else None
            if first is None:
                raise
            return Submitted(status=first, replayed=True)
        self.claimable()
        return Submitted(status=await self.status(submit.batch_id), replayed=False)

    async def _take_in(self, batch: NewBatch, rows: Rows, digest_at_end: Callable[[], str] | None) -> None:
        prices = LanePrices(self._find_price, batch.spec.destinations, batch.spec.routes)
        capped = batch.spec.max_cost_picousd >= 0 and not batch.spec.soft_cap

        def bound(some: Iterable[Sequence[SourceRow]], first_index: int = 0) -> Iterable[Sequence[SourceRow]]:
            bounded = with_worst_cases(some, prices)
            return refuse_unbounded(bounded, prices, first_index) if capped else bounded

        if isinstance(rows, AsyncIterable):
            intake = Intake(self._store, batch, clock=self._clock, digest_at_end=digest_at_end)
            release = await asyncio.to_thread(self._hold, batch.batch_id)
            try:
                await take_in_stream(intake, _bound_each(rows, bound), writer=self._writer, clock=self._clock)
            finally:
                release()
        else:
            # In the writer's thread: reading, checking and cutting the input are one pass with writing it.
            bounded = bound(rows)
            await self._writer.do(lambda: take_in(self._store, batch, bounded, clock=self._clock))

    async def _find_key(self, key: str) -> IdempotentBatch | None:
        account, now_ms = self._tenant.account, self._clock.now_ms()
        return await self._reader.do(lambda: self._store.find_idempotent(account, key, now_ms))

    async def _replayed(self, submit: Submit, key: str, rows: Rows) -> BatchStatus | None:
        """The batch that an earlier submit with the same idempotency key made, once it is durable. None: it was given
        up, and this may take its place. Raises KeyReused, InUse."""
        assert submit.idempotency is not None
        digest = submit.idempotency.digest
        if submit.digest_at_end is not None and isinstance(rows, AsyncIterable):
            async for _ in rows:
                pass
            digest = submit.digest_at_end()
        first = await self._first_submit(key, digest)
        if first is None and submit.digest_at_end is not None:
            raise InUse(f"the first request with the idempotency key {key!r} was given up; send this one again")
        return first

    async def _first_submit(self, key: str, digest: str) -> BatchStatus | None:
        until_s = self._clock.now_s() + FIRST_SUBMIT_WAIT_S
        while (found := await self._find_key(key)) is not None:
            # Rows that still arrive have no digest yet.
            if found.digest and found.digest != digest:
                raise KeyReused(
                    f"the idempotency key {key!r} was used for another request, which made {found.batch_id}; send the "
                    "same request again, or use another key"
                )
            try:
                first = await self.status(found.batch_id)
            except NoSuchBatch:
                continue
            if found.digest and (first.state is not BatchState.ACCEPTING or first.round):
                return first
            if self._clock.now_s() > until_s:
                raise InUse(f"the first request with the idempotency key {key!r} is still being taken in")
            await self._clock.sleep(LOOK_AGAIN_S)
        return None

    async def check_credit(self) -> None:
        """Raises CreditSpent if the key's budget is spent: nothing new is taken in under it."""
        await self._check_credit(self._tenant.key_id)

    async def _check_credit(self, key_id: str) -> None:
        """Raises CreditSpent. Of a batch it is the key it was submitted with that pays, whoever asks."""
        await self._reader.do(lambda: check_credit(self._store, key_id))

    async def status(self, batch_id: str) -> BatchStatus:
        return await self._reader.do(lambda: self._status(self._read(batch_id)))

    async def _get(self, batch_id: str) -> BatchRow:
        return await self._reader.do(lambda: self._read(batch_id))

    def _read(self, batch_id: str) -> BatchRow:
        """Raises NoSuchBatch for another account's, in the very words for one that is not there."""
        batch = self._store.get_batch(batch_id)
        if self._sees and batch.tenant.account != self._sees:
            raise NoSuchBatch(f"There is no batch {batch_id} here.")
        return batch

    async def resolve(self, text: str) -> str:
        account = self._sees
        if text == "@last":
            newest = await self.find(limit=1, chunks=False)
            if not newest:
                raise NoSuchBatch("@last names the newest batch, and there is none here yet")
            return newest[0].batch_id
        prefix = text if text.startswith("batch_") else f"batch_{text}"
        found = (
            await self._reader.do(lambda: self._store.find_batches(account=account, prefix=prefix, limit=10))
            if text.isascii()
            else []
        )
        if not found:
            raise NoSuchBatch(f"no batch begins with {text!r}; `batchwright list` shows those there are")
        if len(found) > 1 and all(batch.batch_id != prefix for batch in found):
            names = ", ".join(batch.batch_id for batch in found)
            raise NoSuchBatch(f"{text!r} begins more than one batch: {names}; give more digits")
        return next((batch.batch_id for batch in found if batch.batch_id == prefix), found[0].batch_id)

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
        def page(before: str) -> list[BatchRow]:
            return self._store.find_batches(
                identity=identity,
                source=source,
                account=self._sees,
                before=before,
                limit=limit if chunks else max(limit, PAGE_MIN),
                created_after_ms=created_after_ms,
                created_before_ms=created_before_ms,
            )

        def read() -> list[BatchStatus]:
            found = page(before) if chunks else self._without_chunks(page, before, limit)
            return [self._status(batch) for batch in found]

        return await self._reader.do(read)

    def _without_chunks(self, page: Callable[[str], list[BatchRow]], before: str, limit: int) -> list[BatchRow]:
        """As many as there are, `limit` at most. In a thread."""
        kept: list[BatchRow] = []
        while batches := page(before):
            kept += [batch for batch in batches if batch.spec.metadata.get(CHUNK_OF) != self._mark]
            if len(kept) >= limit:
                break
            before = batches[-1].batch_id
        return kept[:limit]

    async def rows(
        self,
        batch_id: str,
        *,
        start: int = 0,
        end: int | None = None,
        wanted: frozenset[int] | None = None,
        texts_of: frozenset[int] | None = None,
    ) -> AsyncIterator[list[RowView]]:
        def begin() -> tuple[Iterator[list[RowView]], list[RowView] | None]:
            """The reader, asked once already: most want no more than a page."""
            self._read(batch_id)
            segments = self._store.read_segments(
                batch_id, first_index=start, end_index=end, with_input=True, wanted=wanted, texts_of=texts_of
            )
            within = range(start, NO_END if end is None else end)
            reader = (views for segment in segments if (views := views_of(segment, within, wanted)))
            return reader, next(reader, None)

        reader, views = await self._reader.do(begin)
        while views is not None:
            yield views
            views = await self._reader.do(lambda: next(reader, None))

    async def find_custom_id(self, batch_id: str, custom_id: str) -> list[int]:
        # What is no text (bytes of a command line that are no UTF-8) is in no file: a line that has it is refused.
        if custom_id.encode("utf-8", "ignore").decode() != custom_id:
            return []
        await self._get(batch_id)
        return await self._reader.do(lambda: self._store.find_custom_id(batch_id, custom_id))

    async def retry(self, batch_id: str, selector: Selector, deadline_s: float = 0.0, *, gate: bool = True) -> int:
        chosen = row_map.select_bytes(selector.kinds, selector.flags) or row_map.RETRIED_BYTES
        if never := chosen & row_map.NEVER_SENDABLE:
            names = ", ".join(sorted(row_map.name_of(byte) for byte in never))
            raise UsageError(
                f"rows that ended as {names} were refused when the input was read and hold no request that could be "
                "sent; put them right in the input and run that"
            )
        await self._check_credit((await self._get(batch_id)).tenant.key_id)
        now_ms = self._clock.now_ms()
        deadline_ms = now_ms + int(deadline_s * 1000) if deadline_s else 0
        reopened = await self._writer.do(
            lambda: self._store.reopen(batch_id, chosen, deadline_ms=deadline_ms, gate=gate)
        )
        self.claimable()
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
        self.flagged()
        return await self.status(batch_id)

    async def pause(self, batch_id: str, reason: str) -> BatchStatus:
        await self._get(batch_id)
        fact = Pause(cause=PauseCause.USER, reason=reason, since_ms=self._clock.now_ms())
        await self._writer.do(lambda: self._store.pause_batch(batch_id, fact))
        self.flagged()
        return await self.status(batch_id)

    async def resume(
        self,
        batch_id: str,
        *,
        max_cost_picousd: int = -1,
        keys_of: Sequence[Destination] = (),
        past_gate: bool = False,
    ) -> BatchStatus:
        await self._check_credit((await self._get(batch_id)).tenant.key_id)

        def clear() -> None:
            batch = self._store.get_batch(batch_id)
            lanes = self._lanes_of(batch)
            renewed = with_keys_of(batch.spec.destinations, keys_of) != batch.spec.destinations
            if renewed and not self._store.is_held(batch_id):  # whoever holds it goes on with the keys it met
                self._store.set_keys(batch_id, keys_of)
                lanes |= self._lanes_of(self._store.get_batch(batch_id))
            if past_gate:
                self._store.pass_gate(batch_id)
            if max_cost_picousd >= 0:
                self._store.set_cap(batch_id, max_cost_picousd, soft=batch.spec.soft_cap)
            for lane in sorted(lanes):
                self._store.clear_lane(lane)
            self._store.resume_batch(batch_id)

        await self._writer.do(clear)
        self.claimable()
        return await self.status(batch_id)

    async def prioritise(self, batch_id: str, priority: int) -> BatchStatus:
        await self._get(batch_id)
        await self._writer.do(lambda: self._store.set_priority(batch_id, priority))
        return await self.status(batch_id)

    def _lanes_of(self, batch: BatchRow) -> set[str]:
        """Every lane that its open rows may go to, as workers call it; a pause names one of them only."""
        lane_sets = self._store.open_lane_sets(batch.batch_id)
        texts = {text for lane_set in lane_sets for text in lane_set.split("\n")}
        return {lane_name(LaneKey.parse(text), batch.spec.destinations) for text in texts}

    async def reprice(self, batch_id: str, *, every: bool = False) -> RepriceResult:
        batch = await self._get(batch_id)
        return await BatchRepricing(self._repricing, batch, every=every).run()

    async def check_delete(self, batch_id: str) -> None:
        await self._reader.do(lambda: self._check_delete(batch_id))

    def _check_delete(self, batch_id: str) -> None:
        batch = self._read(batch_id)
        state = derive(batch.facts, batch.tally)
        if not state.terminal:
            raise WrongState(f"{batch_id} has not ended ({state.value}); `batchwright cancel {batch_id}` ends it")
        if self._is_live(batch):
            raise InUse(f"another process is writing the answers of {batch_id}; delete it once that has ended")

    async def delete(self, batch_id: str) -> None:
        await self.check_delete(batch_id)
        await self._writer.do(lambda: self._store.drop_batch(batch_id))

    async def usage(self, *, since_day: str = "") -> list[tuple[UsageKey, UsageSum]]:
        account = self._sees
        lines = await self._reader.do(lambda: self._store.read_usage(since_day=since_day, tenant=account))
        return [(line.key, line.sum) for line in lines]

    def _status(self, batch: BatchRow) -> BatchStatus:
        """In a thread: whether it is live is asked of the store."""
        live = not derive(batch.facts, batch.tally).terminal and self._is_live(batch)
        return status_of(batch, live=live, waiting=waiting_of(batch, self._clock.now_ms()) if batch.waits else ())


async def _bound_each(
    chunks: AsyncIterable[Sequence[SourceRow]],
    bound: Callable[[Iterable[Sequence[SourceRow]], int], Iterable[Sequence[SourceRow]]],
) -> AsyncIterator[Sequence[SourceRow]]:
    first_index = 0
    async for chunk in chunks:
        for bounded in bound((chunk,), first_index):
            yield bounded
        first_index += len(chunk)
