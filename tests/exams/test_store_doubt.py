"""The store's exam, lost leases: heartbeats, deaths, rows in doubt, budgets that were drawn."""

from __future__ import annotations

import msgspec

from batchwright.core import row_map
from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.doubt import POISON_DEATHS, OnUncertain
from batchwright.core.failures import FailureKind
from batchwright.core.lane_wait import LaneWait, WaitCause
from batchwright.core.row_map import PENDING, RESERVED
from batchwright.core.worker_id import WorkerId
from batchwright.ports.store import AllowanceRequest, Release, SegmentKey, Store
from support.store_drive import (
    COST,
    IN_DOUBT,
    LANE,
    OK,
    WORST,
    Held,
    Worker,
    maps,
    new_segment,
    spec,
    submit,
)

WORKER_LOST = row_map.KIND_BYTES[FailureKind.WORKER_LOST]


def lose(store: Store, name: str, *rows: int) -> Held:
    """A worker claims, reserves these rows and dies."""
    worker = Worker(store, name)
    found = worker.one()
    worker.checkpoint(found.reserve(*rows).change())
    assert store.mark_dead([worker.id]) == 1
    return found


def test_heartbeats_renew_until_the_worker_is_marked_dead(store: Store) -> None:
    worker = Worker(store, now_ms=1_000)
    assert store.heartbeat(worker.id, 2_000, note="KEY is not set")
    (row,) = store.live_workers()
    assert (row.worker, row.host, row.pid) == (worker.id, "here", 7)
    assert (row.started_at_ms, row.heartbeat_ms, row.note) == (1_000, 2_000, "KEY is not set")
    assert store.mark_dead([worker.id]) == 0
    assert not store.heartbeat(worker.id, 3_000)
    assert not store.heartbeat(WorkerId("nobody", "1"), 3_000)
    assert store.live_workers() == []


def test_rows_at_a_service_that_knows_its_submits_are_in_no_doubt(store: Store) -> None:
    for policy in OnUncertain:
        of_service = msgspec.structs.replace(
            spec(policy=policy, max_attempts=1),
            destinations=(
                Destination(vendor="openai", base_url="https://there.test", protocol=VendorProtocol.SERVICE),
            ),
        )
        batch_id = f"batch_{policy.value}"
        submit(store, batch_id, [new_segment(0)], of_service)
        for death in range(1, POISON_DEATHS):
            lose(store, f"w{death}-{policy.value}", 0, 2)
        taker = Worker(store, policy.value)
        claimed = taker.one().claimed
        assert claimed.row_map == bytes([PENDING] * 4)
        assert claimed.first == (0, 2)
        tally = store.get_batch(batch_id).tally
        assert (tally.attempts, tally.doubts, tally.possible_picousd, tally.counts) == (0, 0, 0, {})
        assert store.check(batch_id) == []
        store.end_worker(taker.id)
        Worker(store, f"last-{policy.value}").run()


def test_a_row_that_kills_its_workers_ends_at_a_service_too(store: Store) -> None:
    of_service = msgspec.structs.replace(
        spec(),
        destinations=(Destination(vendor="openai", base_url="https://there.test", protocol=VendorProtocol.SERVICE),),
    )
    submit(store, "batch_a", [new_segment(0)], of_service)
    for death in range(POISON_DEATHS):
        lose(store, f"w{death}", 0)
    assert Worker(store, "taker").one().claimed.row_map[0] == WORKER_LOST
    tally = store.get_batch("batch_a").tally
    assert (tally.attempts, tally.doubts) == (1, 1), "it may have been paid for, and its answer is not asked for again"
    assert store.check("batch_a") == []


