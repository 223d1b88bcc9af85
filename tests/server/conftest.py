from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.scripted_vendor import ScriptedVendor
from support.service import DATABASE, RunningService, serving

OVER_A_SERVER = frozenset(
    {
        "test_budgets_hold",
        "test_cancel_reaches",
        "test_export",
        "test_infrai_idempotency",
        "test_infrai_watch",
        "test_openai_files",
        "test_resume_tries_again",
        "test_upload",
        "test_watching",
        "test_webhooks",
    }
)
"""Where it matters what the store is: these run over PostgreSQL too."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    over_both = metafunc.module.__name__.rpartition(".")[2] in OVER_A_SERVER
    metafunc.parametrize("database", ("file", "postgres") if over_both else ("file",), indirect=True)


@pytest.fixture(autouse=True)
def database(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the services of the test keep their batches in."""
    if request.param == "file":
        yield
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database() as url:
        before = DATABASE.set(url)
        yield
        DATABASE.reset(before)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    """With the simulator."""
    with serving(tmp_path) as service:
        yield service


@pytest.fixture
def vendor() -> Iterator[ScriptedVendor]:
    with ScriptedVendor() as vendor:
        yield vendor


@pytest.fixture
def scripted(tmp_path: Path, vendor: ScriptedVendor) -> Iterator[RunningService]:
    """With a vendor that does what rows tell it to."""
    with serving(tmp_path, vendor) as service:
        yield service
