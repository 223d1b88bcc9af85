"""The store's exam, closing: cancel, expiry and stop in steps, with and without live workers; pauses, lanes, caps."""

from __future__ import annotations

import pytest

from batchwright.core import row_map
from batchwright.core.batch_state import BatchState, Pause, PauseCause, derive
from batchwright.core.errors import NoSuchBatch, WrongState
from batchwright.core.failures import FailureKind
from batchwright.core.row_map import RESERVED
from batchwright.core.worker_id import WorkerId
from batchwright.ports.store import AllowanceRequest, LanePause, Release, Store
from support.store_drive import CANCELLED, OK, WORST, Worker, accept, maps, new_segment, spec, submit

EXPIRED = row_map.KIND_BYTES[FailureKind.EXPIRED]


def state(store: Store, batch_id: str = "batch_a") -> BatchState:
    row = store.get_batch(batch_id)
    return derive(row.facts, row.tally)


def test_the_first_reason_to_close_stands(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    assert store.request_close("batch_a", FailureKind.CANCELLED, 2_000)
    assert not store.request_close("batch_a", FailureKind.EXPIRED, 2_000)
    assert state(store) is BatchState.CANCELLING
    assert store.close_step("batch_a", 2_000) == 1
    assert state(store) is BatchState.CANCELLED
    with pytest.raises(WrongState, match="has ended"):
        store.request_close("batch_a", FailureKind.CANCELLED, 2_000)


def test_only_closing_kinds_close(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    with pytest.raises(ValueError, match="not closed as timeout"):
        store.request_close("batch_a", FailureKind.TIMEOUT, 2_000)


def test_nothing_is_closed_before_it_is_asked_for(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    assert store.close_step("batch_a", 2_000) == 0
    assert maps(store, "batch_a") == [bytes(4)]


def test_closing_goes_in_steps_and_leaves_live_workers_theirs(store: Store) -> None:
    submit(store, "batch_a", [new_segment(number) for number in range(6)])
    worker = Worker(store)
    held, parked = worker.claim(limit=2)
    worker.checkpoint(held.reserve(0, 1).change(), parked.change(release=Release.PARKED, not_before_ms=99_000))
    store.request_close("batch_a", FailureKind.CANCELLED, 3_000)
    assert [store.close_step("batch_a", 3_000, limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert store.get_batch("batch_a").segments_open == 1
    signal = worker.checkpoint(held.answer(0).change()).signals["batch_a"]
    assert signal.closing is FailureKind.CANCELLED

    result = worker.checkpoint(held.change(closed_as=FailureKind.CANCELLED), now_ms=4_000)
    assert result.settled == ["batch_a"]
    row = store.get_batch("batch_a")
    assert row.settled_at_ms == 4_000
    assert row.tally.counts == {OK: 1, CANCELLED: 23}
    views = list(store.read_segments("batch_a"))
    assert views[0].row_map == bytes([OK, CANCELLED, CANCELLED, CANCELLED])
    assert views[0].reserved[1] == RESERVED, "it may have been sent"
    assert worker.claim() == []


def test_a_worker_closes_with_the_answers_of_the_same_checkpoint(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    found = worker.one()
    worker.checkpoint(found.reserve(0, 1, 2).change())
    store.request_close("batch_a", FailureKind.STOPPED, 3_000)
    worker.checkpoint(found.answer(0, 1).change(closed_as=FailureKind.STOPPED))
    assert store.get_batch("batch_a").tally.counts == {OK: 2, row_map.KIND_BYTES[FailureKind.STOPPED]: 2}


def test_a_dead_workers_segment_is_closed_by_whoever_sweeps(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(cap=100))
    lost = Worker(store, "lost")
    found = lost.one()
    lost.checkpoint(found.reserve(0, 1).change(), allowances=[AllowanceRequest(batch_id="batch_a", picousd=60)])
    store.request_close("batch_a", FailureKind.CANCELLED, 3_000)
    assert store.close_step("batch_a", 3_000) == 0
    store.mark_dead([lost.id])
    assert store.close_step("batch_a", 3_000) == 1
    row = store.get_batch("batch_a")
    assert row.facts.settled
    assert row.tally.counts == {CANCELLED: 4}
    assert (row.tally.doubts, row.tally.possible_picousd, row.tally.allowance_picousd) == (2, 2 * WORST, 0)
    assert row.tally.attempts == 2, "what may have been sent counts as sent"
    assert lost.checkpoint(found.answer(0).change()).lost == {found.key}


def test_a_cancel_during_intake_closes_once_it_is_in(store: Store) -> None:
    accept(store, "batch_a", [new_segment(0)])
    store.request_close("batch_a", FailureKind.CANCELLED, 2_000)
    assert store.close_step("batch_a", 2_000) == 0
    store.close_intake("batch_a", 2_000)
    assert store.close_step("batch_a", 2_000) == 1
    assert state(store) is BatchState.CANCELLED


def test_deadlines_that_have_passed_are_found_and_await_closing(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], deadline_ms=5_000)
    submit(store, "batch_b", [new_segment(0)], deadline_ms=6_000)
    submit(store, "batch_c", [new_segment(0)])
    assert store.expire_due(4_999) == []
    assert store.expire_due(5_000) == ["batch_a"]
    assert store.expire_due(5_000) == ["batch_a"]
    store.request_close("batch_c", FailureKind.CANCELLED, 5_000)
    assert store.expire_due(5_000) == ["batch_a", "batch_c"]
    store.close_step("batch_a", 5_000)
    assert state(store) is BatchState.EXPIRED
    assert maps(store, "batch_a") == [bytes([EXPIRED] * 4)]
    assert store.expire_due(5_000) == ["batch_c"]


def test_a_paused_batch_keeps_its_deadline(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], deadline_ms=5_000)
    store.pause_batch("batch_a", Pause(cause=PauseCause.USER, reason="", since_ms=1))
    assert store.expire_due(5_000) == ["batch_a"]


# ------------------------------------------------------------------------------------------------------------ pauses


def pause(cause: PauseCause, reason: str = "why", lane: str = "") -> Pause:
    return Pause(cause=cause, reason=reason, since_ms=2_000, lane=lane)


def test_the_first_pause_of_a_cause_stands_until_it_is_cleared(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    store.pause_batch("batch_a", pause(PauseCause.USER, "first"))
    store.pause_batch("batch_a", pause(PauseCause.USER, "second"))
    store.pause_batch("batch_a", pause(PauseCause.BUDGET))
    assert {fact.cause: fact.reason for fact in store.get_batch("batch_a").pauses} == {
        PauseCause.USER: "first",
        PauseCause.BUDGET: "why",
    }
    store.resume_batch("batch_a", frozenset({PauseCause.USER, PauseCause.GATE}))
    assert state(store) is BatchState.PAUSED
    store.resume_batch("batch_a")
    store.resume_batch("batch_a")
    assert state(store) is BatchState.QUEUED
    assert len(Worker(store).claim()) == 1


@pytest.mark.parametrize("cause", [cause for cause in PauseCause if cause is not PauseCause.UNKNOWN])
def test_an_end_is_an_end_and_leaves_no_pause(store: Store, cause: PauseCause) -> None:
    submit(store, "batch_a", [new_segment(0)])
    store.pause_batch("batch_a", pause(cause))
    store.request_close("batch_a", FailureKind.CANCELLED, 3_000)
    store.close_step("batch_a", 3_000)
    assert state(store) is BatchState.CANCELLED
    assert store.get_batch("batch_a").pauses == ()
    assert store.batch_pauses(10) == []


def test_pauses_of_unknown_and_settled_batches_are_refused(store: Store) -> None:
    submit(store, "batch_a", [])
    with pytest.raises(WrongState, match="has ended, it cannot be paused"):
        store.pause_batch("batch_a", pause(PauseCause.USER))
    with pytest.raises(NoSuchBatch):
        store.pause_batch("batch_b", pause(PauseCause.USER))
    with pytest.raises(NoSuchBatch):
        store.resume_batch("batch_b")


def test_a_worker_pauses_a_batch_only_while_it_has_open_rows(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    found = worker.one()
    worker.checkpoint(found.reserve(0, 1, 2, 3).change(), pauses=[("batch_a", pause(PauseCause.GATE))])
    assert state(store) is BatchState.PAUSED
    store.resume_batch("batch_a")
    last = worker.one()
    worker.checkpoint(found.answer(0, 1, 2, 3).change(), last.reserve(0, 1, 2, 3).change())
    worker.checkpoint(last.answer(0, 1, 2, 3).change(), pauses=[("batch_a", pause(PauseCause.GATE))])
    assert store.get_batch("batch_a").pauses == ()
    assert state(store) is BatchState.COMPLETED


def test_a_lane_that_is_cleared_clears_the_batches_that_name_it(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    submit(store, "batch_b", [new_segment(0)])
    store.pause_lane(LanePause(lane="one", reason="401", since_ms=2_000, probe_at_ms=3_000))
    store.pause_lane(LanePause(lane="one", reason="401", since_ms=2_000, probe_at_ms=9_000))
    store.pause_lane(LanePause(lane="two", reason="402", since_ms=2_000, probe_at_ms=3_000))
    store.pause_batch("batch_a", pause(PauseCause.LANE, lane="one"))
    store.pause_batch("batch_a", pause(PauseCause.USER))
    store.pause_batch("batch_b", pause(PauseCause.LANE, lane="two"))
    assert [(fact.lane, fact.probe_at_ms) for fact in store.lane_pauses()] == [("one", 9_000), ("two", 3_000)]
    store.clear_lane("one")
    assert [fact.lane for fact in store.lane_pauses()] == ["two"]
    assert [fact.cause for fact in store.get_batch("batch_a").pauses] == [PauseCause.USER]
    assert state(store, "batch_b") is BatchState.PAUSED
    store.clear_lane("two")
    assert state(store, "batch_b") is BatchState.QUEUED


def test_batches_of_a_lane_are_released_for_a_probe_while_its_pause_stands(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    store.pause_lane(LanePause(lane="one", reason="401", since_ms=2_000, probe_at_ms=3_000))
    store.pause_batch("batch_a", pause(PauseCause.LANE, lane="one"))
    store.release_lane("one")
    assert state(store) is BatchState.QUEUED
    assert [fact.lane for fact in store.lane_pauses()] == ["one"]


def test_a_higher_cap_ends_a_budget_pause_if_it_leaves_room(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(cap=40))
    worker = Worker(store)
    worker.checkpoint(allowances=[AllowanceRequest(batch_id="batch_a", picousd=40)])
    store.pause_batch("batch_a", pause(PauseCause.BUDGET))
    store.set_cap("batch_a", 40, soft=False)
    assert state(store) is BatchState.PAUSED
    store.set_cap("batch_a", 41, soft=True)
    row = store.get_batch("batch_a")
    assert (row.spec.max_cost_picousd, row.spec.soft_cap, row.pauses) == (41, True, ())
    given = worker.checkpoint(allowances=[AllowanceRequest(batch_id="batch_a", picousd=40)]).allowances
    assert given == {"batch_a": 1}
    worker.run()
    with pytest.raises(WrongState):
        store.set_cap("batch_a", 99, soft=False)


def test_a_named_lease_has_one_owner_at_a_time(store: Store) -> None:
    one, two = WorkerId("one", "1"), WorkerId("two", "1")
    assert store.take_lease("sweeper", one, 1_000, 500)
    assert store.take_lease("sweeper", one, 1_200, 500)
    assert not store.take_lease("sweeper", two, 1_699, 500)
    assert store.take_lease("another", two, 1_699, 500)
    assert store.take_lease("sweeper", two, 1_700, 500)
    assert not store.take_lease("sweeper", one, 1_701, 500)
