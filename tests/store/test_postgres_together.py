"""Several writers on one PostgreSQL at the same moment: what SQLite's single writer keeps in order holds here too.

Each writer is a thread with a store of its own, as a process would have; the server does not know the difference. All
begin together, again and again, and at the end the laws are recounted from the rows up.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection

from batchwright.core import row_map
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.errors import KeyReused, NoSuchFile, WrongState
from batchwright.core.failures import FailureKind
from batchwright.core.records import UsageKey, UsageSum
from batchwright.core.tenants import Scope, Tenant
from batchwright.core.webhooks import EventType
from batchwright.core.worker_id import WorkerId
from batchwright.ports.checkpoint import Release
from batchwright.ports.files import FileBatchRow, StoredFile
from batchwright.ports.keys import ApiKey
from batchwright.ports.store import AllowanceRequest, ClaimRequest, Idempotency, NewBatch, Share, Store
from batchwright.ports.webhooks import DeliveryWish, Webhook
from batchwright.store import closing, file_batches, files, pausing, queueing
from batchwright.store.connections import Connections
from batchwright.store.open import open_store
from support.postgres import PostgresServer
from support.store_drive import COST, FAILED, INTAKE, OK, WORST, Worker, new_segment, spec, submit

WRITERS = 6
ROUNDS = 8
"""Of each race: a lock that lacks is met in one of the first."""
SOMEBODY_WAITS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
T = TypeVar("T")


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as found:
        yield found


@pytest.fixture
def stores(url: str) -> Iterator[list[Store]]:
    with ExitStack() as stack:
        opened = []
        for _ in range(WRITERS):
            opened.append(open_store(url))
            stack.callback(opened[-1].close)
        yield opened
        for row in opened[0].find_batches(limit=1_000):
            assert opened[0].check(row.batch_id) == []


def together(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each returned; all begin at the same moment."""
    barrier = threading.Barrier(len(works))

    def begin(work: Callable[[], Any]) -> Any:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(begin, works))


def each(stores: Sequence[Store], work: Callable[[Store, int], T]) -> list[T]:
    return together([lambda store=store, number=number: work(store, number) for number, store in enumerate(stores)])  # type: ignore[misc]


def between(first: Store, write: Callable[[Connection], object], second: Callable[[], T]) -> T:
    """What `second` returns if it begins when the first transaction has written, and has not committed yet."""
    connections: Connections = first._connections  # type: ignore[attr-defined]
    with ThreadPoolExecutor(1) as pool:
        with connections.write() as connection:
            write(connection)
            running = pool.submit(second)
            while not running.done() and not connection.exec_driver_sql(SOMEBODY_WAITS).scalar_one():
                with suppress(TimeoutError):
                    running.result(0.01)
        return running.result()


# ------------------------------------------------------------------------------------------------------------- claims


def test_each_segment_is_claimed_once_and_one_checkpoint_settles_the_batch(stores: list[Store]) -> None:
    for turn in range(3):
        batch_id = f"batch_{turn}"
        submit(stores[0], batch_id, [new_segment(number, 2) for number in range(60)])

        def work(store: Store, number: int, batch_id: str = batch_id) -> tuple[list[int], int]:
            worker = Worker(store, f"w{number}-{batch_id}")
            taken, settled = [], 0
            while found := worker.claim(2, batch_id=batch_id):
                for held in found:
                    taken.append(held.key.number)
                    settled += len(worker.finish(held).settled)
            return taken, settled

        ended = each(stores, work)
        assert Counter(number for taken, _ in ended for number in taken) == Counter(range(60))
        assert sum(settled for _, settled in ended) == 1
        assert stores[0].get_batch(batch_id).facts.settled


def test_four_claimers_at_once_are_as_fair_as_one(stores: list[Store]) -> None:
    """Each account has segments of one size; whatever the workers do at the same moment, none is a segment behind."""
    accounts, each_has = 24, 8
    for number in range(accounts):
        batch_id = f"batch_{number:02}"
        submit(stores[0], batch_id, [new_segment(one, 2) for one in range(each_has)], account=f"account{number:02}")
    taken: Counter[str] = Counter()
    for turn in range(6):

        def claim(store: Store, number: int, turn: int = turn) -> list[str]:
            return [one.key.batch_id for one in Worker(store, f"w{turn}-{number}").claim(6)]

        taken.update(batch_id for found in each(stores[:4], claim) for batch_id in found)
        assert max(taken.values()) - min(taken[f"batch_{number:02}"] for number in range(accounts)) <= 1
    assert taken.total() == 6 * 4 * 6


