"""`ports.batches.Batches` in memory, for tests of the runner alone: rows, bytes and records in lists, no worker.

Tallies are kept as a worker keeps them, apart from the rows, so that a test can make the two disagree.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass, field

import msgspec

from batchwright.core import row_map
from batchwright.core.batch_spec import BatchSpec, Destination
from batchwright.core.batch_state import BatchFacts, Pause, PauseCause, count, derive
from batchwright.core.errors import InUse, NoSuchBatch, WrongState
from batchwright.core.failures import FailureKind
from batchwright.core.records import InputRow, Record, Tally, UsageKey, UsageSum
from batchwright.core.rows import RowView, SourceRow
from batchwright.core.tenants import LOCAL
from batchwright.ports.batches import BatchStatus, KnownCost, RepriceResult, Rows, Selector, Submit, Submitted
from batchwright.ports.stored import EVERYBODYS, Share

SEGMENT_ROWS = 3


@dataclass
class MemoryBatch:
    batch_id: str
    spec: BatchSpec
    number: int
    rows: list[InputRow] = field(default_factory=list)
    row_map: bytearray = field(default_factory=bytearray)
    records: dict[int, Record] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    pauses: list[Pause] = field(default_factory=list)
    closing: FailureKind | None = None
    accepting: bool = True
    live: bool = False
    held_by_others: bool = False
    round: int = 0
    deadline_ms: int = 0
    priority: int = 0
    share: Share = EVERYBODYS

    def end(self, row: int, record: Record) -> None:
        """A row's outcome, as a checkpoint writes it."""
        if self.row_map[row] == row_map.PENDING:
            row_map.reserve(self.row_map, row)
        row_map.finish(self.row_map, row, record.byte)
        self.records[row] = record
        self._count(record.byte)
        self.tally.attempts += record.attempts
        self.tally.cost_picousd += record.cost_picousd
        self.tally.unpriced += record.unpriced
        self.tally.no_usage += record.no_usage
        self.tally.doubts += record.doubts
        self.tally.prompt_tokens += max(record.prompt_tokens, 0)
        self.tally.completion_tokens += max(record.completion_tokens, 0)

    def close(self, kind: FailureKind) -> None:
        """Ends every open row so."""
        self.closing = kind
        for row, byte in enumerate(self.row_map):
            if not row_map.is_end(byte):
                self.row_map[row] = row_map.KIND_BYTES[kind]
                self._count(self.row_map[row])

    def _count(self, byte: int) -> None:
        self.tally.counts[byte] = self.tally.counts.get(byte, 0) + 1

    def open_rows(self) -> list[int]:
        return [row for row, byte in enumerate(self.row_map) if not row_map.is_end(byte)]

    def status(self) -> BatchStatus:
        counts = count(len(self.rows), self.tally)
        settled = not self.accepting and not self.open_rows()
        facts = BatchFacts(
            total=len(self.rows),
            accepting=self.accepting,
            cancel_requested=self.closing is FailureKind.CANCELLED,
            expired=self.closing is FailureKind.EXPIRED,
            paused=bool(self.pauses),
            settled=settled,
        )
        state = derive(facts, self.tally)
        return BatchStatus(
            batch_id=self.batch_id,
            tenant=LOCAL,
            state=state,
            terminal=state.terminal,
            spec=self.spec,
            round=self.round,
            total=len(self.rows),
            counts=counts,
            by_byte=dict(self.tally.counts),
            tally=self.tally,
            created_at_ms=1,
            settled_at_ms=2 if settled else 0,
            deadline_ms=self.deadline_ms,
            pauses=tuple(self.pauses),
            budget_taken_picousd=0,
            live=self.live or self.held_by_others,
            priority=self.priority,
            share=self.share,
        )


