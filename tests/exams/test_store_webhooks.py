"""The store's exam, webhooks: what is written with a batch's turn and for whom, and the lease of a delivery."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from batchwright.core import row_map
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.errors import KeyReused
from batchwright.core.failures import FailureKind
from batchwright.core.tenants import Tenant
from batchwright.core.webhooks import EVERY_EVENT, EventType
from batchwright.ports.store import BatchRow, Idempotency, NewBatch, Store
from batchwright.ports.webhooks import (
    AttemptEnd,
    ClaimedDelivery,
    Delivery,
    DeliveryState,
    DeliveryWish,
    Webhook,
)
from support.store_drive import FAILED, INTAKE, OK, Worker, accept, new_segment, spec, submit

DAY_MS = 86_400_000
TAKEN = AttemptEnd(state=DeliveryState.DELIVERED, status=200, error="")


def add(
    store: Store,
    name: str = "a",
    *,
    account: str = "acme",
    events: frozenset[EventType] = EVERY_EVENT,
    url: str = "",
    batch_id: str = "",
) -> str:
    webhook = Webhook(
        webhook_id=f"wh_{name}",
        account=account,
        url=url or f"https://{name}.example/",
        batch_id=batch_id,
        events=events,
        secret="correct horse",
        headers={"X-A": "b"},
        created_at_ms=1_000,
    )
    store.add_webhook(webhook, None)
    return webhook.webhook_id


def page(store: Store, webhook_id: str = "wh_a") -> list[Delivery]:
    return store.list_deliveries(webhook_id, before=0, limit=100)


def told(store: Store, webhook_id: str = "wh_a") -> list[tuple[str, EventType, int]]:
    """Oldest first."""
    return [(item.batch_id, item.type, item.round) for item in reversed(page(store, webhook_id))]


def wish(
    *, owner: str = "one", now_ms: int = 5_000, limit: int = 10, per_url: int = 10, per_account: int = 10
) -> DeliveryWish:
    return DeliveryWish(
        owner=owner, now_ms=now_ms, lease_ms=60_000, limit=limit, per_url=per_url, per_account=per_account
    )


def run_batch(store: Store, batch_id: str = "batch_a", *, byte: int = OK, now_ms: int = 2_000) -> None:
    submit(store, batch_id, [new_segment(0)])
    Worker(store, batch_id).run(byte=byte, batch_id=batch_id, now_ms=now_ms)


def pause(cause: PauseCause, since_ms: int = 1_500) -> Pause:
    return Pause(cause=cause, reason="because", since_ms=since_ms)


def snapshot(claimed: ClaimedDelivery) -> BatchRow:
    return msgspec.msgpack.decode(claimed.snapshot, type=BatchRow)


# ---------------------------------------------------------------------------------------------------------- events


def test_an_end_is_written_with_the_batch_as_it_was(store: Store) -> None:
    add(store)
    run_batch(store)
    (item,) = page(store)
    assert (item.type, item.created_at_ms, item.state) == (EventType.COMPLETED, 2_000, DeliveryState.PENDING)
    (claimed,) = store.claim_deliveries(wish())
    assert replace(snapshot(claimed), pauses=()) == store.get_batch("batch_a")
    assert snapshot(claimed).settled_at_ms == 2_000
    assert claimed.webhook.secret == "correct horse"
    assert "correct horse" not in repr(claimed)


def test_only_webhooks_of_the_account_that_were_there_are_told(store: Store) -> None:
    add(store, "theirs", account="other")
    run_batch(store)
    add(store, "late")
    assert page(store, "wh_theirs") == page(store, "wh_late") == []


def test_only_chosen_events(store: Store) -> None:
    add(store, "bad", events=frozenset({EventType.FAILED, EventType.PARTIAL}))
    run_batch(store, "batch_a")
    run_batch(store, "batch_b", byte=FAILED)
    assert told(store, "wh_bad") == [("batch_b", EventType.FAILED, 0)]


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (FailureKind.CANCELLED, EventType.CANCELLED),
        (FailureKind.EXPIRED, EventType.EXPIRED),
        (FailureKind.STOPPED, EventType.FAILED),
    ],
)
def test_a_batch_that_is_closed(store: Store, kind: FailureKind, event: EventType) -> None:
    add(store)
    submit(store, "batch_a", [new_segment(0)])
    store.request_close("batch_a", kind, 2_000)
    assert told(store) == []
    store.close_step("batch_a", 2_000)
    assert told(store) == [("batch_a", event, 0)]


def test_a_batch_of_refused_rows_alone(store: Store) -> None:
    add(store)
    submit(store, "batch_a", [new_segment(0, refused=range(4))])
    assert told(store) == [("batch_a", EventType.FAILED, 0)]


def test_each_round_and_its_end(store: Store) -> None:
    add(store)
    run_batch(store, byte=FAILED)
    store.reopen("batch_a", row_map.RETRIED_BYTES)
    Worker(store, "again").run(now_ms=4_000)
    assert told(store) == [("batch_a", EventType.FAILED, 0), ("batch_a", EventType.COMPLETED, 1)]
    assert len({item.event_id for item in page(store)}) == 2


def test_an_event_has_one_id_for_all_who_listen(store: Store) -> None:
    add(store, "a")
    add(store, "b")
    run_batch(store)
    (one,), (other,) = page(store, "wh_a"), page(store, "wh_b")
    assert one.event_id == other.event_id
    assert one.delivery_id != other.delivery_id


def test_the_first_pause_fact_is_told_and_each_pause_anew(store: Store) -> None:
    add(store)
    submit(store, "batch_a", [new_segment(0)])
    store.pause_batch("batch_a", pause(PauseCause.USER, 1_500))
    store.pause_batch("batch_a", pause(PauseCause.USER, 1_600))
    store.pause_batch("batch_a", pause(PauseCause.BUDGET, 1_700))
    assert told(store) == [("batch_a", EventType.PAUSED, 0)]
    (claimed,) = store.claim_deliveries(wish())
    assert [fact.reason for fact in snapshot(claimed).pauses] == ["because"]
    store.resume_batch("batch_a")
    store.pause_batch("batch_a", pause(PauseCause.USER, 1_800))
    assert [item.created_at_ms for item in page(store)] == [1_800, 1_500]


def test_a_worker_pauses_the_batch(store: Store) -> None:
    add(store)
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    held = worker.one()
    fact = ("batch_a", pause(PauseCause.GATE))
    worker.checkpoint(held.reserve(0).change(), pauses=[fact])
    worker.checkpoint(held.answer(0).change(), pauses=[fact])
    assert told(store) == [("batch_a", EventType.PAUSED, 0)]


def test_a_pause_of_what_is_being_cancelled_is_none(store: Store) -> None:
    add(store)
    submit(store, "batch_a", [new_segment(0)])
    store.request_close("batch_a", FailureKind.CANCELLED, 2_000)
    store.pause_batch("batch_a", pause(PauseCause.USER))
    assert told(store) == []


# ---------------------------------------------------------------------------------------------- one batch's webhook


def accept_with_own(store: Store, batch_id: str) -> Webhook:
    webhook = Webhook(
        webhook_id=f"wh_{batch_id}",
        account="acme",
        url="https://own.example/",
        secret="correct horse",
        batch_id=batch_id,
        created_at_ms=1_000,
    )
    batch = NewBatch(
        batch_id=batch_id, tenant=Tenant("acme"), spec=spec(), created_at_ms=1_000, owner=INTAKE, webhook=webhook
    )
    store.create_batch(batch, [new_segment(0)])
    return webhook


def test_a_batchs_own_webhook(store: Store) -> None:
    own = accept_with_own(store, "batch_a")
    store.close_intake("batch_a", 1_000)
    Worker(store).run(batch_id="batch_a")
    run_batch(store, "batch_b")
    assert told(store, own.webhook_id) == [("batch_a", EventType.COMPLETED, 0)]
    assert store.list_webhooks("acme") == []


def test_a_batchs_own_webhook_goes_with_it_but_not_before_it_has_told(store: Store) -> None:
    own = accept_with_own(store, "batch_a")
    store.close_intake("batch_a", 1_000)
    Worker(store).run(batch_id="batch_a")
    store.drop_batch("batch_a")
    (claimed,) = store.claim_deliveries(wish())
    assert store.finish_delivery(claimed, TAKEN, 6_000)
    assert store.find_webhook("acme", own.webhook_id) is None


def test_a_refused_intake_leaves_no_webhook(store: Store) -> None:
    own = accept_with_own(store, "batch_a")
    store.drop_batch("batch_a")
    assert store.find_webhook("acme", own.webhook_id) is None


# --------------------------------------------------------------------------------------------------------- the lease


def test_a_claim_is_a_lease(store: Store) -> None:
    add(store)
    run_batch(store)
    assert not store.has_due_deliveries(1_999)
    assert store.has_due_deliveries(2_000)
    (claimed,) = store.claim_deliveries(wish(owner="one"))
    assert store.delivery_owners() == {"one"}
    assert not store.has_due_deliveries(64_999)
    assert store.claim_deliveries(wish(owner="two", now_ms=64_999)) == []
    (again,) = store.claim_deliveries(wish(owner="two", now_ms=65_000))
    assert not store.finish_delivery(claimed, TAKEN, 66_000)
    assert page(store)[0].state is DeliveryState.PENDING
    assert store.finish_delivery(again, TAKEN, 66_000)
    assert (page(store)[0].state, page(store)[0].attempts) == (DeliveryState.DELIVERED, 1)
    assert not store.has_due_deliveries(10**12)


def test_what_a_gone_process_held_is_due_at_once(store: Store) -> None:
    add(store)
    run_batch(store)
    store.claim_deliveries(wish(owner="one"))
    assert store.release_deliveries("two", 6_000) == 0
    assert store.release_deliveries("one", 6_000) == 1
    assert len(store.claim_deliveries(wish(owner="two", now_ms=6_000))) == 1


def test_a_failed_attempt_is_due_later(store: Store) -> None:
    add(store)
    run_batch(store)
    (claimed,) = store.claim_deliveries(wish())
    end = AttemptEnd(state=DeliveryState.PENDING, due_ms=9_000, waits_used=1, status=500, error="it answered 500")
    store.finish_delivery(claimed, end, 6_000)
    item = page(store)[0]
    assert (item.attempts, item.waits_used, item.due_ms, item.last_status, item.last_error, item.last_attempt_ms) == (
        *(1, 1, 9_000, 500, "it answered 500", 6_000),
    )
    assert store.claim_deliveries(wish(now_ms=8_999)) == []
    assert store.claim_deliveries(wish(now_ms=9_000))[0].delivery.waits_used == 1


def test_a_replay_begins_anew_under_the_same_event(store: Store) -> None:
    add(store)
    run_batch(store)
    (claimed,) = store.claim_deliveries(wish())
    delivery_id = claimed.delivery.delivery_id
    assert store.replay_delivery("other", delivery_id, 6_000) is None
    replayed = store.replay_delivery("acme", delivery_id, 6_000)
    assert replayed is not None
    assert (replayed.due_ms, replayed.waits_used, replayed.event_id) == (6_000, 0, claimed.delivery.event_id)
    # The attempt that was under way does not end the replay.
    assert not store.finish_delivery(claimed, TAKEN, 6_100)
    (again,) = store.claim_deliveries(wish(now_ms=6_200))
    assert store.finish_delivery(again, TAKEN, 6_300)


def test_one_webhook_leaves_room_for_others(store: Store) -> None:
    add(store, "a")
    for number in range(4):
        run_batch(store, f"batch_{number}", now_ms=2_000 + number)
    add(store, "b")
    run_batch(store, "batch_z", now_ms=3_000)
    chosen = store.claim_deliveries(wish(limit=3, per_url=2))
    assert [(one.webhook.webhook_id, one.delivery.batch_id) for one in chosen] == [
        ("wh_a", "batch_0"),
        ("wh_a", "batch_1"),
        ("wh_b", "batch_z"),
    ]
    excluded = replace(wish(), but_urls=frozenset({"https://a.example/"}))
    assert store.claim_deliveries(excluded) == []


def test_batches_own_webhooks_to_one_address_share_its_turns(store: Store) -> None:
    for number in range(4):
        add(store, f"own{number}", url="https://hangs.example/", batch_id=f"batch_{number}")
        run_batch(store, f"batch_{number}", now_ms=2_000 + number)
    assert len(store.claim_deliveries(wish(per_url=2))) == 2


def test_one_account_with_many_addresses_leaves_room_for_others(store: Store) -> None:
    for number in range(6):
        add(store, f"own{number}", batch_id=f"batch_{number}")
        run_batch(store, f"batch_{number}", now_ms=2_000 + number)
    add(store, "theirs", account="other")
    submit(store, "batch_z", [new_segment(0)], account="other")
    Worker(store, "batch_z").run(batch_id="batch_z", now_ms=3_000)
    chosen = [one.webhook.account for one in store.claim_deliveries(wish(limit=5, per_account=3))]
    assert chosen == ["acme"] * 3 + ["other"]
    assert store.claim_deliveries(replace(wish(), but_accounts=frozenset({"acme"}))) == []
    assert len(store.claim_deliveries(wish())) == 3


# ------------------------------------------------------------------------------------------------------------ the end


def test_a_deleted_webhook_sends_no_more(store: Store) -> None:
    add(store)
    run_batch(store)
    (claimed,) = store.claim_deliveries(wish())
    assert not store.delete_webhook("other", "wh_a")
    assert store.delete_webhook("acme", "wh_a")
    assert not store.delete_webhook("acme", "wh_a")
    assert page(store) == []
    assert not store.finish_delivery(claimed, TAKEN, 6_000)
    assert not store.has_due_deliveries(10**12)


def test_deliveries_are_paged_newest_first_and_forgotten_after_a_month(store: Store) -> None:
    add(store)
    for number in range(3):
        run_batch(store, f"batch_{number}", now_ms=2_000 + number)
    newest = store.list_deliveries("wh_a", before=0, limit=2)
    rest = store.list_deliveries("wh_a", before=newest[-1].seq, limit=2)
    assert [item.batch_id for item in (*newest, *rest)] == ["batch_2", "batch_1", "batch_0"]
    store.sweep_step(2_001 + 30 * DAY_MS)
    assert [item.batch_id for item in page(store)] == ["batch_2", "batch_1"]


def test_a_key_that_stands_for_something_else(store: Store) -> None:
    accept(store, "batch_a", [])
    webhook = Webhook(webhook_id="wh_a", account="acme", url="https://a.example/", secret="s", created_at_ms=1_000)
    store.add_webhook(webhook, Idempotency("k", "digest"))
    with pytest.raises(KeyReused):
        store.add_webhook(replace(webhook, webhook_id="wh_b"), Idempotency("k", "digest"))
    assert [found.webhook_id for found in store.list_webhooks("acme")] == ["wh_a"]