def test_four_claimers_find_work_where_there_is_one_account_and_keep_its_bound(stores: list[Store]) -> None:
    submit(stores[0], "batch_a", [new_segment(number, 2) for number in range(32)])
    found = each(stores[:4], lambda store, number: len(Worker(store, f"w{number}").claim(4)))
    assert found == [4, 4, 4, 4]
    stores[0].set_share(Share(account="acme", in_flight=18))
    for turn in range(ROUNDS):
        each(stores[:4], lambda store, number, turn=turn: len(Worker(store, f"v{turn}-{number}").claim(4)))  # type: ignore[misc]
        held = sum(count_held(store) for store in stores[:1])
        assert held == 18


def count_held(store: Store) -> int:
    connections: Connections = store._connections  # type: ignore[attr-defined]
    return connections.look(lambda connection: queueing.count_held(connection, "acme", 100))


def test_what_begins_to_wait_is_not_lost_to_a_claim_that_finds_nothing(stores: list[Store]) -> None:
    """A claim takes an account without segments out of the queue, at the moment when another gets one in."""
    for turn in range(4 * ROUNDS):
        batch_id = f"batch_{turn}"

        def work(store: Store, number: int, batch_id: str = batch_id, turn: int = turn) -> int:
            if not number:
                submit(store, batch_id, [new_segment(0, 2)])
                return 0
            return Worker(store, f"w{turn}-{number}").run()

        done = sum(each(stores[:3], work))
        assert done + Worker(stores[0], f"last{turn}").run() == 1


def test_what_is_given_back_while_its_batch_is_paused_stands_still(stores: list[Store]) -> None:
    """A release by other lanes makes a new count of what waits, which must know of the pause that comes with it."""
    pause = Pause(cause=PauseCause.USER, reason="", since_ms=1)
    for turn in range(ROUNDS):
        batch_id = f"batch_{turn}"
        submit(stores[0], batch_id, [new_segment(0, 2, lanes="a\nb")])
        worker = Worker(stores[0], f"w{turn}")
        held = worker.one(batch_id=batch_id)
        together(
            [
                lambda held=held, worker=worker: worker.checkpoint(held.change(release=Release.WAITING, lanes="b")),  # type: ignore[misc]
                lambda batch_id=batch_id: stores[1].pause_batch(batch_id, pause),  # type: ignore[misc]
            ]
        )
        assert Worker(stores[2], f"other{turn}").claim() == []
        assert stores[0].check(batch_id) == []


def test_parked_segments_are_woken_once(stores: list[Store]) -> None:
    submit(stores[0], "batch_a", [new_segment(number) for number in range(40)])
    parker = Worker(stores[0], "parker")
    held = parker.claim(40)
    parker.checkpoint(*(one.change(release=Release.PARKED, not_before_ms=5_000) for one in held))
    ended = each(stores, lambda store, number: Worker(store, f"w{number}").run(now_ms=6_000))
    assert sum(ended) == 40


def test_a_lost_segment_is_taken_once_and_its_doubt_paid_for_once(stores: list[Store]) -> None:
    cap = 400 * WORST
    submit(stores[0], "batch_a", [new_segment(number) for number in range(24)], spec(cap=cap))
    for turn in range(ROUNDS):
        lost = Worker(stores[0], f"lost{turn}")
        held = lost.claim(6)
        draw = AllowanceRequest(batch_id="batch_a", picousd=24 * WORST)
        lost.checkpoint(*(one.reserve(0, 1).change() for one in held), allowances=[draw])
        burials = each(stores, lambda store, _, lost=lost: store.mark_dead([lost.id]))  # type: ignore[misc]
        assert sum(burials) == 6
        taken = each(stores, lambda store, number, turn=turn: _claim_some(store, f"t{turn}-{number}"))  # type: ignore[misc]
        assert sum(taken) >= 6
        row = stores[0].get_batch("batch_a")
        assert row.budget_taken_picousd <= cap
        assert row.tally.allowance_picousd == 0, "what the dead drew is charged or free again"
    Worker(stores[0], "last").run()


