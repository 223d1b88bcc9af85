"""Custom ids that occur more than once are found in a batch of any size, range of hashes by range."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.identity import hash_custom_ids
from batchwright.engine import repeated_ids
from batchwright.engine.repeated_ids import hash_number, repeated_hashes


def found(ids: list[str | None], *, at_most: int = 100) -> frozenset[int]:
    def read() -> Iterator[bytes]:
        for start in range(0, len(ids), 3):
            yield hash_custom_ids(ids[start : start + 3])

    return repeated_hashes(read, len(ids), at_most=at_most)


@given(st.lists(st.sampled_from("abcdefghij") | st.none()), st.integers(1, 4))
def test_exactly_the_repeated_ones_are_found(ids: list[str | None], range_ids: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeated_ids, "RANGE_IDS", range_ids)
        assert found(ids) == {hash_number(name) for name in ids if name is not None and ids.count(name) > 1}


def test_no_more_than_asked_for_are_found() -> None:
    assert len(found([f"{number // 2}" for number in range(400)], at_most=10)) == 10
