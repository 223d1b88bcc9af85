"""Blobs: nothing is kept that nobody names, and no transaction holds too many of them."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from batchwright.store import blobs, intake, parts
from batchwright.store.open import open_store
from batchwright.store.schema import blob, metadata
from batchwright.store.sql_store import SqlStore
from batchwright.store.sqlite import SqliteConnections
from support.store_drive import Worker, new_segment, submit

MIB = 1024 * 1024


def keys(store: SqlStore) -> set[str]:
    """Without their day."""
    with store._connections.read() as connection:
        return {key.partition("/")[2] for key in connection.execute(select(blob.c.key)).scalars()}


def test_a_settled_batch_keeps_its_inputs_and_results_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MERGE_ABOVE", 1)
    store = open_store(":memory:")
    assert isinstance(store, SqlStore)
    submit(store, "batch_a", [new_segment(0, refused=[0]), new_segment(1)])
    worker = Worker(store)
    first, second = worker.claim(limit=2)
    worker.checkpoint(first.reserve(1, 2, 3).change(), second.reserve(0, 1, 2, 3).change())
    worker.checkpoint(first.answer(1).change(), second.answer(0, 1).change())
    worker.checkpoint(first.answer(2, 3).change(), second.answer(2).change())
    worker.checkpoint(second.answer(3).change())
    store.sweep_step(99_000_000)
    assert keys(store) == {
        "input/batch_a/0",
        "input/batch_a/1",
        "result/batch_a/0/0/1",
        "result/batch_a/1/0/1",
    }
    store.drop_batch("batch_a")
    assert keys(store) == set()
    store.close()


def test_a_segment_whose_answers_came_at_once_needs_no_result() -> None:
    store = open_store(":memory:")
    assert isinstance(store, SqlStore)
    submit(store, "batch_a", [new_segment(0)])
    worker = Worker(store)
    worker.finish(worker.one())
    assert keys(store) == {"input/batch_a/0", "part/w/1/3"}
    store.close()


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1, 1, 1], [3]),
        ([3, 3, 3, 3], [2, 2]),
        ([9, 1, 9, 9], [1, 1, 1, 1]),
        ([1, 9], [1, 1]),
        ([4, 3, 4], [2, 1]),
    ],
)
def test_segments_are_split_by_the_bytes_of_a_transaction(sizes: list[int], expected: list[int]) -> None:
    segments = [new_segment(number, padding=size * MIB) for number, size in enumerate(sizes)]
    pieces = list(intake.chunks(segments))
    assert [len(piece) for piece in pieces] == expected
    assert [new.number for piece in pieces for new in piece] == list(range(len(sizes)))


def test_a_blob_is_there_until_it_is_deleted() -> None:
    connections = SqliteConnections(None)
    with connections.write() as connection:
        metadata.create_all(connection)
        blobs.put(connection, "a", b"one")
        assert blobs.find(connection, "a") == b"one"
        blobs.discard(connection, ["a", "b"])
        blobs.discard(connection, [])
        with pytest.raises(KeyError):
            blobs.find(connection, "a")
    connections.close()
