"""The store's exam, fair claims: accounts by what they were served, their shares and bounds, urgency, priorities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from batchwright.core import fair_share
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.errors import NoSuchBatch, WrongState
from batchwright.core.failures import FailureKind
from batchwright.ports.store import ClaimRequest, Release, Share, Store
from support.store_drive import OK, Held, Worker, new_segment, submit

NOW_MS = 2_000
MUCH = 10_000
"""Tokens of a row: far more than its segment was estimated at."""


def fill(store: Store, account: str, segments: int, *, batch: str = "", **more: object) -> str:
    """A batch of the account with so many equal segments."""
    batch_id = f"batch_{batch or account}"
    submit(store, batch_id, [new_segment(number) for number in range(segments)], account=account, **more)  # type: ignore[arg-type]
    return batch_id


def owners(found: Sequence[Held]) -> list[str]:
    """Of what was claimed: the accounts, whose batches are called after them."""
    return [one.key.batch_id.removeprefix("batch_").partition("-")[0] for one in found]


def served(worker: Worker, claims: int, *, limit: int = 1, tokens: int = 0) -> Counter[str]:
    """Segments that so many claims brought to an end, by account."""
    counted: Counter[str] = Counter()
    for _ in range(claims):
        found = worker.claim(limit)
        counted.update(owners(found))
        for one in found:
            worker.finish(one, tokens=tokens)
    return counted


def test_an_account_with_many_batches_gets_no_more_than_one_with_one(store: Store) -> None:
    for number in range(5):
        fill(store, "many", 4, batch=f"many-{number}")
    fill(store, "one", 8)
    assert served(Worker(store), 12, tokens=10) == {"many": 6, "one": 6}


def test_one_claim_takes_from_the_least_served_in_turn(store: Store) -> None:
    for name in ("a", "b", "c"):
        fill(store, name, 3)
    assert owners(Worker(store).claim(7)) == ["a", "b", "c", "a", "b", "c", "a"]


def test_tokens_count_and_not_segments(store: Store) -> None:
    fill(store, "heavy", 40)
    fill(store, "light", 40)
    worker = Worker(store)
    counted: Counter[str] = Counter()
    for _ in range(24):
        (one,) = worker.claim()
        (name,) = owners([one])
        counted[name] += 1
        worker.finish(one, tokens=MUCH if name == "light" else 3 * MUCH)
    assert counted == {"light": 18, "heavy": 6}


def test_what_was_estimated_too_high_is_given_back(store: Store) -> None:
    fill(store, "a", 40)
    fill(store, "b", 40)
    worker = Worker(store)
    held = worker.claim(2)
    for one in held:
        worker.finish(one, tokens=1 if owners([one]) == ["a"] else 0)
    # What either was charged is nothing now but a's 4 tokens.
    assert owners(worker.claim(1)) == ["b"]


def test_an_answer_without_a_count_of_tokens_keeps_its_estimate(store: Store) -> None:
    fill(store, "a", 3)
    fill(store, "b", 3)
    worker = Worker(store)
    (one,) = worker.claim()
    assert owners([one]) == ["a"]
    worker.checkpoint(one.reserve(0, 1, 2, 3).change())
    one.tally.no_usage = 4
    worker.checkpoint(one.answer(0, 1, 2, 3).change())
    assert owners(worker.claim(2)) == ["b", "a"]


@pytest.mark.parametrize(("weight", "share"), [(200, 8), (50, 3), (300, 9)])
def test_an_account_of_more_weight_gets_as_much_more(store: Store, weight: int, share: int) -> None:
    store.set_share(Share(account="heavy", weight=weight))
    assert store.shares() == [Share(account="heavy", weight=weight)]
    fill(store, "heavy", 40)
    fill(store, "plain", 40)
    counted = served(Worker(store), 12, tokens=500)
    assert abs(counted["heavy"] - share) <= 1
    assert counted.total() == 12


def test_a_weight_holds_from_the_next_claim_on(store: Store) -> None:
    fill(store, "a", 60)
    fill(store, "b", 60)
    worker = Worker(store)
    assert served(worker, 12, tokens=500) == {"a": 6, "b": 6}
    store.set_share(Share(account="a", weight=300))
    counted = served(worker, 16, tokens=500)
    assert abs(counted["a"] - 12) <= 1
    store.set_share(Share(account="a"))
    counted = served(worker, 12, tokens=500)
    assert abs(counted["a"] - 6) <= 1


def test_an_account_that_comes_back_begins_where_the_others_are(store: Store) -> None:
    fill(store, "rests", 1)
    fill(store, "works", 60)
    worker = Worker(store)
    served(worker, 21, tokens=500)
    fill(store, "rests", 30, batch="rests-2")
    fill(store, "new", 30)
    counted = served(worker, 12, tokens=500)
    assert set(counted) == {"rests", "works", "new"}
    assert max(counted.values()) - min(counted.values()) <= 1


def test_a_short_rest_wins_nothing(store: Store) -> None:
    fill(store, "greedy", 1)
    fill(store, "works", 60)
    worker = Worker(store)
    for number in range(2, 8):
        served(worker, 1, tokens=MUCH)
        fill(store, "greedy", 1, batch=f"greedy-{number}")
    counted = served(worker, 7, tokens=MUCH)
    assert counted["greedy"] <= 4


def test_after_a_rest_of_all_nobody_waits_for_a_newcomer_to_catch_up(store: Store) -> None:
    fill(store, "old", 20)
    worker = Worker(store)
    assert served(worker, 20, tokens=MUCH) == {"old": 20}
    assert worker.claim() == []  # it leaves the queue
    fill(store, "new", 20)
    served(worker, 1, tokens=MUCH)
    fill(store, "old", 20, batch="old-2")
    assert served(worker, 8, tokens=MUCH)["old"] >= 4


def test_accounts_at_other_lanes_do_not_keep_one_waiting(store: Store) -> None:
    """Long served at one set of lanes, an account is as near as others where it has not been."""
    submit(store, "batch_busy-1", [new_segment(number, lanes="a") for number in range(30)], account="busy")
    worker = Worker(store)
    served(worker, 25, tokens=MUCH)
    submit(store, "batch_slow", [new_segment(number, lanes="b") for number in range(20)], account="slow")
    submit(store, "batch_busy-2", [new_segment(number, lanes="b") for number in range(20)], account="busy")
    found = worker.claim(8, full_lanes=frozenset({"a"}))
    assert Counter(owners(found)) == {"busy": 4, "slow": 4}


def test_sets_of_lanes_that_overlap_share_one_queue(store: Store) -> None:
    submit(store, "batch_one", [new_segment(number, lanes="a") for number in range(20)], account="one")
    worker = Worker(store)
    served(worker, 9, tokens=MUCH)
    submit(store, "batch_both", [new_segment(number, lanes="a\nb") for number in range(20)], account="both")
    counted = served(worker, 8, tokens=MUCH)
    assert counted == {"one": 4, "both": 4}


# ------------------------------------------------------------------------------------------------------------ bounds


def test_no_more_segments_are_out_than_an_account_may_have(store: Store) -> None:
    store.set_share(Share(account="bound", in_flight=2))
    fill(store, "bound", 9)
    fill(store, "free", 9)
    worker, other = Worker(store), Worker(store, "other")
    held = worker.claim(6)
    assert Counter(owners(held)) == {"bound": 2, "free": 4}
    assert Counter(owners(other.claim(3))) == {"free": 3}
    assert store.backlog().fairness.at_bound == 1
    mine = [one for one in held if owners([one]) == ["bound"]]
    worker.finish(mine[0])
    assert Counter(owners(other.claim(9))) == {"bound": 1, "free": 2}
    worker.checkpoint(mine[1].change(release=Release.WAITING))
    assert Counter(owners(other.claim(9))) == {"bound": 1}


def test_what_a_lost_worker_held_counts_no_more(store: Store) -> None:
    store.set_share(Share(account="bound", in_flight=1))
    fill(store, "bound", 3)
    lost, worker = Worker(store, "lost"), Worker(store)
    lost.one()
    assert worker.claim() == []
    store.mark_dead([lost.id])
    assert owners(worker.claim(2)) == ["bound"]


def test_a_higher_bound_holds_at_once(store: Store) -> None:
    store.set_share(Share(account="bound", in_flight=1))
    fill(store, "bound", 4)
    worker = Worker(store)
    assert len(worker.claim(3)) == 1
    assert worker.claim(3) == []
    store.set_share(Share(account="bound", in_flight=3))
    assert len(worker.claim(3)) == 2
    assert worker.claim(3) == []
    store.set_share(Share(account="bound"))
    assert len(worker.claim(3)) == 1


def test_a_claim_of_one_batch_counts_for_no_share_and_no_bound(store: Store) -> None:
    store.set_share(Share(account="bound", in_flight=1))
    batch_id = fill(store, "bound", 4)
    fill(store, "plain", 4)
    worker = Worker(store)
    held = worker.claim(3, batch_id=batch_id)
    assert len(held) == 3
    assert owners(Worker(store, "other").claim(2)) == ["bound", "plain"]
    for one in held:
        worker.finish(one, tokens=MUCH)


# ----------------------------------------------------------------------------------------------- urgency and priority


def test_a_batch_that_is_nearly_due_brings_its_account_forward(store: Store) -> None:
    fill(store, "plain", 20)
    fill(store, "due", 20, deadline_ms=NOW_MS + fair_share.HORIZON_MS // 2)
    worker = Worker(store)
    assert served(worker, 6, tokens=MUCH) == {"due": 6}
    # The loan is used up: half of it, for half of the time has gone.
    counted = served(worker, 100, tokens=fair_share.LOAN_TOKENS // 16)
    assert counted["due"] == 14
    assert counted["plain"] == 20


def test_a_loan_ends_where_it_is_used_up(store: Store) -> None:
    fill(store, "plain", 40)
    fill(store, "due", 40, deadline_ms=NOW_MS + 1)
    worker = Worker(store)
    row = fair_share.LOAN_TOKENS // 16
    first = served(worker, 4, tokens=row)
    assert first == {"due": 4}
    counted = served(worker, 20, tokens=row)
    assert abs(counted["due"] - counted["plain"]) <= 2


def test_of_an_account_the_batch_that_is_nearly_due_comes_first(store: Store) -> None:
    fill(store, "a", 2, batch="a-1")
    fill(store, "a", 2, batch="a-2", deadline_ms=NOW_MS + 10_000)
    fill(store, "a", 2, batch="a-3", deadline_ms=NOW_MS + 5_000)
    fill(store, "a", 2, batch="a-4", deadline_ms=NOW_MS + 10 * fair_share.HORIZON_MS)
    found = Worker(store).claim(8, now_ms=NOW_MS)
    order = [one.key.batch_id[-1] for one in found]
    assert order == ["3", "3", "2", "2", "1", "4", "1", "4"]


def test_a_priority_moves_a_batch_before_others_of_its_account(store: Store) -> None:
    for number in (1, 2, 3):
        fill(store, "a", 2, batch=f"a-{number}")
    fill(store, "b", 3)
    store.set_priority("batch_a-3", 5)
    store.set_priority("batch_a-1", -5)
    found = [one.key.batch_id for one in Worker(store).claim(9)]
    assert [name for name in found if name != "batch_b"] == [f"batch_a-{number}" for number in (3, 3, 2, 2, 1, 1)]
    assert found[1::2][:3] == ["batch_b"] * 3


def test_a_priority_stands_for_what_comes_back(store: Store) -> None:
    fill(store, "a", 1, batch="a-1")
    fill(store, "a", 1, batch="a-2")
    worker = Worker(store)
    held = worker.claim(2)
    store.set_priority("batch_a-2", 1)
    worker.checkpoint(*(one.change(release=Release.WAITING, lanes="x") for one in held))
    assert [one.key.batch_id for one in worker.claim(2)] == ["batch_a-2", "batch_a-1"]


def test_only_a_batch_that_goes_on_can_be_moved(store: Store) -> None:
    batch_id = fill(store, "a", 1)
    Worker(store).run()
    with pytest.raises(WrongState, match="cannot be moved before others"):
        store.set_priority(batch_id, 1)
    with pytest.raises(NoSuchBatch):
        store.set_priority("batch_none", 1)


# -------------------------------------------------------------------------------------------------- what stands still


def test_accounts_behind_full_lanes_cost_those_with_free_ones_nothing(store: Store) -> None:
    for number in range(30):
        submit(store, f"batch_full{number}", [new_segment(0, lanes="full")], account=f"full{number}")
    submit(store, "batch_free", [new_segment(number, lanes="free") for number in range(3)], account="free")
    worker = Worker(store)
    assert owners(worker.claim(5, full_lanes=frozenset({"full"}))) == ["free"] * 3
    assert len(worker.claim(40)) == 30


def test_accounts_that_have_enough_are_left_out_however_urgent(store: Store) -> None:
    for number in range(30):
        fill(store, f"enough{number}", 2, deadline_ms=NOW_MS + 1_000 if number % 2 else 0)
    fill(store, "new", 2)
    worker = Worker(store)
    enough = frozenset(f"enough{number}" for number in range(30))
    assert owners(worker.claim(5, but_accounts=enough)) == ["new"] * 2
    assert worker.claim(5, but_accounts=enough) == []
    assert len(worker.claim(80)) == 60


def test_an_account_whose_batches_stand_still_leaves_the_queue_and_comes_back(store: Store) -> None:
    paused, closing = fill(store, "paused", 2), fill(store, "closing", 2)
    fill(store, "open", 1)
    store.pause_batch(paused, Pause(cause=PauseCause.USER, reason="", since_ms=1))
    store.request_close(closing, FailureKind.CANCELLED, 1)
    worker = Worker(store)
    assert owners(worker.claim(9)) == ["open"]
    assert worker.claim(9) == []
    assert store.backlog().fairness.waiting == 0
    store.resume_batch(paused)
    assert owners(worker.claim(9)) == ["paused"] * 2


def test_a_new_round_is_claimable_with_its_last_step_alone(store: Store) -> None:
    batch_id = fill(store, "a", 3)
    worker = Worker(store)
    worker.run()
    assert worker.claim() == []
    store.reopen(batch_id, frozenset({OK}), deadline_ms=NOW_MS + 1)
    fill(store, "b", 3)
    assert owners(worker.claim(9, now_ms=NOW_MS)) == ["a", "a", "a", "b", "b", "b"]


def test_accounts_that_are_excluded_are_passed_over(store: Store) -> None:
    for number in range(20):
        fill(store, f"x{number:02}", 1)
    lanes = new_segment(0).lane_set
    exclude = frozenset((f"batch_x{number:02}", lanes) for number in range(19))
    worker = Worker(store)
    assert owners(worker.claim(2, exclude=exclude)) == ["x19"]
    assert len(worker.claim(40)) == 19


def test_a_lost_segment_is_charged_once(store: Store) -> None:
    fill(store, "a", 4)
    fill(store, "b", 4)
    lost, worker = Worker(store, "lost"), Worker(store)
    assert owners(lost.claim(2)) == ["a", "b"]
    assert owners(worker.claim(1)) == ["a"]
    store.mark_dead([lost.id])
    # The lost ones come first, and cost nothing more: after each its account is as near as before.
    assert owners(worker.claim(2)) == ["b", "b"]
    assert owners(worker.claim(2)) == ["a", "a"]


def test_figures_say_how_far_accounts_are_apart(store: Store) -> None:
    fill(store, "a", 9)
    fill(store, "b", 9)
    worker = Worker(store)
    worker.finish(worker.one(), tokens=MUCH)
    figures = store.backlog()
    assert (figures.fairness.waiting, figures.fairness.at_bound) == (2, 0)
    assert figures.fairness.spread_tokens == 4 * MUCH
    assert figures.waiting_since_ms == 1_000


def test_a_claim_rides_with_what_is_given_back(store: Store) -> None:
    fill(store, "a", 2)
    worker = Worker(store)
    held = worker.claim(2)
    result = worker.checkpoint(*(one.change(release=Release.WAITING) for one in held), claim=ClaimRequest(limit=2))
    assert len(result.claimed) + len(worker.claim(2)) == 2
