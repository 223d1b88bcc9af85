"""The store's exam, many workers as one: shares of limits, what workers tell, draining, lanes closed by a person."""

from __future__ import annotations

from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.quarantine import Quarantine
from batchwright.core.shares import SILENT_S, WHOLE_PPM, LaneUse
from batchwright.core.worker_id import WorkerId
from batchwright.core.worker_state import WorkerState
from batchwright.ports.store import LanePause, Store
from support.store_drive import LANE, Worker, new_segment, submit

NAME = f"{LANE}#00000000"
SILENT_MS = int(SILENT_S * 1000)


def wants(demand: float, share_ppm: int = 0, lane: str = NAME) -> LaneUse:
    return LaneUse(lane, requests_per_minute=600.0, demand=demand, share_ppm=share_ppm)


def share(store: Store, worker: Worker, now_ms: int, use: LaneUse) -> int:
    heard = store.heartbeat(worker.id, now_ms, uses=[use])
    assert heard is not None
    return heard.shares_ppm[use.lane]


def test_shares_are_granted_of_what_the_others_leave(store: Store) -> None:
    first, second = Worker(store, "first"), Worker(store, "second")
    assert share(store, first, 2_000, wants(100.0)) == WHOLE_PPM
    assert share(store, second, 2_000, wants(100.0)) == 0, "the first has not lowered yet"
    assert share(store, second, 2_000, wants(100.0, lane="another||m#1")) == WHOLE_PPM
    assert share(store, second, 2_000, wants(100.0)) == 0
    assert share(store, first, 3_000, wants(100.0, 500_000)) == 500_000, "it has lowered, and tells"
    assert share(store, second, 3_000, wants(100.0)) == 500_000
    told = {row.worker.name: row.uses for row in store.live_workers()}
    assert told["second"] == (wants(100.0, 500_000),)
    heard = store.heartbeat(first.id, 4_000, uses=[wants(0.0)])
    assert heard is not None
    assert heard.shares_ppm == {}, "it takes no part"
    assert share(store, second, 4_000, wants(100.0, 500_000)) == WHOLE_PPM


def test_the_share_of_one_that_ended_died_or_fell_silent_is_free(store: Store) -> None:
    workers = [Worker(store, name) for name in ("ends", "dies", "silent")]
    for worker in workers:
        share(store, worker, 2_000, wants(1.0))
    last = Worker(store, "last")
    store.end_worker(workers[0].id)  # which had all of it
    assert share(store, last, 2_000, wants(1.0)) == 333_333
    assert share(store, workers[1], 2_000, wants(1.0)) == 333_333
    store.mark_dead([workers[1].id])
    assert share(store, last, 2_000, wants(1.0, 333_333)) == 500_000
    assert share(store, workers[2], 2_000, wants(1.0)) == 500_000
    assert share(store, last, 2_000 + SILENT_MS, wants(1.0, 500_000)) == 500_000
    assert share(store, last, 2_001 + SILENT_MS, wants(1.0, 500_000)) == WHOLE_PPM
    assert share(store, workers[2], 2_002 + SILENT_MS, wants(1.0, 500_000)) == 0, "whatever it says it has"


def test_what_workers_tell_is_read_with_what_they_hold(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0), new_segment(1), new_segment(2)])
    first, second = Worker(store, "first", now_ms=1_000), Worker(store, "second", now_ms=1_500)
    first.claim(limit=2)
    state = WorkerState(in_flight=3, rows_per_minute=120.0, checkpoint_ms=1_900, checkpoint_duration_s=0.004)
    assert store.heartbeat(first.id, 2_000, note="KEY is not set", state=state)
    store.pause_lane(LanePause(lane=NAME, reason="no credit", since_ms=5, probe_at_ms=6))
    closed = Quarantine(vendor="openai", model="", reason="", since_ms=7)
    store.set_quarantine(closed)
    fleet = store.fleet()
    assert [row.worker for row in fleet.workers] == [first.id, second.id]
    assert (fleet.workers[0].state, fleet.workers[0].note, fleet.workers[0].heartbeat_ms) == (
        state,
        "KEY is not set",
        2_000,
    )
    assert fleet.workers[1].state == WorkerState()
    assert fleet.segments == {first.id: 2}
    assert [pause.lane for pause in fleet.pauses] == [NAME]
    assert fleet.quarantines == (closed,)
    store.end_worker(first.id)
    assert [row.worker for row in store.fleet().workers] == [second.id]
    assert store.fleet().segments == {}


