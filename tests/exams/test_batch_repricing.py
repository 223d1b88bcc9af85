"""One pass of repricing over either store: in slices and changes as small as a row, beside another process's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from batchwright.core.batch_spec import Destination
from batchwright.core.errors import InUse, WrongState
from batchwright.core.pricing import Price
from batchwright.core.records import UsageKey, UsageSum
from batchwright.engine import repricing
from batchwright.engine.repricing import BatchRepricing, RepricingParts
from batchwright.engine.writer import StoreThread
from batchwright.fabric.system import SystemClock, utc_day
from batchwright.ports.batches import KnownCost, RepriceResult
from batchwright.ports.store import Store
from batchwright.store import reading
from support.store_drive import Worker, new_segment, submit

PRICE = Price(price_id="today", input_rate=10**6, output_rate=10**6, cached_rate=10**6)
"""A picousd a token."""
ANSWERED_AT_MS = 86_400_000
BEFORE, AFTER = KnownCost(picousd=0, unpriced=8, no_usage=0), KnownCost(picousd=8 * 12, unpriced=0, no_usage=0)

FindPrice = Callable[[Destination, str], Price | None]


def unpriced(store: Store) -> None:
    """Two segments of four answers with usage and without a price."""
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    for _ in range(2):
        found = worker.one()
        worker.checkpoint(found.reserve(0, 1, 2, 3).change())
        found.answer(0, 1, 2, 3, cost=0)
        for row, record in found.fresh.items():
            found.fresh[row] = msgspec.structs.replace(
                record, unpriced=1, prompt_tokens=10, completion_tokens=2, vendor="openai", ended_at_ms=ANSWERED_AT_MS
            )
        found.tally.unpriced = found.usage.unpriced = 4
        worker.checkpoint(found.change())


def reprice(store: Store, find_price: FindPrice = lambda *_: PRICE) -> RepriceResult:
    writer = StoreThread("writer")
    parts = RepricingParts(
        store=store,
        writer=writer,
        clock=SystemClock(),
        find_price=find_price,
        may_state_cost=lambda *_: False,
        day_of=utc_day,
    )
    try:
        return asyncio.run(BatchRepricing(parts, store.get_batch("batch_a"), every=False).run())
    finally:
        writer.close()


@pytest.mark.parametrize(("slices", "changes"), [(False, False), (False, True), (True, False), (True, True)])
def test_slices_and_changes_of_a_row_add_up(
    store: Store, monkeypatch: pytest.MonkeyPatch, slices: bool, changes: bool
) -> None:
    unpriced(store)
    epochs = [view.epoch for view in store.read_segments("batch_a")]
    if slices:
        monkeypatch.setattr(reading, "VIEW_BYTES", 1)
    if changes:
        monkeypatch.setattr(repricing, "CHANGE_BYTES", 1)
    result = reprice(store)
    assert (result.priced, result.before, result.after) == (8, BEFORE, AFTER)
    monkeypatch.undo()
    transactions = [view.epoch - epoch for view, epoch in zip(store.read_segments("batch_a"), epochs, strict=True)]
    assert transactions == [4, 4] if slices or changes else [1, 1]
    by_key = {line.key: line.sum for line in store.read_usage()}
    key = UsageKey(day="1970-01-02", account="KEY", model="m", vendor="openai", tenant="acme")
    assert by_key[key] == UsageSum(cost_picousd=8 * 12, unpriced=-8), "under the day and lane of the answers"
    assert reprice(store).after == AFTER
    assert reprice(store).priced == 0


def test_two_at_once_count_nothing_twice(store: Store) -> None:
    """The other has priced everything by the time this one has its first price."""
    unpriced(store)
    others: list[RepriceResult] = []

    def find_price(destination: Destination, model: str) -> Price:
        if not others:
            others.append(reprice(store))
        return PRICE

    with pytest.raises(InUse, match="the same command again goes on"):
        reprice(store, find_price)
    assert others[0].priced == 8
    assert reprice(store).after == AFTER


def test_a_state_that_is_no_end_is_named(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    with pytest.raises(WrongState, match="batch_a is queued"):
        reprice(store)
