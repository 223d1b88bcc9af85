from __future__ import annotations

from batchwright.core.prefix_order import PREFIX_BYTES, by_prefix


def order(bodies: list[bytes], rows: list[int] | None = None) -> list[int]:
    return by_prefix(range(len(bodies)) if rows is None else rows, bodies.__getitem__)


def test_rows_that_begin_alike_are_neighbours_and_equal_ones_stay_in_order() -> None:
    bodies = [b'{"messages":["%b"]}' % text for text in (b"rules b, 1", b"rules a, 1", b"rules b, 2", b"rules a, 1")]
    assert order(bodies) == [1, 3, 0, 2]
    assert order(bodies, [2, 3, 0]) == [3, 0, 2]


def test_what_stands_before_the_prompt_does_not_count() -> None:
    bodies = [
        b'{"seed":1,"messages":["b"]}',
        b'{"seed":2,"messages":["a"]}',
        b'{"seed":3,"messages":["b"]}',
        b'{"model":"m","prompt":"a"}',
        b"{}",
    ]
    assert order(bodies)[:3] == [1, 0, 2]
    assert sorted(order(bodies)) == [0, 1, 2, 3, 4]


def test_a_long_prompt_is_looked_at_so_far() -> None:
    long = b'{"messages":["' + b"x" * PREFIX_BYTES
    assert order([long + b"b", long + b"a"]) == [0, 1]
