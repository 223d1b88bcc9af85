"""Locks of this place that processes elsewhere on the same database respect: a file here, a lease there.

The file tells the processes that share this state folder at once when its holder has gone. The lease is the place's,
not the process's, so that it is never in the way of them; elsewhere it has to run out first.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from batchwright.assemble.beside import beside
from batchwright.assemble.machine import Machine
from batchwright.core.errors import BatchwrightError
from batchwright.core.worker_id import WorkerId
from batchwright.ports.locks import HeldLock, TakingLocks

LEASE_MS = 30_000
RENEW_EVERY_S = 10.0


class SharedLocks:
    """Implements `ports.locks.TakingLocks`. `take` asks the database: not to be called on a loop."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._place = WorkerId(machine.host, "place")
        self._held: set[str] = set()
        self._guard = threading.Lock()

    def is_free(self, name: str) -> bool:
        return self._machine.locks.is_free(name)

    def take(self, name: str, *, holder: str) -> HeldLock | None:
        file = self._machine.locks.take(name, holder=holder)
        if file is None:
            return None
        try:
            is_ours = self._renew(name)
        except BaseException:
            file.release()
            raise
        if not is_ours:
            file.release()
            return None
        with self._guard:
            self._held.add(name)
        return _Held(self, file, name)

    def let_go(self, name: str) -> None:
        """The lease runs out by itself; this place may have it again meanwhile."""
        with self._guard:
            self._held.discard(name)

    async def renewing(self) -> None:
        """Until it is cancelled. Where the database is away for longer than the lease, another place may begin: what is
        written from here then is refused, or the same."""
        while True:
            await self._machine.clock.sleep(RENEW_EVERY_S)
            with self._guard:
                names = sorted(self._held)
            with suppress(BatchwrightError):
                for name in names:
                    await self._machine.beats.do(lambda name=name: self._renew(name))  # type: ignore[misc]  # no type for a default

    def _renew(self, name: str) -> bool:
        return self._machine.store.take_lease(f"lock {name}", self._place, self._machine.clock.now_ms(), LEASE_MS)


class _Held:
    def __init__(self, locks: SharedLocks, file: HeldLock, name: str) -> None:
        self._locks, self._file, self._name = locks, file, name

    def release(self) -> None:
        self._locks.let_go(self._name)
        self._file.release()


@asynccontextmanager
async def open_locks(machine: Machine, say: Callable[[str], None]) -> AsyncIterator[TakingLocks]:
    """Those of the state folder; on a database that others share, such as they respect too."""
    if not machine.settings.database:
        yield machine.locks
        return
    locks = SharedLocks(machine)
    async with beside("renewing of leases", locks.renewing, clock=machine.clock, say=say):
        yield locks
