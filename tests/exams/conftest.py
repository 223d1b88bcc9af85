"""Each store sits the same exam; after each test the laws are recounted for every batch in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchwright.ports.store import Store
from batchwright.store.open import open_store
from support.pgbouncer import PgBouncer
from support.postgres import PostgresServer

PLACES = ("file", "memory", "postgres")
THROUGH_A_POOLER = frozenset({"test_store_work", "test_store_doubt", "test_store_intake", "test_store_closing"})
"""What work on batches is made of is tried through PgBouncer too."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        pooled = metafunc.module.__name__.rpartition(".")[2] in THROUGH_A_POOLER
        metafunc.parametrize("store", (*PLACES, "pgbouncer") if pooled else PLACES, indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        with server.database() as url:
            yield from opened(url)
    elif request.param == "pgbouncer":
        bouncer: PgBouncer = request.getfixturevalue("pgbouncer")
        server = request.getfixturevalue("postgres")
        with server.database() as url:
            yield from opened(bouncer.url(url))
    else:
        yield from opened(_place_here(request.param, tmp_path))


@pytest.fixture(params=["file", "memory"])
def store_here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """On this machine: for what only such a store promises."""
    yield from opened(_place_here(request.param, tmp_path))


def _place_here(kind: str, folder: Path) -> Path | str:
    return folder / "state" / "batchwright.db" if kind == "file" else ":memory:"


def opened(place: Path | str) -> Iterator[Store]:
    found = open_store(place)
    yield found
    for row in found.find_batches(limit=1_000):
        assert found.check(row.batch_id) == []
    found.close()