def _claim_some(store: Store, name: str) -> int:
    """Takes segments and gives them back."""
    worker = Worker(store, name)
    found = worker.claim(2)
    worker.checkpoint(*(one.change(release=Release.WAITING) for one in found))
    return len(found)


def test_a_batch_that_is_closed_while_it_is_claimed_from_ends(stores: list[Store]) -> None:
    for turn in range(ROUNDS):
        batch_id = f"batch_{turn}"
        submit(stores[0], batch_id, [new_segment(number) for number in range(30)])

        def work(store: Store, number: int, batch_id: str = batch_id) -> None:
            worker = Worker(store, f"w{number}-{batch_id}")
            while found := worker.claim(2, batch_id=batch_id):
                result = worker.checkpoint(*(held.change() for held in found))
                if result.signals[batch_id].closing is not None:
                    worker.checkpoint(*(held.change(closed_as=FailureKind.CANCELLED) for held in found))
                else:
                    for held in found:
                        worker.finish(held)

        def cancel(store: Store, batch_id: str = batch_id) -> None:
            with suppress(WrongState):
                store.request_close(batch_id, FailureKind.CANCELLED, 3_000)
            while store.close_step(batch_id, 3_000, limit=5):
                pass

        works = [lambda store=store, number=number: work(store, number) for number, store in enumerate(stores[2:])]
        together([*works, lambda: cancel(stores[0]), lambda: cancel(stores[1])])
        while stores[0].close_step(batch_id, 3_000):
            pass
        assert stores[0].get_batch(batch_id).facts.settled
        assert stores[0].check(batch_id) == []


def test_a_claim_that_meets_a_cancel_on_its_way_takes_nothing(stores: list[Store]) -> None:
    submit(stores[0], "batch_a", [new_segment(0)])
    worker = Worker(stores[1], "w")

    def cancel(connection: Connection) -> None:
        closing.request(connection, "batch_a", FailureKind.CANCELLED, 3_000)

    assert between(stores[0], cancel, worker.claim) == []
    assert stores[1].close_step("batch_a", 3_000) == 1


# -------------------------------------------------------------------------------------------------------------- money


def test_workers_that_draw_at_once_never_pass_a_cap(stores: list[Store]) -> None:
    cap = 50 * WORST
    submit(stores[0], "batch_a", [new_segment(number) for number in range(12)], spec(cap=cap))
    workers = [Worker(store, f"w{number}") for number, store in enumerate(stores)]
    held = [worker.claim(2) for worker in workers]
    passed = []

    def work(store: Store, number: int) -> None:
        worker, chance = workers[number], random.Random(number)
        drawn = 0
        for _ in range(12):
            asked = chance.randint(1, 8) * WORST
            request = AllowanceRequest(batch_id="batch_a", picousd=asked, minimum_picousd=WORST)
            drawn += worker.checkpoint(allowances=[request]).allowances["batch_a"]
            for one in held[number]:
                waiting = [row for row, byte in enumerate(one.row_map) if byte == row_map.PENDING]
                if drawn >= WORST and waiting:
                    worker.checkpoint(one.reserve(waiting[0]).change())
                    worker.checkpoint(one.answer(waiting[0]).change(), spent={"batch_a": COST})
                    drawn -= COST
            if chance.random() < 0.5:
                back = AllowanceRequest(batch_id="batch_a", picousd=-drawn)
                worker.checkpoint(allowances=[back])
                drawn = 0
            if store.get_batch("batch_a").budget_taken_picousd > cap:
                passed.append(number)

    each(stores, work)
    assert not passed
    assert stores[0].get_batch("batch_a").tally.cost_picousd > 0


def test_calls_and_rows_under_a_key_never_pass_its_budget(stores: list[Store]) -> None:
    budget = 40 * WORST
    stores[0].add_key(_api_key("key_1", budget), "digest")
    passed: list[int] = []

    def work(store: Store, number: int) -> int:
        worker = Worker(store, f"w{number}")
        usage = UsageKey("2026-01-01", "vendor-account", "m", "openai", "acme", "key_1")
        had = 0
        for _ in range(20):
            held = store.hold_credit(worker.id, "key_1", WORST, WORST)
            credit = store.key_credit("key_1")
            assert credit is not None
            if credit.spent_picousd + credit.drawn_picousd > budget:
                passed.append(number)
            if held:
                spent = {usage: UsageSum(answers=1, cost_picousd=COST)}
                store.add_usage(worker.id, spent, 2_000, released={"key_1": held})
                had += 1
        return had

    had = each(stores, work)
    assert not passed
    credit = stores[0].key_credit("key_1")
    assert credit is not None
    assert (credit.spent_picousd, credit.drawn_picousd) == (sum(had) * COST, 0)


