"""Each store sits the same exam; after each test the laws are recounted for every batch in it.

With bodies in an object store every body is put there, however small.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchwright.ports.store import Store
from batchwright.store import bodies
from batchwright.store.object_store import ObjectPlace
from batchwright.store.open import Outlying, open_store
from support.object_server import ObjectServer, outlying
from support.pgbouncer import PgBouncer
from support.postgres import PostgresServer

PLACES = ("file", "memory", "postgres", "file+folder", "postgres+s3")
THROUGH_A_POOLER = frozenset({"test_store_work", "test_store_doubt", "test_store_intake", "test_store_closing"})
"""What work on batches is made of is tried through PgBouncer too."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        pooled = metafunc.module.__name__.rpartition(".")[2] in THROUGH_A_POOLER
        metafunc.parametrize("store", (*PLACES, "pgbouncer") if pooled else PLACES, indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    kind, _, beside = request.param.partition("+")
    objects = None
    if beside:
        monkeypatch.setattr(bodies, "INLINE_BYTES", 0)
        objects = outlying(_place_beside(request, beside, tmp_path))
    if kind in ("postgres", "pgbouncer"):
        server: PostgresServer = request.getfixturevalue("postgres")
        with server.database() as url:
            yield from opened(_pooled(request, url) if kind == "pgbouncer" else url, objects)
    else:
        yield from opened(_place_here(kind, tmp_path), objects)


@pytest.fixture(params=["file", "memory"])
def store_here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """On this machine: for what only such a store promises."""
    yield from opened(_place_here(request.param, tmp_path))


def _place_here(kind: str, folder: Path) -> Path | str:
    return folder / "state" / "batchwright.db" if kind == "file" else ":memory:"


def _pooled(request: pytest.FixtureRequest, url: str) -> str:
    bouncer: PgBouncer = request.getfixturevalue("pgbouncer")
    return bouncer.url(url)


def _place_beside(request: pytest.FixtureRequest, kind: str, folder: Path) -> ObjectPlace:
    if kind == "folder":
        return ObjectPlace(url=f"file://{folder}/objects")
    server: ObjectServer = request.getfixturevalue("object_server")
    return server.place()


def opened(place: Path | str, objects: Outlying | None = None) -> Iterator[Store]:
    found = open_store(place, objects)
    yield found
    for row in found.find_batches(limit=1_000):
        assert found.check(row.batch_id) == []
    found.close()
