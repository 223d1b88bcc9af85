"""The store's exam, intake: created, filled, closed, dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from batchwright.core.errors import NoSuchBatch, WrongState
from batchwright.core.failures import FailureKind
from batchwright.core.tenants import Tenant
from batchwright.core.worker_id import WorkerId
from batchwright.ports.store import NewBatch, Store
from support.store_drive import INTAKE, OK, REFUSED_ROW, Worker, maps, new_segment, spec, submit

MIB = 1024 * 1024


def batch(batch_id: str = "batch_a") -> NewBatch:
    return NewBatch(batch_id=batch_id, tenant=Tenant("acme"), spec=spec(), created_at_ms=1_000, owner=INTAKE)


def test_a_batch_is_accepting_until_its_intake_is_closed(store: Store) -> None:
    store.create_batch(batch())
    store.add_segments("batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    row = store.get_batch("batch_a")
    assert row.facts.accepting
    assert row.owner == str(INTAKE)
    assert (row.facts.total, row.segments, row.segments_open) == (8, 2, 2)
    assert worker.claim() == []

    store.close_intake("batch_a", 1_500)
    row = store.get_batch("batch_a")
    assert not row.facts.accepting
    assert row.owner == ""
    assert len(worker.claim()) == 1
    with pytest.raises(WrongState):
        store.close_intake("batch_a", 1_500)
    with pytest.raises(WrongState):
        store.add_segments("batch_a", [new_segment(2)])


def test_asked_again_after_a_lost_reply_intake_changes_nothing(store: Store) -> None:
    for _ in range(2):
        store.create_batch(batch(), [new_segment(0, refused=[1])])
    for _ in range(2):
        store.add_segments("batch_a", [new_segment(1), new_segment(2)])
    row = store.get_batch("batch_a")
    assert (row.facts.total, row.segments) == (12, 3)
    assert row.tally.counts == {REFUSED_ROW: 1}
    store.create_batch(batch(), [new_segment(0, refused=[1])], close=True)
    with pytest.raises(WrongState, match="exists already"):
        store.create_batch(batch(), [new_segment(0)])


def test_another_owner_cannot_go_on_with_an_intake(store: Store) -> None:
    store.create_batch(batch())
    with pytest.raises(WrongState, match="exists already"):
        store.create_batch(replace(batch(), owner=WorkerId("intake", "2")))


@pytest.mark.parametrize(
    "segment",
    [new_segment(2), new_segment(1, first_index=5), new_segment(0, padding=3)],
    ids=["gap", "wrong row", "another segment of a number that is there"],
)
def test_segments_must_go_on_where_the_last_ended(store: Store, segment: object) -> None:
    store.create_batch(batch(), [new_segment(0)])
    with pytest.raises(WrongState, match="goes on with segment 1 at row 4"):
        store.add_segments("batch_a", [segment])  # type: ignore[list-item]
    assert store.get_batch("batch_a").segments == 1


def test_a_batch_whose_rows_all_ended_at_intake_settles_at_once(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0, refused=range(4))])
    row = store.get_batch("batch_a")
    assert row.facts.settled
    assert row.settled_at_ms == 1_000
    assert row.tally.counts == {REFUSED_ROW: 4}
    (view,) = store.read_segments("batch_a", with_input=True)
    assert [record.message for record in view.records.values()] == ["no body"] * 4
    assert view.input is not None
    assert view.input.rows[3].body == b'{"row":3}'


def test_a_batch_without_rows_settles_at_once(store: Store) -> None:
    submit(store, "batch_a", [])
    assert store.get_batch("batch_a").facts.settled


def test_a_refused_row_keeps_its_record_beside_those_that_are_answered(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0, refused=[2])])
    Worker(store).run()
    assert maps(store, "batch_a") == [bytes([OK, OK, REFUSED_ROW, OK])]
    (view,) = store.read_segments("batch_a")
    assert view.records[2].message == "no body"


def test_an_intake_over_eight_mib_is_split_and_still_whole(store: Store) -> None:
    submit(store, "batch_a", [new_segment(number, padding=3 * MIB) for number in range(4)])
    row = store.get_batch("batch_a")
    assert (row.segments, row.facts.accepting) == (4, False)
    assert Worker(store).run() == 4


def test_dropped_batches_leave_nothing_behind(store: Store) -> None:
    store.create_batch(batch("batch_a"), [new_segment(0, ids=["x", None, None, None])])
    submit(store, "batch_b", [new_segment(0)])
    worker = Worker(store)
    worker.run()
    store.drop_batch("batch_a")
    store.drop_batch("batch_b")
    for batch_id in ("batch_a", "batch_b"):
        with pytest.raises(NoSuchBatch):
            store.get_batch(batch_id)
    assert store.find_batches() == []
    store.create_batch(batch("batch_a"), [new_segment(0)], close=True)
    assert worker.run() == 1


def test_a_part_that_two_batches_share_outlives_one_of_them(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    submit(store, "batch_b", [new_segment(0)])
    worker = Worker(store)
    first, second = worker.claim(limit=2)
    assert {first.key.batch_id, second.key.batch_id} == {"batch_a", "batch_b"}
    worker.checkpoint(first.reserve(0, 1, 2, 3).change(), second.reserve(0, 1, 2, 3).change())
    worker.checkpoint(first.answer(0, 1, 2, 3).change(), second.answer(0, 1, 2, 3).change())
    store.drop_batch("batch_a")
    (view,) = store.read_segments("batch_b")
    assert len(view.records) == 4


def test_only_an_accepting_or_a_settled_batch_can_be_dropped(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    with pytest.raises(WrongState, match="Cancel it first"):
        store.drop_batch("batch_a")
    store.request_close("batch_a", FailureKind.CANCELLED, 2_000)
    store.close_step("batch_a", 2_000)
    store.drop_batch("batch_a")


@pytest.mark.parametrize(
    "name", ["m\x00x", "\x01", "\x00\x01\x03\x01\x02\x00", "\x01\x03", "\x7f\u2028é\U0001f600", "'%s%%\\"]
)
def test_a_text_comes_back_as_it_was_whatever_stands_in_it(store: Store, name: str) -> None:
    of = spec(source=name, identity=name)
    submit(store, "batch_a", [new_segment(0, lanes=f"openai|KEY|{name}")], of)
    assert store.open_lane_sets("batch_a") == {f"openai|KEY|{name}"}
    assert [row.spec.source for row in store.find_batches(source=name, identity=name)] == [name]
    (held,) = Worker(store).claim()
    assert held.claimed.lane_set == f"openai|KEY|{name}"