class MemoryBatches:
    def __init__(self) -> None:
        self.batches: dict[str, MemoryBatch] = {}
        self.in_use: set[str] = set()
        """Ids of batches that another process holds."""

    async def submit(self, submit: Submit, rows: Rows) -> Submitted:
        assert not isinstance(rows, AsyncIterable), "the runner reads a file"
        batch = MemoryBatch(submit.batch_id, submit.spec, len(self.batches))
        batch.deadline_ms = int(submit.deadline_s * 1000)
        self.batches[submit.batch_id] = batch
        try:
            for chunk in rows:
                for source_row in chunk:
                    self._add(batch, source_row)
        except BaseException:
            del self.batches[submit.batch_id]
            raise
        batch.accepting = False
        return Submitted(status=batch.status(), replayed=False)

    def _add(self, batch: MemoryBatch, source_row: SourceRow) -> None:
        batch.rows.append(source_row.row)
        batch.row_map.append(row_map.PENDING)
        finding = source_row.finding
        if finding is not None:
            byte = row_map.KIND_BYTES[FailureKind.INVALID_ROW]
            row = len(batch.rows) - 1
            record = Record(row=row, byte=byte, attempts=0, used=0, code=finding.code, message=finding.message)
            batch.end(row, record)

    async def status(self, batch_id: str) -> BatchStatus:
        return self._batch(batch_id).status()

    def _batch(self, batch_id: str) -> MemoryBatch:
        if batch_id not in self.batches:
            raise NoSuchBatch(batch_id)
        return self.batches[batch_id]

    async def check_delete(self, batch_id: str) -> None:
        if not self._batch(batch_id).status().terminal:
            raise WrongState(f"{batch_id} has not ended; `batchwright cancel {batch_id}` ends it")
        if batch_id in self.in_use:
            raise InUse(f"{batch_id} is in use")

    async def delete(self, batch_id: str) -> None:
        await self.check_delete(batch_id)
        del self.batches[self._batch(batch_id).batch_id]

    async def resolve(self, text: str) -> str:
        return self._batch(text).batch_id

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
        assert not created_after_ms, "every batch here was created at 1 ms"
        assert not created_before_ms
        newest = self._batch(before).number if before else len(self.batches)
        found = [
            batch
            for batch in self.batches.values()
            if batch.number < newest
            and (not identity or batch.spec.identity == identity)
            and (not source or batch.spec.source == source)
        ]
        return [batch.status() for batch in sorted(found, key=lambda batch: -batch.number)][:limit]

    async def rows(
        self,
        batch_id: str,
        *,
        start: int = 0,
        end: int | None = None,
        wanted: frozenset[int] | None = None,
        texts_of: frozenset[int] | None = None,
    ) -> AsyncIterator[list[RowView]]:
        batch = self._batch(batch_id)
        last = len(batch.rows) if end is None else min(end, len(batch.rows))
        for first in range(start, last, SEGMENT_ROWS):
            views = [self._view(batch, row, texts_of) for row in range(first, min(first + SEGMENT_ROWS, last))]
            chosen = [view for view in views if wanted is None or view.byte in wanted]
            if chosen:
                yield chosen

    def _view(self, batch: MemoryBatch, row: int, texts_of: frozenset[int] | None) -> RowView:
        byte, found = batch.row_map[row], batch.rows[row]
        if texts_of is not None and byte not in texts_of:
            found = msgspec.structs.replace(found, body=b"", columns=b"")
        return RowView(request_index=row, byte=byte, record=batch.records.get(row), input=found)

    async def find_custom_id(self, batch_id: str, custom_id: str) -> list[int]:
        return [row for row, input_row in enumerate(self._batch(batch_id).rows) if input_row.custom_id == custom_id]

    async def retry(self, batch_id: str, selector: Selector, deadline_s: float = 0.0, *, gate: bool = True) -> int:
        batch = self._batch(batch_id)
        if not batch.status().terminal:
            raise WrongState(f"{batch_id} has not ended")
        chosen = row_map.select_bytes(selector.kinds, selector.flags) or row_map.RETRIED_BYTES
        new_map, _, reopened = row_map.reopen(bytes(batch.row_map), chosen)
        for row, byte in enumerate(new_map):
            if byte == row_map.PENDING:
                batch.tally.counts[batch.row_map[row]] -= 1
        batch.row_map, batch.closing, batch.round = bytearray(new_map), None, batch.round + 1
        return reopened

    async def cancel(self, batch_id: str) -> BatchStatus:
        self._batch(batch_id).close(FailureKind.CANCELLED)
        return await self.status(batch_id)

    async def pause(self, batch_id: str, reason: str) -> BatchStatus:
        self.hold(batch_id, PauseCause.USER, reason)
        return await self.status(batch_id)

    async def resume(
        self,
        batch_id: str,
        *,
        max_cost_picousd: int = -1,
        keys_of: Sequence[Destination] = (),
        past_gate: bool = False,
    ) -> BatchStatus:
        batch = self._batch(batch_id)
        batch.pauses.clear()
        if max_cost_picousd >= 0:
            fields = {name: getattr(batch.spec, name) for name in BatchSpec.__struct_fields__}
            batch.spec = BatchSpec(**fields | {"max_cost_picousd": max_cost_picousd})
        return batch.status()

    async def prioritise(self, batch_id: str, priority: int) -> BatchStatus:
        self._batch(batch_id).priority = priority
        return await self.status(batch_id)

    async def reprice(self, batch_id: str, *, every: bool = False) -> RepriceResult:
        """Without a price table there is nothing to price by."""
        batch = self._batch(batch_id)
        cost = KnownCost(picousd=batch.tally.cost_picousd, unpriced=batch.tally.unpriced, no_usage=batch.tally.no_usage)
        lacking = [row for row, record in batch.records.items() if record.unpriced]
        return RepriceResult(
            batch_id=batch_id,
            before=cost,
            after=cost,
            priced=0,
            changed=0,
            mixed=0,
            without_price={"m": len(lacking)} if lacking else {},
            beyond_reason=0,
            usage_not_kept=0,
        )

    async def usage(self, *, since_day: str = "") -> list[tuple[UsageKey, UsageSum]]:
        return []

    def hold(self, batch_id: str, cause: PauseCause, reason: str) -> None:
        self._batch(batch_id).pauses.append(Pause(cause=cause, reason=reason, since_ms=1))
