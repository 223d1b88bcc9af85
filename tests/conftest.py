"""Fixtures that all tests share: servers (the real model, PostgreSQL, PgBouncer, S3), started once for those that ask.

Two processes share the tests out between them, file by file (`addopts` in pyproject.toml), and each starts its own.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test has a clock in it: how long an example takes says how busy the machine is.
settings.register_profile("house", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

# Where these tests were begun by `nohup` or in a script's background, the processes they begin would not hear of a
# closed terminal, or of an interrupt, either.
for name, usual in (("SIGHUP", signal.SIG_DFL), ("SIGINT", signal.default_int_handler)):
    if hasattr(signal, name) and signal.getsignal(number := getattr(signal, name)) is signal.SIG_IGN:
        signal.signal(number, usual)

pytest_plugins = ["support.local_server", "support.postgres", "support.pgbouncer", "support.object_server"]

TESTS = Path(__file__).parent
LONG = ("world", "end_to_end", "exams", "server")
"""Folders whose files take longest: begun first, so that at the end neither process waits long for the other."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    folder = item.path.relative_to(TESTS).parts[0]
    return LONG.index(folder) if folder in LONG else len(LONG)
