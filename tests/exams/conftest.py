"""Each store sits the same exam; after each test the laws are recounted for every batch in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchwright.ports.store import Store
from batchwright.store.open import open_store


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "state" / "batchwright.db" if request.param == "file" else ":memory:")
    yield opened
    for row in opened.find_batches(limit=1_000):
        assert opened.check(row.batch_id) == []
    opened.close()
