"""The store's exam, rounds: retries by kind and flag, answers that are never lost, a crash in the middle."""

from __future__ import annotations

import pytest

from batchwright.core import row_map
from batchwright.core.batch_state import BatchState, Pause, PauseCause, derive
from batchwright.core.doubt import OnUncertain
from batchwright.core.errors import WrongState
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.row_map import FLAG_BYTES, PENDING
from batchwright.ports.store import Store
from batchwright.store import rounds
from support.store_drive import CANCELLED, COST, FAILED, OK, Worker, bodies, maps, new_segment, spec, submit

TRUNCATED = FLAG_BYTES[Flag.TRUNCATED]
WITHOUT_SUCCESS = row_map.FAILURE_BYTES


def run_mixed(store: Store) -> Worker:
    """batch_a: segment 0 has OK, FAILED, TRUNCATED, FAILED; segment 1 is all OK."""
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    first, second = worker.claim(limit=2)
    worker.checkpoint(first.reserve(0, 1, 2, 3).change(), second.reserve(0, 1, 2, 3).change())
    first.answer(0).answer(1, 3, byte=FAILED).answer(2, byte=TRUNCATED)
    worker.checkpoint(first.change(), second.answer(0, 1, 2, 3).change())
    return worker


def test_a_round_opens_the_chosen_rows_and_counts_on(store: Store) -> None:
    worker = run_mixed(store)
    reopened = store.reopen("batch_a", WITHOUT_SUCCESS, deadline_ms=9_000)
    assert (reopened.rows, reopened.segments, reopened.round) == (2, 1, 1)
    row = store.get_batch("batch_a")
    assert (row.round, row.deadline_ms, row.settled_at_ms, row.segments_open) == (1, 9_000, 0, 1)
    assert row.tally.counts == {OK: 5, TRUNCATED: 1}
    assert (row.tally.cost_picousd, row.tally.attempts) == (8 * COST, 8)
    assert maps(store, "batch_a")[0] == bytes([OK, PENDING, TRUNCATED, PENDING])

    found = worker.one()
    claimed = found.claimed
    assert claimed.round == 1
    assert claimed.previous_map == bytes([0, FAILED, 0, FAILED])
    assert set(claimed.previous_records) == {1, 3}
    assert claimed.records == {}
    assert worker.finish(found).settled == ["batch_a"]
    row = store.get_batch("batch_a")
    assert row.tally.counts == {OK: 7, TRUNCATED: 1}
    assert row.tally.cost_picousd == 10 * COST
    (view, _) = store.read_segments("batch_a")
    assert (view.records[1].attempts, view.records[1].used, view.records[1].cost_picousd) == (2, 1, 2 * COST)
    assert bodies(store, "batch_a")[1] == b"answer 1 of round 1"
    assert bodies(store, "batch_a")[0] == b"answer 0 of round 0"


def test_flags_are_the_only_way_back_from_a_success(store: Store) -> None:
    worker = run_mixed(store)
    assert store.reopen("batch_a", frozenset({TRUNCATED})).rows == 1
    assert maps(store, "batch_a")[0] == bytes([OK, FAILED, PENDING, FAILED])
    worker.run()
    assert maps(store, "batch_a")[0] == bytes([OK, FAILED, OK, FAILED])


def test_no_row_chosen_changes_nothing(store: Store) -> None:
    run_mixed(store)
    before = store.get_batch("batch_a")
    reopened = store.reopen("batch_a", frozenset({CANCELLED}))
    assert (reopened.rows, reopened.segments, reopened.round) == (0, 0, 0)
    assert store.get_batch("batch_a") == before