def test_what_lanes_wait_for_is_read_with_the_batches_of_those_lanes_while_the_worker_lives(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    first, second = Worker(store, "first"), Worker(store, "second")
    busy = LaneWait(f"{LANE}#00000000", WaitCause.OUTAGE, "HTTP 503", 2_000, 5_000)
    other = LaneWait("openai|KEY|another#00000000", WaitCause.RATE_LIMIT, "", 1_000, 9_000)
    longer = LaneWait(f"{LANE}#00000000", WaitCause.OUTAGE, "HTTP 503", 1_500, 0)
    assert store.heartbeat(first.id, 2_000, waits=[busy, other])
    assert store.heartbeat(second.id, 2_000, waits=[longer])
    assert store.get_batch("batch_a").waits == (longer, busy)
    assert [batch.waits for batch in store.find_batches()] == [(longer, busy)]
    assert store.backlog().waits == (other, longer, busy)
    assert {row.worker.name: row.waits for row in store.live_workers()} == {
        "first": (busy, other),
        "second": (longer,),
    }
    store.mark_dead([first.id])
    assert store.get_batch("batch_a").waits == (longer,)
    assert store.heartbeat(second.id, 3_000), "and says nothing of waits any more"
    assert store.get_batch("batch_a").waits == ()
    assert store.heartbeat(second.id, 3_000, waits=[longer])
    second.run()
    assert store.get_batch("batch_a").waits == (), "it has ended"
    store.end_worker(second.id)
    assert store.backlog().waits == ()


def test_a_new_incarnation_takes_over_from_the_older(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    old = Worker(store, "w", "1")
    stale = old.one()
    new = Worker(store, "w", "2")
    assert not store.heartbeat(old.id, 2_000)
    assert [row.worker for row in store.live_workers()] == [new.id]
    assert old.checkpoint(stale.reserve(0).change()).lost == {SegmentKey("batch_a", 0)}
    assert new.one().claimed.row_map == bytes(4)


def test_registering_again_changes_nothing(store: Store) -> None:
    worker = Worker(store)
    worker.checkpoint()
    store.register_worker(worker.id, host="here", pid=7, now_ms=9_000)
    assert store.checkpoint_number(worker.id) == 1


def test_rows_in_doubt_are_noted_once_and_go_first(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0, 8)])
    lose(store, "lost", 1, 2, 3, 5)
    worker = Worker(store)
    found = worker.one()
    claimed = found.claimed
    assert claimed.row_map == bytes([PENDING] * 8)
    assert claimed.first == (1, 2, 3, 5)
    assert claimed.window == 2
    assert (claimed.resolved.doubts, claimed.resolved.attempts) == (4, 4)
    assert claimed.resolved.possible_picousd == 0
    assert {row: (note.byte, note.attempts, note.doubts) for row, note in claimed.records.items()} == {
        row: (PENDING, 1, 1) for row in (1, 2, 3, 5)
    }
    assert store.get_batch("batch_a").tally.doubts == 4
    worker.finish(found)
    tally = store.get_batch("batch_a").tally
    assert (tally.doubts, tally.attempts, tally.counts) == (4, 12, {OK: 8})


def test_a_window_stands_until_an_outcome_is_checkpointed(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0, 8)])
    lose(store, "lost", 1, 2, 3, 5)
    worker = Worker(store)
    found = worker.one()
    worker.checkpoint(found.change(release=Release.WAITING))
    again = worker.one()
    assert (again.claimed.window, again.claimed.first) == (2, (1, 2, 3, 5))
    worker.checkpoint(again.reserve(1).change())
    worker.checkpoint(again.answer(1).change(release=Release.WAITING))
    last = worker.one()
    assert (last.claimed.window, last.claimed.first) == (0, (2, 3, 5)), "what was out at a death still goes first"


def test_the_only_row_out_at_a_third_death_ends_as_worker_lost(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    lose(store, "first", 2)
    lose(store, "second", 2)
    lose(store, "third", 2)
    worker = Worker(store)
    found = worker.one()
    assert found.claimed.row_map == bytes([PENDING, PENDING, WORKER_LOST, PENDING])
    assert found.claimed.records[2].attempts == 3
    worker.finish(found)
    assert store.get_batch("batch_a").tally.counts == {OK: 3, WORKER_LOST: 1}


def test_a_row_with_others_out_beside_it_is_not_blamed(store: Store) -> None:
    """It is the only one of its segment at each death; the worker had a row of another segment out as well."""
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    for name in ("first", "second", "third", "fourth", "fifth", "sixth"):
        lost = Worker(store, name)
        one, two = lost.claim(limit=2)
        lost.checkpoint(one.reserve(2).change(), two.reserve(0).change())
        store.mark_dead([lost.id])
    one, two = Worker(store).claim(limit=2)
    assert (one.claimed.row_map, two.claimed.row_map) == (bytes(4), bytes(4))
    assert (one.claimed.suspects, two.claimed.suspects) == ((2,), (0,))
    record = one.claimed.records[2]
    assert (record.deaths, record.alone) == (6, 0)
    assert (record.attempts, record.used, record.doubts) == (6, 0, 6), "deaths in company use up no attempt"


def test_a_row_that_was_out_at_five_deaths_is_a_suspect_until_it_ends(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0, 8)])
    for name in ("first", "second", "third", "fourth"):
        lose(store, name, 0, 1)
    worker = Worker(store, "fifth")
    found = worker.one()
    assert (found.claimed.first, found.claimed.suspects) == ((0, 1), ())
    worker.checkpoint(found.reserve(0, 1, 2, 3).change())
    worker.checkpoint(found.answer(0).change())
    store.mark_dead([worker.id])
    worker = Worker(store, "sixth")
    found = worker.one()
    assert (found.claimed.first, found.claimed.suspects) == ((1, 2, 3), (1,)), "an outcome of another row clears nobody"
    worker.checkpoint(found.reserve(1).change())
    worker.checkpoint(found.answer(1).change(release=Release.WAITING))
    assert Worker(store, "seventh").one().claimed.suspects == ()