def _api_key(key_id: str, budget: int) -> ApiKey:
    return ApiKey(
        key_id=key_id,
        shown="bw_1",
        account="acme",
        name="",
        scopes=frozenset(Scope),
        created_at_ms=1_000,
        budget_picousd=budget,
    )


# ------------------------------------------------------------------------------------------------ one of many is first


def test_one_batch_is_made_under_one_key(stores: list[Store]) -> None:
    for turn in range(ROUNDS):

        def make(store: Store, number: int, turn: int = turn) -> bool:
            batch = NewBatch(
                batch_id=f"batch_{turn}_{number}",
                tenant=Tenant("acme"),
                spec=spec(),
                created_at_ms=1_000,
                owner=INTAKE,
                idempotency=Idempotency(f"key {turn}", "digest"),
            )
            try:
                store.create_batch(batch, [new_segment(0)], close=True)
            except KeyReused:
                return False
            return True

        assert sum(each(stores, make)) == 1
    assert len(stores[0].find_batches(limit=100)) == ROUNDS


def test_a_batch_is_made_once_under_one_id(stores: list[Store]) -> None:
    def make(store: Store, number: int) -> bool:
        owner = WorkerId(f"intake{number}", "1")
        batch = NewBatch(batch_id="batch_a", tenant=Tenant("acme"), spec=spec(), created_at_ms=1_000, owner=owner)
        try:
            store.create_batch(batch, [new_segment(0)], close=True)
        except WrongState:
            return False
        return True

    assert sum(each(stores, make)) == 1


def test_a_lease_is_taken_by_one(stores: list[Store]) -> None:
    for turn in range(ROUNDS):
        now_ms = 1_000 * (turn + 1)
        taken = each(
            stores,
            lambda store, number, now_ms=now_ms: store.take_lease("sweeper", WorkerId(f"{number}", "1"), now_ms, 1_000),  # type: ignore[misc]
        )
        assert sum(taken) == 1


def test_of_two_incarnations_one_lives(stores: list[Store]) -> None:
    for turn in range(ROUNDS):
        each(
            stores,
            lambda store, number, turn=turn: store.register_worker(  # type: ignore[misc]
                WorkerId("same", f"{turn}-{number}"), host="here", pid=7, now_ms=1_000
            ),
        )
        assert len(stores[0].live_workers()) == 1


def test_a_round_begins_once(stores: list[Store]) -> None:
    submit(stores[0], "batch_a", [new_segment(number) for number in range(20)])
    Worker(stores[0], "first").run(byte=FAILED)
    for turn in range(1, ROUNDS):
        rounds = each(stores, lambda store, _: _reopen(store, "batch_a"))
        assert stores[0].get_batch("batch_a").round == turn
        assert rounds.count(turn) >= 1
        Worker(stores[0], f"w{turn}").run(byte=FAILED)


def _reopen(store: Store, batch_id: str) -> int:
    try:
        return store.reopen(batch_id, frozenset({FAILED})).round
    except WrongState:
        return -1


def test_pauses_at_once_all_count(stores: list[Store]) -> None:
    for turn in range(ROUNDS):
        batch_id = f"batch_{turn}"
        submit(stores[0], batch_id, [new_segment(0)])
        causes = [PauseCause.USER, PauseCause.GATE, PauseCause.BUDGET, PauseCause.LANE]
        facts = [Pause(cause=cause, reason="it has to", since_ms=1_000) for cause in causes]
        together(
            [
                lambda store=store, fact=fact, batch_id=batch_id: store.pause_batch(batch_id, fact)  # type: ignore[misc]
                for store, fact in zip(stores, facts, strict=False)
            ]
        )
        together(
            [
                lambda store=store, cause=cause, batch_id=batch_id: store.resume_batch(batch_id, frozenset({cause}))  # type: ignore[misc]
                for store, cause in zip(stores, causes[:3], strict=False)
            ]
        )
        row = stores[0].get_batch(batch_id)
        assert row.facts.paused
        assert [fact.cause for fact in row.pauses] == [PauseCause.LANE]
        stores[0].resume_batch(batch_id)