def test_only_ended_rows_of_an_ended_batch_are_opened(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    with pytest.raises(WrongState, match="has not ended"):
        store.reopen("batch_a", WITHOUT_SUCCESS)
    Worker(store).run()
    with pytest.raises(ValueError, match="only rows that have ended"):
        store.reopen("batch_a", frozenset({PENDING}))


def test_an_answer_is_never_replaced_by_a_failure(store: Store) -> None:
    worker = run_mixed(store)
    store.reopen("batch_a", frozenset({TRUNCATED}))
    worker.run(byte=FAILED)
    assert maps(store, "batch_a")[0] == bytes([OK, FAILED, TRUNCATED, FAILED])
    view = next(iter(store.read_segments("batch_a")))
    assert view.records[2].body == b"answer 2 of round 0"
    assert (view.records[2].attempts, view.records[2].cost_picousd) == (2, 2 * COST)


def test_a_round_that_is_closed_before_a_row_is_sent_restores_it(store: Store) -> None:
    worker = run_mixed(store)
    store.reopen("batch_a", WITHOUT_SUCCESS | {TRUNCATED})
    store.request_close("batch_a", FailureKind.CANCELLED, 6_000)
    store.close_step("batch_a", 6_000)
    row = store.get_batch("batch_a")
    assert row.facts.settled
    assert row.tally.counts == {OK: 5, TRUNCATED: 1, FAILED: 2}
    assert derive(row.facts, row.tally) is BatchState.PARTIAL
    assert maps(store, "batch_a")[0] == bytes([OK, FAILED, TRUNCATED, FAILED])
    assert bodies(store, "batch_a")[2] == b"answer 2 of round 0"
    assert worker.claim() == []


def test_a_note_of_a_closed_round_adds_its_cost_to_the_answer_that_stands(store: Store) -> None:
    worker = run_mixed(store)
    store.reopen("batch_a", frozenset({TRUNCATED}))
    found = worker.one()
    worker.checkpoint(found.reserve(2).change())
    worker.checkpoint(found.note(2, cost=3).change())
    store.request_close("batch_a", FailureKind.CANCELLED, 6_000)
    worker.checkpoint(found.change(closed_as=FailureKind.CANCELLED))

    def expect() -> None:
        view = next(iter(store.read_segments("batch_a")))
        assert view.row_map == bytes([OK, FAILED, TRUNCATED, FAILED])
        assert view.records[2].body == b"answer 2 of round 0"
        assert (view.records[2].attempts, view.records[2].cost_picousd) == (2, COST + 3)
        assert store.check("batch_a") == []

    expect()
    # Another round merges the segment's parts: the answer behind the note must come through that too.
    store.reopen("batch_a", frozenset({FAILED}))
    worker.run(byte=FAILED)
    expect()


def test_cancelled_rows_are_opened_by_the_next_round(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    store.request_close("batch_a", FailureKind.CANCELLED, 2_000)
    store.close_step("batch_a", 2_000)
    assert store.reopen("batch_a", WITHOUT_SUCCESS).rows == 8
    row = store.get_batch("batch_a")
    assert not row.facts.cancel_requested
    assert maps(store, "batch_a") == [bytes(4), bytes(4)]
    assert store.check("batch_a") == []
    Worker(store).run()
    assert store.get_batch("batch_a").tally.counts == {OK: 8}


def test_a_new_round_clears_what_stood_in_its_way(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], deadline_ms=5_000)
    store.pause_batch("batch_a", Pause(cause=PauseCause.GATE, reason="", since_ms=1))
    assert store.expire_due(5_000) == ["batch_a"]
    store.close_step("batch_a", 5_000)
    store.reopen("batch_a", WITHOUT_SUCCESS)
    row = store.get_batch("batch_a")
    assert (row.facts.expired, row.facts.paused, row.pauses, row.deadline_ms) == (False, False, (), 0)
    assert Worker(store).run() == 1


def test_doubt_in_a_later_round_gives_an_answer_back(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(policy=OnUncertain.FAIL))
    worker = Worker(store)
    worker.finish(worker.one(), byte=TRUNCATED)
    store.reopen("batch_a", frozenset({TRUNCATED}))
    lost = Worker(store, "lost")
    found = lost.one()
    lost.checkpoint(found.reserve(0, 1, 2, 3).change())
    lost.checkpoint(found.note(0, cost=3).change())
    store.mark_dead([lost.id])
    assert worker.claim() == []
    row = store.get_batch("batch_a")
    assert (row.facts.settled, row.tally.counts) == (True, {TRUNCATED: 4})
    assert bodies(store, "batch_a") == {row: b"answer %d of round 0" % row for row in range(4)}
    (view,) = store.read_segments("batch_a")
    assert [view.records[row].attempts for row in range(4)] == [3, 2, 2, 2]
    assert view.records[0].cost_picousd == COST + 3


def test_attempts_are_used_up_by_round(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(max_attempts=2))
    worker = Worker(store)
    worker.finish(worker.one(), byte=FAILED)
    store.reopen("batch_a", WITHOUT_SUCCESS)
    lost = Worker(store, "lost")
    found = lost.one()
    lost.checkpoint(found.reserve(0).change())
    store.mark_dead([lost.id])
    again = worker.one()
    assert again.claimed.row_map == bytes(4), "one attempt of two is used up in this round"
    assert again.claimed.records[0].attempts == 2


def test_deaths_are_counted_by_round(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])

    def lose(name: str) -> None:
        lost = Worker(store, name)
        found = lost.one()
        lost.checkpoint(found.reserve(2).change())
        store.mark_dead([lost.id])

    lose("first")
    lose("second")
    store.request_close("batch_a", FailureKind.CANCELLED, 4_000)
    store.close_step("batch_a", 4_000)
    store.reopen("batch_a", WITHOUT_SUCCESS)
    lose("third")
    assert Worker(store).one().claimed.row_map == bytes(4)