def test_a_row_that_was_out_alone_at_a_death_stays_a_suspect_whatever_the_others_do(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    lose(store, "first", 2)
    worker = Worker(store, "second")
    found = worker.one()
    worker.checkpoint(found.reserve(0).change())
    worker.checkpoint(found.answer(0).change())
    worker.checkpoint(found.reserve(1, 2).change())
    store.mark_dead([worker.id])
    found = (worker := Worker(store, "third")).one()
    assert (found.claimed.first, found.claimed.suspects) == ((1, 2), (2,))
    worker.checkpoint(found.change(release=Release.WAITING))
    assert Worker(store, "fourth").one().claimed.suspects == (2,)


def test_where_one_attempt_is_allowed_a_death_uses_it_up(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(max_attempts=1))
    lose(store, "first", 0, 1)
    assert Worker(store).one().claimed.row_map == bytes([IN_DOUBT, IN_DOUBT, PENDING, PENDING])


def test_giving_back_is_no_death(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    for name in ("first", "second", "third"):
        worker = Worker(store, name)
        found = worker.one()
        worker.checkpoint(found.reserve(2).change())
        store.end_worker(worker.id)
    last = Worker(store)
    found = last.one()
    assert found.claimed.row_map == bytes(4)
    assert (found.claimed.first, found.claimed.window) == ((2,), 0)
    assert found.claimed.records[2].doubts == 3
    assert [row.worker for row in store.live_workers()] == [last.id]


def test_under_fail_a_row_in_doubt_ends(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0), new_segment(1)], spec(policy=OnUncertain.FAIL))
    lost = Worker(store, "lost")
    first, second = lost.claim(limit=2)
    lost.checkpoint(first.reserve(0, 1, 2, 3).change(), second.reserve(0).change())
    store.mark_dead([lost.id])
    worker = Worker(store)
    (found,) = worker.claim(limit=9)
    assert found.key == second.key, "the first ended with its doubt: it settles and is not given out"
    assert found.claimed.row_map == bytes([IN_DOUBT, PENDING, PENDING, PENDING])
    assert store.get_batch("batch_a").segments_open == 1
    assert worker.finish(found).settled == ["batch_a"]
    assert store.get_batch("batch_a").tally.counts == {IN_DOUBT: 5, OK: 3}


def test_doubt_alone_can_settle_a_batch(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(policy=OnUncertain.FAIL))
    lose(store, "lost", 0, 1, 2, 3)
    worker = Worker(store)
    assert worker.claim(now_ms=7_000) == []
    row = store.get_batch("batch_a")
    assert (row.facts.settled, row.settled_at_ms) == (True, 7_000)
    (view,) = store.read_segments("batch_a")
    assert view.records[3].code == "in_doubt"


def test_a_row_whose_attempts_are_used_up_ends_in_doubt(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(max_attempts=2))
    lose(store, "first", 1, 2)
    lose(store, "second", 1)
    assert Worker(store, "third").one().claimed.row_map == bytes(4), "the first death had another row out as well"
    store.mark_dead([Worker(store, "third").id])
    lose(store, "fourth", 1)
    assert Worker(store).one().claimed.row_map == bytes([PENDING, IN_DOUBT, PENDING, PENDING])


