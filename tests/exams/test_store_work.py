"""The store's exam, work: claims, the fence, checkpoints, settling, parking."""

from __future__ import annotations

import pytest

from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.errors import StoreError, WrongState
from batchwright.core.failures import FailureKind
from batchwright.core.records import UsageSum
from batchwright.core.worker_id import WorkerId
from batchwright.ports.store import Checkpoint, ClaimRequest, Release, SegmentKey, Store
from support.store_drive import COST, FAILED, OK, Held, Worker, bodies, maps, new_segment, spec, submit


def numbers(found: list[Held]) -> list[tuple[str, int]]:
    return [(one.key.batch_id, one.key.number) for one in found]


# ------------------------------------------------------------------------------------------------------------ claims


def test_a_claim_gives_the_segment_as_it_stands(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0, refused=[1])])
    worker = Worker(store)
    (found,) = worker.claim()
    claimed = found.claimed
    assert claimed.key == SegmentKey("batch_a", 0)
    assert (claimed.epoch, claimed.round, claimed.first_index) == (1, 0, 0)
    assert claimed.row_map == new_segment(0, refused=[1]).row_map
    assert claimed.previous_map is None
    assert claimed.previous_records == {}
    assert set(claimed.records) == {1}
    assert [row.line for row in claimed.input.rows] == [1, 2, 3, 4]
    assert claimed.input_bytes == len(new_segment(0, refused=[1]).input)
    assert (claimed.first, claimed.window, claimed.lane_set) == ((), 0, "openai|KEY|m")
    assert worker.claim() == []


def test_batches_take_turns_and_the_oldest_segment_comes_first(store: Store) -> None:
    submit(store, "batch_b", [new_segment(number) for number in range(3)])
    submit(store, "batch_a", [new_segment(number) for number in range(3)])
    worker = Worker(store)
    assert numbers(worker.claim(limit=3)) == [("batch_b", 0), ("batch_a", 0), ("batch_b", 1)]
    assert numbers(worker.claim(limit=1)) == [("batch_a", 1)]
    assert numbers(worker.claim(limit=9)) == [("batch_b", 2), ("batch_a", 2)]