def test_a_pause_that_is_not_committed_outlives_a_resume_of_another(stores: list[Store]) -> None:
    submit(stores[0], "batch_a", [new_segment(0)])
    stores[0].pause_batch("batch_a", Pause(cause=PauseCause.GATE, reason="it has to", since_ms=1_000))
    lane = Pause(cause=PauseCause.LANE, reason="it has to", since_ms=1_000)
    between(
        stores[0],
        lambda connection: pausing.add_fact(connection, "batch_a", lane),
        lambda: stores[1].resume_batch("batch_a", frozenset({PauseCause.GATE})),
    )
    row = stores[0].get_batch("batch_a")
    assert row.facts.paused
    assert [fact.cause for fact in row.pauses] == [PauseCause.LANE]


def test_a_pause_and_the_last_checkpoint_agree(stores: list[Store]) -> None:
    for turn in range(ROUNDS):
        batch_id = f"batch_{turn}"
        submit(stores[0], batch_id, [new_segment(0)])
        worker = Worker(stores[1], f"w{turn}")
        held = worker.one(batch_id=batch_id)
        held.reserve(0, 1, 2, 3)
        worker.checkpoint(held.change())
        held.answer(0, 1, 2, 3)
        fact = Pause(cause=PauseCause.USER, reason="stop", since_ms=1_000)

        def pause(batch_id: str = batch_id, fact: Pause = fact) -> bool:
            try:
                stores[0].pause_batch(batch_id, fact)
            except WrongState:
                return False
            return True

        def end(worker: Worker = worker, change: Any = held.change()) -> bool:  # noqa: B008  # of this turn
            return bool(worker.checkpoint(change).settled)

        _, settled = together([pause, end])
        assert settled
        # Whoever came first: what pauses an ended batch is refused, and what paused it before has gone with its end.
        ended = stores[0].get_batch(batch_id)
        assert (ended.facts.settled, ended.facts.paused, ended.pauses) == (True, False, ())


# -------------------------------------------------------------------------------------------- deliveries, files, blobs


def test_a_delivery_is_claimed_by_one_sender(stores: list[Store]) -> None:
    hook = Webhook(
        webhook_id="wh_1",
        account="acme",
        batch_id="",
        url="https://example.test/hook",
        events=frozenset(EventType),
        secret="s",
        description="",
        headers={},
        created_at_ms=1_000,
    )
    stores[0].add_webhook(hook, None)
    for number in range(30):
        submit(stores[0], f"batch_{number}", [new_segment(0)])
    Worker(stores[0], "w").run()

    def send(store: Store, number: int) -> list[int]:
        wish = DeliveryWish(owner=f"s{number}", now_ms=9_000, lease_ms=60_000, limit=3, per_url=30, per_account=30)
        found = []
        while claimed := store.claim_deliveries(wish):
            found += [one.delivery.seq for one in claimed]
        return found

    claimed = Counter(seq for found in each(stores, send) for seq in found)
    assert len(claimed) == 30
    assert set(claimed.values()) == {1}


def _upload(store: Store, file_id: str) -> None:
    store.begin_file(file_id, "acme", owner="lock", now_ms=1_000)
    store.add_pieces(file_id, [b"piece"])
    store.finish_file(
        StoredFile(
            file_id=file_id,
            account="acme",
            purpose="batch",
            filename="f",
            size=5,
            pieces=1,
            created_at_ms=1_000,
            expires_at_ms=0,
        )
    )


def _batch_of(file_id: str) -> tuple[NewBatch, FileBatchRow]:
    batch_id = f"batch_of_{file_id}"
    batch = NewBatch(batch_id=batch_id, tenant=Tenant("acme"), spec=spec(), created_at_ms=1_000, owner=INTAKE)
    row = FileBatchRow(
        batch_id=batch_id, file_id=file_id, endpoint="/v1/chat/completions", completion_window="24h", output_expires_s=0
    )
    return batch, row


def test_an_upload_that_is_removed_while_a_batch_is_made_of_it_is_kept(stores: list[Store]) -> None:
    _upload(stores[0], "file-a")

    def remove() -> int:
        stores[1].hide_file("file-a")
        return stores[1].sweep_files(2_000)

    between(stores[0], lambda connection: file_batches.create(connection, *_batch_of("file-a")), remove)
    assert stores[0].read_piece("file-a", 0) == b"piece"


