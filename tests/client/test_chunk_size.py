from __future__ import annotations

from batchwright.client.chunk_size import FIRST_ROWS, MOST_ROWS, PROBE_AFTER, ChunkSize


def test_a_service_that_blocks_half_a_second_a_row_gets_chunks_under_the_target() -> None:
    size = ChunkSize(target_s=30.0)
    for _ in range(20):
        rows = size.rows
        assert rows * 0.5 <= 30.0
        size.answered(rows, rows * 0.5)
    assert size.rows == 60


def test_a_service_that_answers_at_once_gets_as_many_as_there_may_be() -> None:
    size = ChunkSize()
    for _ in range(20):
        size.answered(size.rows, 0.01)
    assert size.rows == MOST_ROWS


def test_a_pace_that_falls_is_followed_at_once() -> None:
    size = ChunkSize(target_s=30.0)
    for _ in range(6):
        size.answered(size.rows, 0.01)
    size.answered(size.rows, size.rows * 3.0)
    assert size.rows == 10


def test_a_refusal_halves_and_success_probes_upward() -> None:
    size = ChunkSize()
    size.refused(FIRST_ROWS)
    assert size.rows == FIRST_ROWS // 2
    for _ in range(PROBE_AFTER - 1):
        size.answered(size.rows, 0.01)
        assert size.rows == FIRST_ROWS // 2, "not at once"
    size.answered(size.rows, 0.01)
    assert FIRST_ROWS // 2 < size.rows < FIRST_ROWS, "a little more is tried"
    size.refused(size.rows)
    assert 1 <= size.rows <= FIRST_ROWS // 2


def test_it_is_never_less_than_a_row() -> None:
    size = ChunkSize()
    for _ in range(20):
        size.refused(size.rows)
    assert size.rows == 1
    size.answered(1, 10_000.0)
    assert size.rows == 1


def test_a_chunk_that_was_not_full_says_nothing_of_the_size() -> None:
    size = ChunkSize()
    size.answered(3, 0.5)
    assert size.rows == FIRST_ROWS
