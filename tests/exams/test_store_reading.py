"""The store's exam, reading: while others write, by prefix and id, usage; what was superseded is swept later."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest

from batchwright.core.errors import NoSuchBatch, StoreError
from batchwright.core.row_map import PENDING
from batchwright.ports.store import SegmentChange, Store
from batchwright.store import parts
from batchwright.store.open import open_store
from batchwright.wire import frames
from support.store_drive import (
    COST,
    FAILED,
    OK,
    Worker,
    accept,
    bodies,
    new_segment,
    spec,
    submit,
)


def test_unknown_batches_are_named(store: Store) -> None:
    with pytest.raises(NoSuchBatch, match="batch_x"):
        store.get_batch("batch_x")
    with pytest.raises(NoSuchBatch):
        store.read_segments("batch_x")
    with pytest.raises(NoSuchBatch):
        store.find_custom_id("batch_x", "a")
    with pytest.raises(NoSuchBatch):
        store.check("batch_x")


def test_batches_are_found_by_prefix_identity_and_source_newest_first(store: Store) -> None:
    submit(store, "batch_aa1", [new_segment(0)], spec(identity="i1", source="/in/x"))
    submit(store, "batch_aa2", [new_segment(0)], spec(identity="i2", source="/in/x"))
    accept(store, "batch_ab1", [new_segment(0)], spec(identity="i1"))

    def ids(**wish: object) -> list[str]:
        return [row.batch_id for row in store.find_batches(**wish)]  # type: ignore[arg-type]

    assert ids() == ["batch_ab1", "batch_aa2", "batch_aa1"]
    assert ids(limit=1) == ["batch_ab1"]
    assert ids(prefix="batch_aa") == ["batch_aa2", "batch_aa1"]
    assert ids(prefix="batch_a_") == []
    assert ids(identity="i1") == ["batch_ab1", "batch_aa1"]
    assert ids(source="/in/x", identity="i2") == ["batch_aa2"]
    assert ids(accepting=True) == ["batch_ab1"]


def test_every_commit_changes_the_mark(store: Store) -> None:
    marks = [store.changes()]
    submit(store, "batch_a", [new_segment(0)])
    marks.append(store.changes())
    Worker(store, "w").run()
    marks.append(store.changes())
    assert len(set(marks)) == 3


def test_nothing_but_a_commit_changes_the_mark(store_here: Store) -> None:
    store = store_here
    submit(store, "batch_a", [new_segment(0)])
    mark = store.changes()
    assert store.changes() == mark
    store.get_batch("batch_a")
    list(store.read_segments("batch_a", with_input=True))
    assert store.changes() == mark


def test_segments_are_read_in_order_from_a_row_on(store: Store) -> None:
    submit(store, "batch_a", [new_segment(number) for number in range(4)])
    assert [view.number for view in store.read_segments("batch_a")] == [0, 1, 2, 3]
    assert [view.number for view in store.read_segments("batch_a", first_index=7)] == [1, 2, 3]
    assert [view.number for view in store.read_segments("batch_a", first_index=8)] == [2, 3]
    views = list(store.read_segments("batch_a", first_index=12, with_input=True))
    assert [view.first_index for view in views] == [12]
    assert views[0].input is not None


def test_bodies_come_only_of_segments_with_a_row_they_are_asked_of(store: Store) -> None:
    submit(store, "batch_a", [new_segment(number, ids=["a", "b", "c", "d"]) for number in range(3)])
    worker = Worker(store)
    worker.finish(worker.one(), byte=FAILED)
    worker.finish(worker.one())

    def bodies(texts_of: frozenset[int] | None) -> list[bool]:
        views = list(store.read_segments("batch_a", with_input=True, texts_of=texts_of))
        inputs = [view.input for view in views if view.input is not None]
        assert [[row.custom_id for row in found.rows] for found in inputs] == [["a", "b", "c", "d"]] * 3
        assert [[row.line for row in found.rows] for found in inputs] == [[1, 2, 3, 4]] * 3
        return [all(row.body for row in found.rows) for found in inputs]

    assert bodies(None) == [True, True, True]
    assert bodies(frozenset()) == [False, False, False]
    assert bodies(frozenset({FAILED, PENDING})) == [True, False, True]


def test_segments_without_a_wanted_byte_are_skipped(store: Store) -> None:
    submit(store, "batch_a", [new_segment(number) for number in range(3)])
    worker = Worker(store)
    worker.finish(worker.one(), byte=FAILED)
    worker.finish(worker.one())
    assert [view.number for view in store.read_segments("batch_a", wanted=frozenset({FAILED}))] == [0]
    assert [view.number for view in store.read_segments("batch_a", wanted=frozenset({OK, PENDING}))] == [1, 2]
    assert list(store.read_segments("batch_a", wanted=frozenset())) == []


def test_a_reader_looks_no_further_than_it_is_told(store: Store) -> None:
    """However few of the rows before that are wanted."""
    submit(store, "batch_a", [new_segment(number) for number in range(4)])
    assert [view.number for view in store.read_segments("batch_a", first_index=5, end_index=9)] == [1, 2]
    assert [view.number for view in store.read_segments("batch_a", end_index=8)] == [0, 1]
    worker = Worker(store)
    for _ in range(4):
        last = worker.one()
        worker.finish(last, byte=FAILED if last.key.number == 3 else OK)
    failed = frozenset({FAILED})
    assert list(store.read_segments("batch_a", end_index=12, wanted=failed)) == []
    assert [view.number for view in store.read_segments("batch_a", end_index=13, wanted=failed)] == [3]


def test_a_reader_is_told_when_its_batch_is_removed(store: Store) -> None:
    """It would end early, and what was read would look like all of it."""
    submit(store, "batch_a", [new_segment(number) for number in range(5)])
    Worker(store).run()
    views = store.read_segments("batch_a")
    assert next(views).number == 0
    store.drop_batch("batch_a")
    with pytest.raises(NoSuchBatch):
        next(views)


def test_a_reader_goes_on_while_a_worker_writes_and_ends_a_batch(store: Store) -> None:
    submit(store, "batch_a", [new_segment(number) for number in range(5)])
    worker = Worker(store)
    views = store.read_segments("batch_a")
    assert next(views).row_map == bytes(4)
    worker.run()
    assert [view.row_map for view in views] == [bytes([OK] * 4)] * 4


def test_many_threads_may_read_and_write_at_once(store: Store) -> None:
    submit(store, "batch_a", [new_segment(number) for number in range(20)])
    failures: list[Exception] = []

    def work(name: str) -> None:
        try:
            Worker(store, name).run()
        except Exception as error:
            failures.append(error)

    def read() -> None:
        try:
            while not store.get_batch("batch_a").facts.settled:
                for view in store.read_segments("batch_a"):
                    ended = {row for row, byte in enumerate(view.row_map) if byte == OK}
                    assert ended == set(view.records)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(3)]
    threads.append(threading.Thread(target=read))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.get_batch("batch_a").tally.counts == {OK: 80}


def test_custom_ids_are_found_by_hash_and_then_by_text(store: Store) -> None:
    submit(
        store,
        "batch_a",
        [
            new_segment(0, ids=["a", "b", None, "a"]),
            new_segment(1),
            new_segment(2, ids=[None, "ä\N{SNOWMAN}", "b", None]),
        ],
    )
    assert store.find_custom_id("batch_a", "a") == [0, 3]
    assert store.find_custom_id("batch_a", "b") == [1, 10]
    assert store.find_custom_id("batch_a", "ä\N{SNOWMAN}") == [9]
    assert store.find_custom_id("batch_a", "c") == []


def test_equal_hashes_are_told_apart_by_text(store: Store) -> None:
    made = new_segment(0, ids=["a", "b", "c", "d"])
    as_if_all_were_a = made.id_hashes[:8] * 4
    accept(store, "batch_a", [])
    store.add_segments("batch_a", [replace(made, id_hashes=as_if_all_were_a)])
    assert store.find_custom_id("batch_a", "a") == [0]
    # A hash counts where a row's begins, not across two of them.
    shifted = bytes(3) + made.id_hashes[:8] + bytes(21)
    accept(store, "batch_b", [replace(made, id_hashes=shifted)])
    assert store.find_custom_id("batch_b", "a") == []


def test_usage_is_summed_over_workers(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    for name in ("one", "two"):
        worker = Worker(store, name)
        worker.finish(worker.one())
    (line,) = store.read_usage(since_day="2026-01-01", tenant="acme")
    assert (line.key.day, line.key.account, line.key.model, line.key.vendor) == (
        "2026-01-01",
        "vendor-account",
        "m",
        "openai",
    )
    assert (line.sum.answers, line.sum.cost_picousd) == (8, 8 * COST)
    assert store.read_usage(since_day="2026-01-02") == []
    assert store.read_usage(tenant="other") == []


def test_superseded_parts_are_deleted_an_hour_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MERGE_ABOVE", 1)
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    first, second = worker.claim(limit=2)
    worker.checkpoint(first.reserve(0, 1, 2, 3).change(), second.reserve(0, 1, 2, 3).change())
    for row in range(4):
        worker.checkpoint(first.answer(row).change(), second.answer(row).change(), now_ms=10_000)
    before = bodies(store, "batch_a")
    assert len(before) == 8
    assert store.sweep_step(10_000 + 3_599_999) == 0
    # The last part of four was never written: its rows went straight into the results.
    assert store.sweep_step(10_000 + 3_600_000, limit=2) == 2
    assert store.sweep_step(10_000 + 3_600_000) == 1
    assert store.sweep_step(10_000 + 3_600_000) == 0
    assert bodies(store, "batch_a") == before


def test_a_part_is_kept_while_one_of_its_segments_still_needs_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MERGE_ABOVE", 1)
    submit(store, "batch_a", [new_segment(0), new_segment(1)])
    worker = Worker(store)
    first, second = worker.claim(limit=2)
    worker.checkpoint(first.reserve(0, 1, 2, 3).change(), second.reserve(0, 1, 2, 3).change())
    worker.checkpoint(first.answer(0).change(), second.answer(0).change())
    worker.checkpoint(first.answer(1, 2, 3).change())
    assert store.sweep_step(99_000_000) == 0
    worker.checkpoint(second.answer(1, 2, 3).change())
    assert store.sweep_step(99_000_000) == 1
    assert len(bodies(store, "batch_a")) == 8


def test_a_segment_of_many_small_parts_settles_as_one_result_and_of_few_as_it_is(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0, parts.MERGE_ABOVE)])
    submit(store, "batch_b", [new_segment(0, parts.MERGE_ABOVE + 1)])
    worker = Worker(store)
    few, many = worker.claim(limit=2)
    worker.checkpoint(
        few.reserve(*range(parts.MERGE_ABOVE)).change(), many.reserve(*range(parts.MERGE_ABOVE + 1)).change()
    )
    for row in range(parts.MERGE_ABOVE):
        worker.checkpoint(few.answer(row).change())
    assert store.sweep_step(99_000_000) == 0
    for row in range(parts.MERGE_ABOVE + 1):
        worker.checkpoint(many.answer(row).change())
    assert store.sweep_step(99_000_000) == parts.MERGE_ABOVE
    assert (len(bodies(store, "batch_a")), len(bodies(store, "batch_b"))) == (parts.MERGE_ABOVE, parts.MERGE_ABOVE + 1)


def test_a_segment_over_eight_mib_settles_as_a_list_of_parts(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    found = worker.one()
    worker.checkpoint(found.reserve(0, 1, 2, 3).change())
    big = {row: os.urandom(5 * 1024 * 1024) for row in range(2)}
    for row, body in big.items():
        found.answer(row)
        found.fresh[row].body = body
        worker.checkpoint(found.change())
    worker.checkpoint(found.answer(2, 3).change())
    assert store.get_batch("batch_a").facts.settled
    assert store.sweep_step(99_000_000) == 0
    assert {row: bodies(store, "batch_a")[row] for row in big} == big


def test_the_check_finds_what_does_not_add_up(store: Store) -> None:
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    found = worker.one()
    worker.checkpoint(found.reserve(0, 1, 2, 3).change())
    found.answer(0)
    honest = found.change()
    lies = SegmentChange(
        key=honest.key,
        epoch=honest.epoch,
        row_map=honest.row_map,
        records=frames.pack_records([]),
        outcomes=1,
    )
    worker.checkpoint(lies)
    wrong = store.check("batch_a")
    assert any("the tallies count nothing, the row maps 1 plain" in sentence for sentence in wrong)
    assert any("the records count nothing" in sentence for sentence in wrong)
    worker.checkpoint(
        SegmentChange(
            key=honest.key, epoch=honest.epoch, row_map=honest.row_map, records=honest.records, tally=honest.tally
        )
    )
    assert store.check("batch_a") == []


def test_a_closed_store_says_so() -> None:
    opened = open_store(":memory:")
    opened.close()
    opened.close()
    with pytest.raises(StoreError, match="has been closed"):
        opened.get_batch("batch_a")