def test_an_upload_that_is_gone_makes_no_batch(stores: list[Store]) -> None:
    _upload(stores[0], "file-a")
    with pytest.raises(NoSuchFile):
        between(
            stores[0],
            lambda connection: files.hide(connection, "file-a"),
            lambda: stores[1].create_file_batch(*_batch_of("file-a")),
        )


def test_an_upload_goes_though_it_is_looked_at_while_its_last_batch_goes(stores: list[Store]) -> None:
    _upload(stores[0], "file-a")
    batch, row = _batch_of("file-a")
    stores[0].create_file_batch(batch, row)
    stores[0].refuse_file_batch(batch.batch_id, [], 2_000)
    stores[0].create_file_batch(*_batch_of_again("file-a"))
    stores[0].hide_file("file-a")
    stores[0].begin_intake_again("batch_again")

    def keep(connection: Connection) -> None:
        assert files.sweep_step(connection, "file-a", 3_000) == 1

    between(stores[0], keep, lambda: stores[1].drop_batch("batch_again"))
    while stores[2].sweep_files(5_000):
        pass
    with pytest.raises(NoSuchFile):
        stores[0].read_piece("file-a", 0)


def _batch_of_again(file_id: str) -> tuple[NewBatch, FileBatchRow]:
    batch, row = _batch_of(file_id)
    return replace(batch, batch_id="batch_again"), replace(row, batch_id="batch_again")


# ---------------------------------------------------------------------------------------------------------- the storm


def test_workers_that_live_and_die_while_batches_are_cancelled_paused_and_retried(stores: list[Store]) -> None:
    """No order is asked for: whatever came first, the sums hold and every batch can be brought to its end."""
    batches = [f"batch_{number}" for number in range(4)]
    for batch_id in batches:
        submit(stores[0], batch_id, [new_segment(number, 3) for number in range(10)])
    each(stores, lambda store, number: _storm(store, number, batches))
    for batch_id in batches:
        stores[0].resume_batch(batch_id)
    stores[0].mark_dead([row.worker for row in stores[0].live_workers()])
    last = Worker(stores[0], "last")
    for _ in range(20):
        for batch_id in batches:
            while stores[0].close_step(batch_id, 9_000):
                pass
        last.run(now_ms=9_000)
        if all(stores[0].get_batch(batch_id).facts.settled for batch_id in batches):
            break
    for batch_id in batches:
        row = stores[0].get_batch(batch_id)
        assert row.facts.settled
        assert sum(row.tally.counts.values()) == 30


def _storm(store: Store, number: int, batches: Sequence[str]) -> None:
    chance = random.Random(number)
    worker = Worker(store, f"w{number}", "0")
    for step in range(60):
        batch_id = chance.choice(batches)
        with suppress(WrongState):
            match chance.randrange(10):
                case 0:
                    store.request_close(batch_id, FailureKind.CANCELLED, 3_000)
                    store.close_step(batch_id, 3_000, limit=3)
                case 1:
                    store.pause_batch(batch_id, Pause(cause=PauseCause.USER, reason="wait", since_ms=2_000))
                    store.resume_batch(batch_id)
                case 2:
                    store.reopen(batch_id, frozenset({FAILED, OK, row_map.KIND_BYTES[FailureKind.CANCELLED]}))
                case 3:
                    worker.claim(2)  # held, and lost with the worker
                    worker = Worker(store, f"w{number}", str(step + 1))
                case 4:
                    store.mark_dead([row.worker for row in store.live_workers()][:1])
                case _:
                    _work(worker, chance)
        if worker.id not in {row.worker for row in store.live_workers()}:
            worker = Worker(store, f"w{number}", f"again{step}")


def _work(worker: Worker, chance: random.Random) -> None:
    claim = ClaimRequest(limit=chance.randint(1, 3))
    for held in worker.claim(claim.limit):
        rows = [row for row, byte in enumerate(held.row_map) if byte == row_map.PENDING]
        held.reserve(*rows)
        if held.key in worker.checkpoint(held.change()).lost:
            continue
        held.answer(
            *[row for row, byte in enumerate(held.row_map) if byte == row_map.RESERVED],
            byte=chance.choice([OK, FAILED]),
        )
        worker.checkpoint(held.change())
