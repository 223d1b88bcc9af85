"""Each store sits the same exam; after each test the laws are recounted for every batch in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from batchwright.ports.store import Store
from batchwright.store.open import open_store
from support.postgres import PostgresServer


@pytest.fixture(params=["file", "memory", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with ExitStack() as stack:
        place: Path | str = tmp_path / "state" / "batchwright.db"
        if request.param == "memory":
            place = ":memory:"
        elif request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            place = stack.enter_context(server.database())
        opened = open_store(place)
        yield opened
        for row in opened.find_batches(limit=1_000):
            assert opened.check(row.batch_id) == []
        opened.close()
