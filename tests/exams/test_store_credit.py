"""Budgets of keys: the checkpoint that spends the last of one pauses what moves under it, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from batchwright.core.batch_state import PauseCause
from batchwright.core.records import UsageKey, UsageSum
from batchwright.core.tenants import Scope, Tenant
from batchwright.ports.keys import ApiKey
from batchwright.ports.store import AllowanceRequest, CheckpointResult, ClaimRequest, NewBatch, Store
from support.store_drive import COST, INTAKE, Held, Worker, new_segment, spec

ROWS = 4


def add_key(store: Store, key_id: str, budget_picousd: int) -> None:
    key = ApiKey(
        key_id=key_id,
        shown="bw_01234567",
        account="acme",
        name="",
        scopes=frozenset(Scope),
        created_at_ms=1,
        budget_picousd=budget_picousd,
    )
    store.add_key(key, f"digest of {key_id}")


def submit(store: Store, batch_id: str, key_id: str) -> None:
    batch = NewBatch(batch_id=batch_id, tenant=Tenant("acme", key_id), spec=spec(), created_at_ms=1_000, owner=INTAKE)
    store.create_batch(batch, [new_segment(0, ROWS), new_segment(1, ROWS)], close=True)


def paused(store: Store, batch_id: str) -> list[PauseCause]:
    return [pause.cause for pause in store.get_batch(batch_id).pauses]


def answer(worker: Worker, held: Held, key_id: str, rows: range) -> CheckpointResult:
    """Reserves rows and ends them, their usage under the key."""
    worker.checkpoint(held.reserve(*rows).change())
    change = held.answer(*rows).change()
    usage = {structs.replace(key, key_id=key_id): spent for key, spent in change.usage.items()}
    return worker.checkpoint(replace(change, usage=usage))


def test_the_checkpoint_that_spends_a_budget_pauses_every_batch_of_the_key(store: Store) -> None:
    add_key(store, "key_a", ROWS * COST)
    add_key(store, "key_b", ROWS * COST)
    for batch_id, key_id in (("batch_1", "key_a"), ("batch_2", "key_a"), ("batch_3", "key_b"), ("batch_4", "")):
        submit(store, batch_id, key_id)
    worker = Worker(store)
    held = worker.one(batch_id="batch_1")
    signal = answer(worker, held, "key_a", range(ROWS - 1)).signals["batch_1"]
    credit = store.key_credit("key_a")
    assert credit is not None
    assert (credit.spent_picousd, credit.is_spent, signal.paused) == ((ROWS - 1) * COST, False, False)

    signal = answer(worker, held, "key_a", range(ROWS - 1, ROWS)).signals["batch_1"]
    credit = store.key_credit("key_a")
    assert credit is not None
    assert (credit.spent_picousd, credit.is_spent, signal.paused) == (ROWS * COST, True, True)
    assert [paused(store, f"batch_{number}") for number in range(1, 5)] == [
        [PauseCause.KEY_BUDGET],
        [PauseCause.KEY_BUDGET],
        [],
        [],
    ]
    assert "key_a" in store.get_batch("batch_2").pauses[0].reason
    assert {found.key.batch_id for found in worker.claim(10)} == {"batch_3", "batch_4"}
    assert store.key_spending("acme") == {"key_a": ROWS * COST}


def test_more_budget_and_a_resume_go_on(store: Store) -> None:
    add_key(store, "key_a", COST)
    submit(store, "batch_1", "key_a")
    worker = Worker(store)
    answer(worker, worker.one(), "key_a", range(ROWS))
    assert worker.claim() == []
    assert store.set_key_budget("key_a", 100 * COST)
    store.resume_batch("batch_1")
    answer(worker, worker.one(), "key_a", range(ROWS))
    assert paused(store, "batch_1") == []
    assert not store.set_key_budget("key_none", 5)
    assert store.key_credit("key_none") is None


def test_the_rows_that_end_a_batch_leave_nothing_to_pause(store: Store) -> None:
    add_key(store, "key_a", 2 * ROWS * COST)
    submit(store, "batch_1", "key_a")
    worker = Worker(store)
    for _ in range(2):
        answer(worker, worker.one(), "key_a", range(ROWS))
    assert store.get_batch("batch_1").facts.settled
    assert paused(store, "batch_1") == []


def test_a_key_without_a_budget_is_never_spent(store: Store) -> None:
    add_key(store, "key_a", -1)
    submit(store, "batch_1", "key_a")
    worker = Worker(store)
    answer(worker, worker.one(), "key_a", range(ROWS))
    credit = store.key_credit("key_a")
    assert credit is not None
    assert not credit.is_spent
    assert paused(store, "batch_1") == []


def test_usage_of_calls_is_added_and_counts_for_the_budget(store: Store) -> None:
    add_key(store, "key_a", 100)
    submit(store, "batch_1", "key_a")
    worker = Worker(store)
    key = UsageKey("2026-11-30", "ACME", "m", "acme", "acme", "key_a")
    store.add_usage(worker.id, {key: UsageSum(answers=1, prompt_tokens=3, cost_picousd=60)}, 1_000)
    assert paused(store, "batch_1") == []
    store.end_worker(worker.id)
    store.add_usage(worker.id, {key: UsageSum(answers=1, no_usage=1, cost_picousd=40)}, 2_000)
    (line,) = store.read_usage(tenant="acme")
    assert line.key == key
    assert line.sum == UsageSum(answers=2, prompt_tokens=3, cost_picousd=100, no_usage=1)
    assert paused(store, "batch_1") == [PauseCause.KEY_BUDGET]


def draw(worker: Worker, batch_id: str, picousd: int, least: int = 1) -> CheckpointResult:
    return worker.checkpoint(
        allowances=[AllowanceRequest(batch_id=batch_id, picousd=picousd, minimum_picousd=least)],
    )


def test_what_is_drawn_under_a_key_stays_within_its_budget_whoever_draws(store: Store) -> None:
    add_key(store, "key_a", 100)
    for batch_id, key_id in (("batch_1", "key_a"), ("batch_2", "key_a"), ("batch_3", "")):
        submit(store, batch_id, key_id)
    first, second = Worker(store, "first"), Worker(store, "second")
    first.one(batch_id="batch_1")
    second.one(batch_id="batch_2")
    result = draw(first, "batch_1", 60)
    assert (result.allowances, result.key_short) == ({"batch_1": 60}, frozenset())
    assert store.hold_credit(second.id, "key_a", 30, 30) == 30
    result = draw(second, "batch_2", 50, least=20)
    assert (result.allowances, result.key_short, result.key_held) == (
        {"batch_2": 0},
        frozenset({"batch_2"}),
        frozenset({"batch_2"}),
    )
    assert store.hold_credit(second.id, "key_a", 50, 20) == 0
    assert draw(second, "batch_2", 50, least=5).allowances == {"batch_2": 10}
    assert draw(first, "batch_3", 500).allowances == {"batch_3": 500}, "it has no key"
    credit = store.key_credit("key_a")
    assert credit is not None
    assert (credit.spent_picousd, credit.drawn_picousd, credit.left_picousd) == (0, 100, 0)

    key = UsageKey("2026-11-30", "ACME", "m", "acme", "acme", "key_a")
    store.add_usage(second.id, {key: UsageSum(answers=1, cost_picousd=25)}, 1_000, released={"key_a": 30})
    result = draw(second, "batch_2", 90, least=80)
    assert (result.key_short, result.key_held) == (frozenset({"batch_2"}), frozenset()), (
        "not even without what others hold"
    )
    assert draw(second, "batch_2", 50, least=20).allowances == {"batch_2": 0}


@pytest.mark.parametrize("gone", ["dead", "ended"])
def test_what_a_gone_worker_drew_is_free_before_anybody_takes_over_what_it_left(store: Store, gone: str) -> None:
    """Whoever waits for it has rows enough, and claims none."""
    add_key(store, "key_a", 100)
    for batch_id in ("batch_1", "batch_2"):
        submit(store, batch_id, "key_a")
    first, second = Worker(store, "first"), Worker(store, "second")
    left, held = first.one(batch_id="batch_1"), second.one(batch_id="batch_2")
    assert draw(first, "batch_1", 90).allowances == {"batch_1": 90}
    first.checkpoint(left.reserve(0, 1).change())
    assert draw(second, "batch_2", 50, least=20).key_held == {"batch_2"}
    if gone == "dead":
        store.mark_dead([first.id])
    else:
        store.end_worker(first.id)
    assert draw(second, "batch_2", 50, least=20).allowances == {"batch_2": 50}
    assert store.hold_credit(second.id, "key_a", 50, 50) == 50
    credit = store.key_credit("key_a")
    assert credit is not None
    assert (credit.drawn_picousd, credit.left_picousd) == (100, 0)
    assert held


def test_a_budget_is_signalled_with_its_batches(store: Store) -> None:
    add_key(store, "key_a", 100)
    add_key(store, "key_b", -1)
    for batch_id, key_id in (("batch_1", "key_a"), ("batch_2", "key_b"), ("batch_3", "")):
        submit(store, batch_id, key_id)
    signals = Worker(store).checkpoint(claim=ClaimRequest(limit=10)).signals
    assert {batch_id: signal.budgeted for batch_id, signal in signals.items()} == {
        "batch_1": True,
        "batch_2": False,
        "batch_3": False,
    }


def test_a_calls_draw_ends_with_its_worker(store: Store) -> None:
    add_key(store, "key_a", 100)
    worker, other = Worker(store, "one"), Worker(store, "other")
    assert store.hold_credit(worker.id, "key_a", 80, 80) == 80
    assert store.hold_credit(other.id, "key_a", 80, 80) == 0
    store.end_worker(worker.id)
    assert store.hold_credit(other.id, "key_a", 80, 80) == 80
    assert store.hold_credit(other.id, "key_none", 80, 80) == 80, "there is no budget"
