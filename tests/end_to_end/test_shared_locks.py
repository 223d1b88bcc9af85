"""Locks that two places on one database respect: a file in each, a lease between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from batchwright.assemble.machine import Machine, open_machine
from batchwright.assemble.shared_locks import LEASE_MS, SharedLocks, open_locks
from support.postgres import PostgresServer
from support.settings_places import Places


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as found:
        yield found


def place(folder: Path, url: str) -> Places:
    folder.mkdir()
    return Places(folder, environment={"BATCHWRIGHT_HOME": str(folder / "state"), "BATCHWRIGHT_DATABASE": url})


def test_what_one_place_holds_another_cannot_take(tmp_path: Path, url: str) -> None:
    async def with_both() -> None:
        async with AsyncExitStack() as stack:
            machines: list[Machine] = []
            for name in ("one", "other"):
                settings = place(tmp_path / name, url).load(simulate=True)
                machines.append(await stack.enter_async_context(open_machine(settings)))
            one, other = (SharedLocks(machine) for machine in machines)
            assert machines[0].host != machines[1].host
            held = one.take("batch_a", holder="a test")
            assert held is not None
            assert one.take("batch_a", holder="a test") is None
            assert other.take("batch_a", holder="a test") is None
            assert other.take("batch_b", holder="a test") is not None
            held.release()
            assert one.is_free("batch_a")
            again = one.take("batch_a", holder="a test")  # the lease is the place's
            assert again is not None
            again.release()
            assert other.take("batch_a", holder="a test") is None, "elsewhere it runs out first"
            machines[1].clock.behind_ms += LEASE_MS + 1
            assert other.take("batch_a", holder="a test") is not None

    asyncio.run(with_both())


def test_on_a_file_they_are_the_folders_own(tmp_path: Path) -> None:
    async def alone() -> None:
        places = Places(tmp_path, environment={"BATCHWRIGHT_HOME": str(tmp_path / "state")})
        async with open_machine(places.load(simulate=True)) as machine, open_locks(machine, print) as locks:
            assert locks is machine.locks

    asyncio.run(alone())