def test_a_crash_in_the_middle_of_a_reopening_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(store, "batch_a", [new_segment(number) for number in range(7)])
    worker = Worker(store)
    worker.run(byte=FAILED)
    monkeypatch.setattr(rounds, "STEP", 3)
    steps: list[tuple[object, ...]] = []
    whole = rounds._step

    def crash(*args: object) -> bool:
        if len(steps) == 2:
            raise KeyboardInterrupt
        steps.append(args)
        return whole(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(rounds, "_step", crash)
    with pytest.raises(KeyboardInterrupt):
        store.reopen("batch_a", WITHOUT_SUCCESS, deadline_ms=9_000)
    row = store.get_batch("batch_a")
    assert (row.facts.reopening, row.segments_open) == (True, 6)
    assert derive(row.facts, row.tally) is BatchState.ACCEPTING
    assert worker.claim() == []
    assert store.check("batch_a") == []

    monkeypatch.setattr(rounds, "_step", whole)
    reopened = store.reopen("batch_a", frozenset({OK}))
    assert (reopened.rows, reopened.segments, reopened.round) == (28, 7, 1)
    assert store.get_batch("batch_a").deadline_ms == 9_000
    assert worker.run() == 7


def test_cost_sums_over_three_rounds(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    for round_ in range(3):
        assert store.get_batch("batch_a").round == round_
        worker.run(byte=FAILED)
        assert store.get_batch("batch_a").tally.cost_picousd == 8 * COST * (round_ + 1)
        assert store.get_batch("batch_a").tally.counts == {FAILED: 8}
        assert store.check("batch_a") == []
        store.reopen("batch_a", WITHOUT_SUCCESS)


def test_a_round_counts_what_workers_ended_in_it(store: Store) -> None:
    worker = run_mixed(store)
    assert store.count_worked("batch_a") == {OK: 5, FAILED: 2, TRUNCATED: 1}
    store.reopen("batch_a", frozenset({TRUNCATED}))
    assert store.count_worked("batch_a") == {}, "rows that the round has left as they were are not its own"
    found = worker.one()
    worker.checkpoint(found.reserve(2).change())
    worker.checkpoint(found.answer(2).change())
    assert store.count_worked("batch_a") == {OK: 1}
    assert store.count_worked("batch_none") == {}
