"""Repeated ids are found through sorted runs on disk, and told apart as text."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.errors import StoreError
from batchwright.core.row_options import RowOptions
from batchwright.runner import custom_ids
from batchwright.runner.custom_ids import CustomIds, FirstLines
from batchwright.runner.source import open_source
from support.sources import row


@given(st.lists(st.integers(0, 60).map(str), max_size=300), st.integers(1, 50), st.integers(1, 20))
def test_exactly_the_repeated_ones(ids: list[str], run_ids: int, chunk: int) -> None:
    with CustomIds(None, run_ids=run_ids) as found:
        for start in range(0, len(ids), chunk):
            found.add(ids[start : start + chunk])
        assert found.repeated() == {hash(text) for text, count in Counter(ids).items() if count > 1}


def test_many_runs(tmp_path: Path) -> None:
    ids = [f"row-{n}" for n in range(50_000)]
    random.Random(7).shuffle(ids)
    with CustomIds(tmp_path, run_ids=500) as found:
        for start in range(0, len(ids), 100):
            found.add(ids[start : start + 100])
        assert found.repeated() == frozenset()
    with CustomIds(tmp_path, run_ids=500) as found:
        found.add(ids)
        found.add([ids[3], ids[40_000]])
        assert found.repeated() == {hash(ids[3]), hash(ids[40_000])}
    assert list(tmp_path.iterdir()) == []


def test_equal_hashes_are_compared_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_ids, "hash", len, raising=False)
    with CustomIds(None) as found:
        found.add(["aa", "bb", "c", "bb"])
        repeated = found.repeated()
    assert repeated == {2}
    first = FirstLines(repeated)
    assert [first.earlier(text, line) for line, text in enumerate(["aa", "bb", "c", "bb"], start=1)] == [0, 0, 0, 2]


def test_too_many_repeated_ids_are_not_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_ids, "MAX_REPEATED", 50)
    with CustomIds(None, run_ids=64) as found:
        found.add([str(n % 2000) for n in range(4000)])
        assert 50 < len(found.repeated()) < 2000


def test_a_temporary_folder_that_takes_nothing_is_no_fault_of_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(StoreError, match=f"cannot be written to the folder {gone}: No such file"):
        open_source([{"prompt": "x"}], RowOptions(), spool_dir=gone)
    monkeypatch.setattr(custom_ids.CustomIds.__init__, "__kwdefaults__", {"run_ids": 2})
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"".join(row(str(number)) + b"\n" for number in range(9)))
    with open_source(rows, RowOptions(), spool_dir=gone) as source, pytest.raises(StoreError, match="TMPDIR"):
        source.validate()
