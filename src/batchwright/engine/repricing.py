"""A settled batch's answers under today's prices, segment by segment: read, decide (`core.repricing`), write."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from batchwright.core.batch_spec import Destination, LaneKey
from batchwright.core.batch_state import derive
from batchwright.core.errors import InUse, WrongState
from batchwright.core.records import InputRow, Record, Tally, UsageKey, UsageSum
from batchwright.core.repricing import Repriced, Verdict, reprice
from batchwright.engine.bounds import LanePrices
from batchwright.engine.floor import FindPrice, destination_of
from batchwright.engine.writer import Writer
from batchwright.ports.batches import KnownCost, RepriceResult
from batchwright.ports.clock import Clock
from batchwright.ports.store import BatchRow, SegmentKey, SegmentRepricing, SegmentView, Store
from batchwright.wire.frames import pack_records

CHANGE_BYTES = 8 * 1024 * 1024
"""Answers in one change, a larger one alone: what a transaction of the store takes."""

MayStateCost = Callable[[Destination, str, bytes], bool]
"""(destination, endpoint, body): may the vendor have stated the cost of this answer itself?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepricingParts:
    store: Store
    writer: Writer
    clock: Clock
    find_price: FindPrice
    may_state_cost: MayStateCost
    day_of: Callable[[int], str]
    """The UTC day of a moment in milliseconds."""


@dataclass(slots=True)
class _Change:
    """What goes into one transaction."""

    records: list[Record] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    usage: dict[UsageKey, UsageSum] = field(default_factory=dict)
    size: int = 0


class BatchRepricing:
    """One pass over one batch."""

    def __init__(self, parts: RepricingParts, batch: BatchRow, *, every: bool) -> None:
        """Raises WrongState for a batch that has not ended."""
        if not batch.facts.settled:
            raise WrongState(
                f"{batch.batch_id} is {derive(batch.facts, batch.tally).value}: answers can be priced again once all "
                "rows have ended"
            )
        self._parts = parts
        self._batch = batch
        self._every = every
        self._price_of = LanePrices(parts.find_price, batch.spec.destinations)
        self._verdicts: Counter[Verdict] = Counter()
        self._without_price: Counter[str] = Counter()
        self._usage_not_kept = 0

    async def run(self) -> RepriceResult:
        store, batch_id = self._parts.store, self._batch.batch_id
        reader = store.read_segments(batch_id, with_input=True)
        number, epoch = -1, 0
        while (view := await asyncio.to_thread(next, reader, None)) is not None:
            if view.number != number:  # else a further slice of the segment whose last change raised its epoch
                number, epoch = view.number, view.epoch
            for change in await asyncio.to_thread(self._look_at, view):
                named = _named(SegmentKey(batch_id, number), epoch, change)
                epoch = await self._parts.writer.do(partial(store.reprice, named, self._parts.clock.now_ms()))
                if not epoch:
                    raise InUse(f"another process has changed {batch_id} meanwhile; the same command again goes on")
        after = await asyncio.to_thread(store.get_batch, batch_id)
        return RepriceResult(
            batch_id=batch_id,
            before=_known(self._batch.tally),
            after=_known(after.tally),
            priced=self._verdicts[Verdict.PRICED],
            changed=self._verdicts[Verdict.CHANGED],
            mixed=self._verdicts[Verdict.MIXED],
            without_price=dict(self._without_price),
            beyond_reason=self._verdicts[Verdict.BEYOND_REASON],
            usage_not_kept=self._usage_not_kept,
        )

    def _look_at(self, view: SegmentView) -> list[_Change]:
        """What is to be written of a view; counts what was found."""
        assert view.input is not None
        changes: list[_Change] = []
        for row, record in sorted(view.records.items()):
            source = view.input.rows[row]
            if not view.input.lanes or not record.attempts:
                continue  # refused when it was read: never sent
            lane = view.input.lanes[record.lane if record.lane >= 0 else source.lane]
            found = self._decide(source, lane, record)
            self._count(found, lane)
            if found.record is not record:
                if not changes or changes[-1].size + len(record.body) > CHANGE_BYTES:
                    changes.append(_Change())
                self._add(changes[-1], source, lane, before=record, after=found.record)
        return changes

    def _decide(self, source: InputRow, lane: str, record: Record) -> Repriced:
        def may_state_cost() -> bool:
            if record.cost_picousd:
                return True  # no table gave it: this vendor states costs, perhaps this one too, in a head that is gone
            destination = destination_of(LaneKey.parse(lane), self._batch.spec.destinations)
            return self._parts.may_state_cost(destination, source.endpoint, record.body)

        return reprice(record, self._price_of(lane), every=self._every, may_state_cost=may_state_cost)

    def _count(self, found: Repriced, lane: str) -> None:
        self._verdicts[found.verdict] += 1
        if found.verdict is Verdict.NO_PRICE:
            self._without_price[LaneKey.parse(lane).model] += 1
        elif found.record.unpriced and found.verdict is not Verdict.BEYOND_REASON:
            self._usage_not_kept += 1

    def _add(self, change: _Change, source: InputRow, lane: str, *, before: Record, after: Record) -> None:
        """Adds a record with its differences, under the day and the names that its answer was counted under."""
        cost_picousd = after.cost_picousd - before.cost_picousd
        unpriced, no_usage = after.unpriced - before.unpriced, after.no_usage - before.no_usage
        change.records.append(after)
        change.size += len(after.body)
        tally = change.tally
        tally.cost_picousd += cost_picousd
        tally.unpriced += unpriced
        tally.no_usage += no_usage
        if (unpriced or no_usage) and self._batch.spec.max_cost_picousd >= 0:
            tally.possible_picousd -= _charged(source, before)
        key = LaneKey.parse(lane)
        day = self._parts.day_of(before.ended_at_ms)
        used = change.usage.setdefault(
            UsageKey(day, key.account, key.model, before.vendor, *self._batch.tenant), UsageSum()
        )
        used.add(UsageSum(cost_picousd=cost_picousd, unpriced=unpriced, no_usage=no_usage))


def _charged(source: InputRow, record: Record) -> int:
    """What a cap was charged for an answer at a cost nobody could tell (`engine.sender.likely_cost`). 0 where its price
    was known but no bound: what was held then cannot be told now, and the cap goes on counting it."""
    return source.worst_picousd or (0 if record.price_id else 1)


def _named(key: SegmentKey, epoch: int, change: _Change) -> SegmentRepricing:
    return SegmentRepricing(
        key=key, epoch=epoch, records=pack_records(change.records), tally=change.tally, usage=change.usage
    )


def _known(tally: Tally) -> KnownCost:
    return KnownCost(picousd=tally.cost_picousd, unpriced=tally.unpriced, no_usage=tally.no_usage)