def test_a_worker_that_is_drained_hears_it_with_its_heartbeat(store: Store) -> None:
    worker, other = Worker(store, "w"), Worker(store, "other")
    heard = store.heartbeat(worker.id, 2_000)
    assert heard is not None
    assert not heard.draining
    assert store.drain_worker(worker.id)
    assert [row.draining for row in store.live_workers()] == [True, False]
    heard = store.heartbeat(worker.id, 3_000)
    assert heard is not None
    assert heard.draining
    heard = store.heartbeat(other.id, 3_000)
    assert heard is not None
    assert not heard.draining
    store.end_worker(worker.id)
    assert not store.drain_worker(worker.id)
    assert not store.drain_worker(WorkerId("nobody", "1"))
    anew = Worker(store, "w", "2")
    heard = store.heartbeat(anew.id, 4_000)
    assert heard is not None
    assert not heard.draining, "another incarnation was not asked to end"


def test_a_worker_that_stands_by_stays_drained_until_its_drain_is_ended(store: Store) -> None:
    identity = WorkerId("w", "1")
    store.register_worker(identity, host="here", pid=7, now_ms=1_000, state=WorkerState(claims=False, drained=True))
    (row,) = store.live_workers()
    assert (row.draining, row.state.drained, row.state.claims) == (True, True, False), "before its first heartbeat"
    heard = store.wishes(identity)
    assert heard is not None
    assert heard.draining
    assert store.end_drain(identity)
    told = store.wishes(identity), store.heartbeat(identity, 2_000)
    assert [heard is not None and heard.draining for heard in told] == [False, False]
    store.end_worker(identity)
    assert not store.end_drain(identity)
    assert store.wishes(identity) is None


def test_quarantines_are_heard_by_every_worker_until_they_are_lifted(store: Store) -> None:
    worker = Worker(store)
    whole = Quarantine(vendor="openai", model="", reason="they call back", since_ms=1_000)
    model = Quarantine(vendor="openai", model="m|odd", reason="", since_ms=2_000)
    store.set_quarantine(whole)
    store.set_quarantine(model)
    heard = store.heartbeat(worker.id, 3_000)
    assert heard is not None
    assert heard.quarantines == (whole, model)
    again = Quarantine(vendor="openai", model="", reason="another reason", since_ms=3_000)
    store.set_quarantine(again)
    assert store.quarantines() == [again, model]
    assert store.lift_quarantine("openai", "")
    assert not store.lift_quarantine("openai", "")
    assert store.quarantines() == [model]
    heard = store.heartbeat(worker.id, 4_000)
    assert heard is not None
    assert heard.quarantines == (model,)


def test_what_waited_for_a_closed_lane_goes_on_when_it_is_opened(store: Store) -> None:
    other = "elsewhere|KEY|m"
    submit(store, "batch_named", [new_segment(0)])
    submit(store, "batch_routed", [new_segment(0, lanes=f"{other}\n{LANE}")])
    submit(store, "batch_other", [new_segment(0, lanes=other)])
    for batch_id, lane in (("batch_named", NAME), ("batch_routed", f"{other}#1"), ("batch_other", f"{other}#1")):
        store.pause_batch(batch_id, Pause(cause=PauseCause.LANE, reason="it stands still", since_ms=1, lane=lane))
    store.pause_batch("batch_named", Pause(cause=PauseCause.USER, reason="asked", since_ms=1))
    store.set_quarantine(Quarantine(vendor="openai", model="m", reason="", since_ms=1))
    assert store.lift_quarantine("openai", "m")
    left = {batch_id: [fact.cause for fact in store.get_batch(batch_id).pauses] for batch_id in ("batch_named",)}
    assert left == {"batch_named": [PauseCause.USER]}
    assert store.get_batch("batch_routed").pauses == (), "one of its lanes is open again"
    assert len(store.get_batch("batch_other").pauses) == 1
    store.clear_lane(f"{other}#1")
    assert store.get_batch("batch_other").pauses == ()


def test_a_lane_that_works_again_lets_batches_go_on_whose_pause_names_another(store: Store) -> None:
    other = "elsewhere|KEY|m"
    submit(store, "batch_a", [new_segment(0, lanes=f"{other}\n{LANE}")])
    store.pause_batch("batch_a", Pause(cause=PauseCause.LANE, reason="no credit", since_ms=1, lane=f"{other}#1"))
    store.clear_lane("third|KEY|m#1")
    assert len(store.get_batch("batch_a").pauses) == 1
    store.clear_lane(NAME)
    assert store.get_batch("batch_a").pauses == ()
