"""The store's exam, repricing: records, tally and usage change together, once, and only in a batch that has ended."""

from __future__ import annotations

import msgspec
import pytest

from batchwright.core import row_map
from batchwright.core.errors import NoSuchBatch, WrongState
from batchwright.core.failures import FailureKind
from batchwright.core.records import Record, Tally, UsageKey, UsageSum
from batchwright.ports.store import AllowanceRequest, SegmentKey, SegmentRepricing, Store
from batchwright.store import blobs, ledger
from batchwright.wire import frames
from support.store_drive import CANCELLED, COST, OK, WORST, Worker, bodies, new_segment, spec, submit

KEY = UsageKey(day="2026-01-01", account="vendor-account", model="m", vendor="openai", tenant="acme")
MORE = 30
"""Picousd that each repriced answer costs more."""


def costs(store: Store, batch_id: str = "batch_a") -> dict[int, int]:
    return {
        view.first_index + row: record.cost_picousd
        for view in store.read_segments(batch_id)
        for row, record in view.records.items()
    }


def change_of(store: Store, number: int, *rows: int, batch_id: str = "batch_a", freed: int = 0) -> SegmentRepricing:
    """MORE for each of these rows (by their place in the segment), as of now."""
    (view,) = (view for view in store.read_segments(batch_id) if view.number == number)
    chosen = rows or tuple(view.records)
    records = [
        msgspec.structs.replace(view.records[row], cost_picousd=view.records[row].cost_picousd + MORE, price_id="today")
        for row in chosen
    ]
    more = MORE * len(records)
    return SegmentRepricing(
        key=SegmentKey(batch_id, number),
        epoch=view.epoch,
        records=frames.pack_records(records),
        tally=Tally(cost_picousd=more, unpriced=-len(records), possible_picousd=-freed),
        usage={KEY: UsageSum(cost_picousd=more, unpriced=-len(records))},
    )


def used(store: Store) -> UsageSum:
    (line,) = store.read_usage()
    assert line.key == KEY
    return line.sum


def settled(store: Store, segments: int = 2, of: object = None) -> Worker:
    submit(store, "batch_a", [new_segment(number) for number in range(segments)], of)  # type: ignore[arg-type]
    worker = Worker(store)
    worker.run()
    return worker


def test_records_and_every_sum_change_together(store: Store) -> None:
    settled(store)
    answers, before = bodies(store, "batch_a"), store.get_batch("batch_a")
    change = change_of(store, 1, 0, 2)
    assert store.reprice(change, 5_000) == change.epoch + 1
    assert store.check("batch_a") == []
    assert costs(store) == {row: COST + MORE * (row in (4, 6)) for row in range(8)}
    assert bodies(store, "batch_a") == answers
    after = store.get_batch("batch_a")
    assert after.tally.cost_picousd == 8 * COST + 2 * MORE
    assert after.tally.unpriced == before.tally.unpriced - 2
    assert (after.tally.counts, after.tally.attempts) == (before.tally.counts, before.tally.attempts)
    assert (after.settled_at_ms, after.round) == (before.settled_at_ms, before.round)
    assert (used(store).answers, used(store).cost_picousd, used(store).unpriced) == (8, 8 * COST + 2 * MORE, -2)
    price_ids = {record.price_id for view in store.read_segments("batch_a") for record in view.records.values()}
    assert price_ids == {"", "today"}


def test_the_same_change_is_counted_once(store: Store) -> None:
    settled(store)
    change = change_of(store, 0)
    assert store.reprice(change, 5_000)
    assert store.reprice(change, 5_000) == 0
    assert store.get_batch("batch_a").tally.cost_picousd == 8 * COST + 4 * MORE
    assert used(store).cost_picousd == 8 * COST + 4 * MORE
    again = change_of(store, 0)
    assert store.reprice(again, 6_000) == again.epoch + 1, "one that was made from what stands now is another"


def test_what_fails_half_way_has_done_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    settled(store)
    change = change_of(store, 0)

    def fail(*_: object) -> None:
        raise RuntimeError("the process ends here")

    monkeypatch.setattr(ledger, "add_usage", fail)
    with pytest.raises(RuntimeError, match="ends here"):
        store.reprice(change, 5_000)
    monkeypatch.undo()
    assert store.check("batch_a") == []
    assert costs(store) == dict.fromkeys(range(8), COST)
    assert store.reprice(change, 5_000)
    assert store.check("batch_a") == []