def test_a_claim_can_name_its_batch(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    submit(store, "batch_b", [new_segment(0), new_segment(1)])
    assert numbers(Worker(store).claim(limit=9, batch_id="batch_b")) == [("batch_b", 0), ("batch_b", 1)]


def test_a_segment_lost_with_its_worker_comes_before_all_others(store: Store) -> None:
    submit(store, "batch_a", [new_segment(number) for number in range(4)])
    lost = Worker(store, "lost")
    assert numbers(lost.claim(limit=3)) == [("batch_a", 0), ("batch_a", 1), ("batch_a", 2)]
    other = Worker(store, "other")
    given = other.one()
    assert store.mark_dead([lost.id]) == 3
    other.checkpoint(given.change(release=Release.WAITING))
    found = other.claim(limit=9)
    assert numbers(found) == [("batch_a", number) for number in (0, 1, 2, 3)]
    # Once it was claimed, it is a segment like any other.
    other.checkpoint(*[found[number].change(release=Release.WAITING) for number in (0, 2, 3)])
    assert numbers(other.claim()) == [("batch_a", 0)]
    lost = Worker(store, "lost again")
    lost.one()
    other.checkpoint(found[1].change(release=Release.WAITING))
    store.mark_dead([lost.id])
    assert numbers(other.claim(limit=9)) == [("batch_a", number) for number in (2, 1, 3)]


def test_excluded_lane_sets_are_left_alone(store: Store) -> None:
    lanes = ["a", "a\nb", "b", "a"]
    submit(store, "batch_a", [new_segment(number, lanes=lanes[number]) for number in range(4)])
    submit(store, "batch_b", [new_segment(0, lanes="a")])
    worker = Worker(store)
    found = worker.claim(limit=9, exclude=frozenset({("batch_a", "a"), ("batch_a", "a\nb")}))
    assert numbers(found) == [("batch_a", 2), ("batch_b", 0)]
    assert numbers(worker.claim(limit=9)) == [("batch_a", 0), ("batch_a", 1), ("batch_a", 3)]


def test_segments_for_full_lanes_alone_are_left_alone(store: Store) -> None:
    lanes = ["a", "a\nb", "b", "c"]
    submit(store, "batch_a", [new_segment(number, lanes=lanes[number]) for number in range(4)])
    submit(store, "batch_b", [new_segment(0, lanes="b")])
    worker = Worker(store)
    full = frozenset({"a", "b"})
    assert worker.claim(limit=9, batch_id="batch_b", full_lanes=full) == []
    assert numbers(worker.claim(limit=9, full_lanes=full)) == [("batch_a", 3)]
    assert numbers(worker.claim(limit=9, full_lanes=frozenset({"a"}))) == [
        ("batch_b", 0),
        ("batch_a", 1),
        ("batch_a", 2),
    ]


def test_claiming_stops_at_its_bytes_but_always_gives_one(store: Store) -> None:
    submit(store, "batch_a", [new_segment(number, padding=1_000) for number in range(4)])
    size = len(new_segment(0, padding=1_000).input)
    worker = Worker(store)
    assert len(worker.claim(limit=9, max_bytes=10)) == 1
    assert len(worker.claim(limit=9, max_bytes=2 * size)) == 2


def test_batches_that_stand_still_are_not_claimed(store: Store) -> None:
    for name in ("paused", "cancelled", "open"):
        submit(store, f"batch_{name}", [new_segment(0)])
    store.pause_batch("batch_paused", Pause(cause=PauseCause.USER, reason="", since_ms=1))
    store.request_close("batch_cancelled", FailureKind.CANCELLED, 1)
    assert numbers(Worker(store).claim(limit=9)) == [("batch_open", 0)]


# --------------------------------------------------------------------------------------------------------- the fence


def test_rows_end_and_the_batch_settles(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    assert worker.finish(worker.one()).settled == []
    second = worker.one()
    assert worker.finish(second, byte=FAILED, now_ms=9_000).settled == ["batch_a"]
    row = store.get_batch("batch_a")
    assert row.facts.settled
    assert row.settled_at_ms == 9_000
    assert row.tally.counts == {OK: 4, FAILED: 4}
    assert (row.tally.attempts, row.tally.cost_picousd) == (8, 8 * COST)
    assert maps(store, "batch_a") == [bytes([OK] * 4), bytes([FAILED] * 4)]
    assert bodies(store, "batch_a") == {row: b"answer %d of round 0" % row for row in range(4)}
    (line,) = store.read_usage()
    assert line.sum == UsageSum(answers=8, cost_picousd=8 * COST)


def test_a_stale_epoch_writes_nothing_but_orphan_spend(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    old, new = Worker(store, "old"), Worker(store, "new")
    stale = old.one()
    old.checkpoint(stale.reserve(0, 1).change())
    store.mark_dead([old.id])
    before = maps(store, "batch_a")
    result = old.checkpoint(stale.answer(0).change())
    assert result.lost == {SegmentKey("batch_a", 0)}
    assert maps(store, "batch_a") == before
    row = store.get_batch("batch_a")
    assert (row.tally.counts, row.tally.cost_picousd) == ({}, 0)
    assert (row.tally.orphan_picousd, row.tally.orphans) == (COST, 1)
    assert store.read_usage() == []

    fresh = new.one()
    assert fresh.claimed.epoch > stale.claimed.epoch
    assert old.checkpoint(stale.answer(1).change()).lost == {SegmentKey("batch_a", 0)}
    new.finish(fresh)
    assert store.get_batch("batch_a").tally.cost_picousd == 4 * COST


def test_of_two_segments_the_lost_one_alone_is_left_out(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    worker, other = Worker(store), Worker(store, "other")
    first, second = worker.claim(limit=2)
    worker.checkpoint(first.reserve(0).change(), second.reserve(0).change(release=Release.WAITING))
    assert other.one().key == second.key
    result = worker.checkpoint(first.answer(0).change(), second.answer(0).change())
    assert result.lost == {second.key}
    tally = store.get_batch("batch_a").tally
    assert (tally.counts, tally.cost_picousd, tally.orphan_picousd) == ({OK: 1}, COST, COST)


def test_a_segment_given_back_or_settled_is_no_longer_its_holders(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    given, done = worker.claim(limit=2)
    worker.checkpoint(given.change(release=Release.WAITING))
    worker.finish(done)
    assert worker.checkpoint(given.reserve(0).change(), done.change()).lost == {given.key, done.key}
    assert maps(store, "batch_a") == [bytes(4), bytes([OK] * 4)]


def test_a_holder_that_claimed_its_segment_anew_cannot_write_under_the_old_epoch(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    before = worker.one()
    worker.checkpoint(before.change(release=Release.WAITING))
    now = worker.one()
    worker.checkpoint(now.reserve(0).change())
    assert worker.checkpoint(before.change()).lost == {before.key}
    assert maps(store, "batch_a") == [bytes(now.row_map)]


def test_a_batch_settles_once_whoever_ends_its_last_rows(store: Store) -> None:
    submit(store, "batch_a", [new_segment(number) for number in range(6)])
    workers = [Worker(store, "one"), Worker(store, "two")]
    settled: list[str] = []
    for turn in range(6):
        worker = workers[turn % 2]
        settled += worker.finish(worker.one()).settled
    assert settled == ["batch_a"]


def test_a_checkpoint_whose_reply_was_lost_is_found_by_its_number(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    found = worker.one()
    assert store.checkpoint_number(worker.id) == 1
    worker.checkpoint(found.reserve(0).change())
    made = Checkpoint(worker=worker.id, number=3, now_ms=2_000, segments=[found.answer(0).change()])
    store.checkpoint(made)
    assert store.checkpoint_number(worker.id) == 3
    with pytest.raises(WrongState, match="3 was the last that landed"):
        store.checkpoint(made)
    assert store.get_batch("batch_a").tally.cost_picousd == COST


def test_a_worker_must_be_registered(store: Store) -> None:
    nobody = WorkerId("nobody", "1")
    with pytest.raises(StoreError, match="nobody/1 is not registered"):
        store.checkpoint(Checkpoint(worker=nobody, number=1, now_ms=1))
    with pytest.raises(StoreError, match="not registered"):
        store.checkpoint_number(nobody)


def test_a_worker_that_was_marked_dead_gets_nothing_more(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    store.mark_dead([worker.id])
    assert worker.claim() == []
    assert not store.heartbeat(worker.id, 3_000)


def test_of_two_records_of_a_row_the_later_stands(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    found = worker.one()
    worker.checkpoint(found.reserve(0, 1, 2, 3).change())
    worker.checkpoint(found.note(0, cost=3).change())
    worker.checkpoint(found.note(0).change())
    (view,) = store.read_segments("batch_a")
    assert (view.records[0].attempts, view.records[0].cost_picousd) == (2, 3)
    worker.checkpoint(found.answer(0, 1, 2, 3).change())
    (view,) = store.read_segments("batch_a")
    assert (view.records[0].attempts, view.records[0].cost_picousd) == (3, 3 + COST)
    assert store.get_batch("batch_a").tally.cost_picousd == 3 + 4 * COST


def test_signals_tell_what_a_holder_must_know(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], deadline_ms=99_000)
    worker = Worker(store)
    found = worker.one()
    signal = worker.checkpoint(found.change()).signals["batch_a"]
    assert (signal.closing, signal.paused, signal.deadline_ms, signal.settled) == (None, False, 99_000, False)
    store.request_close("batch_a", FailureKind.STOPPED, 2_000)
    store.pause_batch("batch_a", Pause(cause=PauseCause.USER, reason="", since_ms=1))
    signal = worker.checkpoint(found.change()).signals["batch_a"]
    assert (signal.closing, signal.paused) == (FailureKind.STOPPED, True)
    assert worker.finish(found).signals["batch_a"].settled


def test_the_gate_is_passed_for_the_round(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    assert not store.get_batch("batch_a").gate_passed
    worker.checkpoint(gate_passed=["batch_a"])
    assert store.get_batch("batch_a").gate_passed
    worker.run()
    store.reopen("batch_a", frozenset({OK}))
    assert not store.get_batch("batch_a").gate_passed


# ---------------------------------------------------------------------------------------------------------- releases


def test_a_parked_segment_waits_for_its_moment(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    found = worker.one()
    worker.checkpoint(found.change(release=Release.PARKED, not_before_ms=5_000))
    assert worker.claim(now_ms=4_999) == []
    assert numbers(worker.claim(now_ms=5_000)) == [("batch_a", 0)]


def test_a_release_can_narrow_the_lanes_until_the_next_round(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0, lanes="a\nb")])
    worker = Worker(store)
    found = worker.one()
    worker.checkpoint(found.change(release=Release.WAITING, lanes="b"))
    assert store.open_lane_sets("batch_a") == {"b"}
    assert worker.claim(exclude=frozenset({("batch_a", "b")})) == []
    worker.run()
    assert store.open_lane_sets("batch_a") == frozenset()
    store.reopen("batch_a", frozenset({OK}))
    assert store.open_lane_sets("batch_a") == {"a\nb"}
    assert worker.one().claimed.lane_set == "a\nb"


def test_a_claim_rides_on_the_checkpoint_that_settles_another_segment(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0), new_segment(1)], spec())
    worker = Worker(store)
    found = worker.one()
    worker.checkpoint(found.reserve(0, 1, 2, 3).change())
    result = worker.checkpoint(found.answer(0, 1, 2, 3).change(), claim=ClaimRequest(limit=1))
    assert [claimed.key.number for claimed in result.claimed] == [1]
    assert result.settled == []