def test_a_dead_workers_answers_count_and_only_the_rest_is_in_doubt(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    lost = Worker(store, "lost")
    found = lost.one()
    lost.checkpoint(found.reserve(0, 1).change())
    lost.checkpoint(found.answer(0).change())
    store.mark_dead([lost.id])
    assert maps(store, "batch_a") == [bytes([OK, RESERVED, PENDING, PENDING])]
    worker = Worker(store)
    worker.finish(worker.one())
    tally = store.get_batch("batch_a").tally
    assert (tally.counts, tally.cost_picousd, tally.doubts) == ({OK: 4}, 4 * COST, 1)


# ------------------------------------------------------------------------------------------------------------ budget


def draw(worker: Worker, picousd: int, minimum: int = 0) -> int:
    request = AllowanceRequest(batch_id="batch_a", picousd=picousd, minimum_picousd=minimum)
    return worker.checkpoint(allowances=[request]).allowances["batch_a"]


def taken(store: Store) -> int:
    return store.get_batch("batch_a").budget_taken_picousd


def test_allowances_never_pass_what_the_cap_leaves(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(cap=100))
    one, two = Worker(store, "one"), Worker(store, "two")
    assert draw(one, 70) == 70
    assert draw(two, 70, minimum=40) == 0
    assert draw(two, 70) == 30
    assert draw(one, 1) == 0
    assert (taken(store), store.get_batch("batch_a").tally.allowance_picousd) == (100, 100)
    assert draw(one, -50) == 0
    assert taken(store) == 50
    assert draw(two, 60) == 50


def test_what_was_spent_leaves_the_allowance_as_its_cost_comes_in(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(cap=100))
    worker = Worker(store)
    found = worker.one()
    assert draw(worker, 4 * WORST) == 4 * WORST
    worker.checkpoint(found.reserve(0, 1).change())
    worker.checkpoint(found.answer(0, 1).change(), spent={"batch_a": 2 * WORST})
    assert taken(store) == 2 * COST + 2 * WORST


def test_a_dead_workers_allowance_pays_for_its_doubt_and_the_rest_returns(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0), new_segment(1)], spec(cap=200))
    lost = Worker(store, "lost")
    first, second = lost.claim(limit=2)
    assert draw(lost, 100) == 100
    lost.checkpoint(first.reserve(0, 1).change(), second.reserve(0).change())
    store.mark_dead([lost.id])
    assert taken(store) == 100, "nothing is given back before the doubt is dealt with"

    worker = Worker(store)
    found = worker.one()
    assert found.claimed.resolved.possible_picousd == 2 * WORST
    assert taken(store) == 100, "what became possible cost left the allowance"
    worker.one()
    assert taken(store) == 3 * WORST, "its last segment has gone to another: the rest is free"


def test_what_a_gone_worker_says_of_its_allowance_is_not_heard(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(cap=100))
    lost = Worker(store, "lost")
    found = lost.one()
    draw(lost, 2 * WORST)
    lost.checkpoint(found.reserve(0, 1).change())
    store.mark_dead([lost.id])
    lost.checkpoint(found.answer(0).change(), spent={"batch_a": WORST})
    draw(lost, -WORST)
    assert draw(lost, WORST) == 0
    assert taken(store) == 2 * WORST, "both rows are in doubt until another claims them"
    Worker(store).one()
    tally = store.get_batch("batch_a").tally
    assert (tally.possible_picousd, tally.allowance_picousd) == (2 * WORST - COST, 0)
    assert taken(store) == 2 * WORST, "what is known as orphan spend is not possible as well"


def test_an_orphan_that_comes_after_the_doubt_was_charged_is_counted_once(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(cap=100))
    lost = Worker(store, "lost")
    found = lost.one()
    draw(lost, WORST)
    lost.checkpoint(found.reserve(0).change())
    store.mark_dead([lost.id])
    Worker(store).one()
    lost.checkpoint(found.answer(0).change())
    tally = store.get_batch("batch_a").tally
    assert (tally.possible_picousd, tally.orphan_picousd) == (WORST - COST, COST)
    assert taken(store) == WORST


def test_an_allowance_never_falls_below_nothing(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(cap=100))
    worker = Worker(store)
    draw(worker, 5)
    worker.checkpoint(spent={"batch_a": 9})
    assert taken(store) == 0


def test_a_gone_worker_that_holds_nothing_keeps_no_allowance(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(cap=100))
    dead, ended = Worker(store, "dead"), Worker(store, "ended")
    draw(dead, 30)
    draw(ended, 30)
    store.mark_dead([dead.id])
    assert taken(store) == 30
    store.end_worker(ended.id)
    assert taken(store) == 0


def test_orphan_spend_counts_towards_the_cap(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)], spec(cap=100))
    lost = Worker(store, "lost")
    found = lost.one()
    lost.checkpoint(found.reserve(0).change())
    store.mark_dead([lost.id])
    lost.checkpoint(found.answer(0).change())
    assert taken(store) == COST


def test_without_a_cap_doubt_has_no_worst_cost(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    assert draw(worker, 500) == 500
    lose(store, "lost", 0)
    assert worker.one().claimed.resolved.possible_picousd == 0
    assert taken(store) == 0