def test_only_a_batch_that_has_ended(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    worker.finish(worker.one())
    with pytest.raises(WrongState, match="has not ended"):
        store.reprice(change_of(store, 0), 5_000)
    worker.run()
    change = change_of(store, 0)
    store.reopen("batch_a", frozenset({OK}))
    with pytest.raises(WrongState, match="a new round"):
        store.reprice(change, 5_000)
    worker.run()
    assert store.reprice(change, 6_000) == 0, "made before the round"
    assert store.get_batch("batch_a").tally.cost_picousd == 16 * COST
    with pytest.raises(NoSuchBatch):
        store.reprice(
            SegmentRepricing(key=SegmentKey("batch_x", 0), epoch=1, records=b"", tally=Tally(), usage={}), 6_000
        )


def test_a_round_goes_on_from_the_new_cost(store: Store) -> None:
    """The base of the round and each row's record before it hold it; also in a segment that the round leaves alone."""
    worker = settled(store)
    for number in (0, 1):
        assert store.reprice(change_of(store, number), 5_000)
    store.reopen("batch_a", frozenset({OK}))
    assert store.check("batch_a") == []
    found = worker.one(now_ms=6_000)
    assert {record.cost_picousd for record in found.claimed.previous_records.values()} == {COST + MORE}
    worker.finish(found, now_ms=6_000)
    worker.run(now_ms=6_000)
    assert set(costs(store).values()) == {2 * COST + MORE}
    assert store.reprice(change_of(store, 0, 1), 7_000)
    assert store.check("batch_a") == []
    assert store.get_batch("batch_a").tally.cost_picousd == 8 * (2 * COST + MORE) + MORE


def test_notes_and_earlier_answers_of_a_closed_segment(store: Store) -> None:
    """A cancelled row keeps its note, with a cost; a reopened one has its answer back, with the cost of the note."""
    worker = settled(store, 1)
    store.reopen("batch_a", frozenset({OK}))
    found = worker.one()
    worker.checkpoint(found.reserve(0, 1, 2).change())
    worker.checkpoint(found.note(0).answer(1).change())
    store.request_close("batch_a", FailureKind.CANCELLED, 4_000)
    worker.checkpoint(found.change(closed_as=FailureKind.CANCELLED), now_ms=4_000)
    submit(store, "batch_b", [new_segment(0)])
    other = worker.one(batch_id="batch_b")
    worker.checkpoint(other.reserve(0, 1).change())
    worker.checkpoint(other.note(0, cost=COST).change())
    store.request_close("batch_b", FailureKind.CANCELLED, 4_000)
    worker.checkpoint(other.change(closed_as=FailureKind.CANCELLED), now_ms=4_000)
    maps = {name: [view.row_map for view in store.read_segments(name)] for name in ("batch_a", "batch_b")}
    assert maps == {"batch_a": [bytes([OK] * 4)], "batch_b": [bytes([CANCELLED] * 4)]}
    assert store.reprice(change_of(store, 0, 1), 4_500)
    assert bodies(store, "batch_a")[0] == b"answer 0 of round 0", "also where its note is the last record"
    for name, counted in maps.items():
        before = costs(store, name)
        assert store.reprice(change_of(store, 0, batch_id=name), 5_000)
        assert store.check(name) == []
        assert costs(store, name) == {row: cost + MORE for row, cost in before.items()}
        assert [view.row_map for view in store.read_segments(name)] == counted
    assert bodies(store, "batch_a")[0] == b"answer 0 of round 0"


def test_a_result_too_large_for_a_transaction_is_added_to(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    settled(store)
    monkeypatch.setattr(blobs, "MAX_BYTES", 10)
    for row in (0, 3):
        assert store.reprice(change_of(store, 0, row), 5_000)
    monkeypatch.undo()
    assert store.check("batch_a") == []
    expected = {row: COST + MORE * (row in (0, 3)) for row in range(8)}
    assert costs(store) == expected
    assert store.reprice(change_of(store, 0, 0), 5_000), "and merged once it fits"
    assert store.sweep_step(5_000, keep_superseded_ms=0) > 0
    assert costs(store) == {**expected, 0: COST + 2 * MORE}
    assert store.check("batch_a") == []


def test_what_is_known_now_is_not_possible_any_more(store: Store) -> None:
    cap = 1_000
    submit(store, "batch_a", [new_segment(0)], spec(cap=cap))
    worker = Worker(store)
    found = worker.one()
    draw = AllowanceRequest(batch_id="batch_a", picousd=4 * WORST)
    worker.checkpoint(found.reserve(0, 1, 2, 3).change(), allowances=[draw])
    found.answer(0, 1, 2, 3, cost=0)
    found.tally.unpriced, found.tally.possible_picousd = 4, 4 * WORST
    worker.checkpoint(found.change(), spent={"batch_a": 4 * WORST})
    before = store.get_batch("batch_a")
    assert (before.tally.cost_picousd, before.budget_taken_picousd) == (0, 4 * WORST)
    assert store.reprice(change_of(store, 0, 0, 1, freed=2 * WORST), 5_000)
    after = store.get_batch("batch_a")
    assert (after.tally.possible_picousd, after.budget_taken_picousd) == (2 * WORST, 2 * MORE + 2 * WORST)
    assert store.reprice(change_of(store, 0, 2, 3, freed=99 * WORST), 5_000)
    after = store.get_batch("batch_a")
    assert (after.tally.possible_picousd, after.budget_taken_picousd) == (0, 4 * MORE), "no more than was charged"


def test_a_cap_that_came_later_was_never_charged(store: Store) -> None:
    """What stands as possible then is of doubts, and stays."""
    submit(store, "batch_a", [new_segment(0)])
    store.set_cap("batch_a", 1_000, soft=False)
    worker = Worker(store)
    found = worker.one()
    worker.checkpoint(found.reserve(0, 1, 2, 3).change())
    found.answer(0, 1, 2, 3)
    found.tally.possible_picousd = WORST
    worker.checkpoint(found.change())
    assert store.reprice(change_of(store, 0, 0, freed=WORST), 5_000)
    assert store.get_batch("batch_a").tally.possible_picousd == WORST


def test_a_repriced_batch_can_be_dropped(store: Store) -> None:
    settled(store)
    assert store.reprice(change_of(store, 0), 5_000)
    store.drop_batch("batch_a")
    assert store.find_batches() == []
    assert used(store).cost_picousd == 8 * COST + 4 * MORE


def test_rows_refused_at_intake_stand_beside_it(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0, refused=[1])])
    Worker(store).run()
    assert store.reprice(change_of(store, 0, 0, 2), 5_000)
    assert store.check("batch_a") == []
    (view,) = store.read_segments("batch_a")
    assert view.records[1] == Record(
        row=1, byte=row_map.KIND_BYTES[FailureKind.INVALID_ROW], attempts=0, used=0, message="no body"
    )
