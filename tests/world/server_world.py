"""The same world over a database of a real PostgreSQL server, and what can befall a store there.

One thing at a time, as ever: what processes of the world do meanwhile, they do between two commits. What several do at
the same moment is tested elsewhere. Faults come in where the driver is (`store.postgres` makes each connection by
`_connect`): connections are really ended, the server really says what is planted, and the store finds out as it does
elsewhere. Only time is the world's: a connection that hangs is one that costs so many seconds of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import psycopg

from batchwright.ports.store import Store
from batchwright.store import postgres
from batchwright.store.dialect import CHANNEL
from batchwright.store.open import open_store
from world.coverage import Coverage
from world.databases import Database, ServerDatabase
from world.server_faults import AT_A_TRANSACTION, FAILOVER_S, HANG_S, HANGS, SQLSTATES, StoreFault, make_server_plan
from world.world import World

FIRST_STATEMENTS = 6
"""A cut between two statements comes before one of these."""


class ServerWorld(World):
    def __init__(self, seed: int, url: str, coverage: Coverage | None = None) -> None:
        self.url = url
        self._stack = ExitStack()
        self._connect = postgres._connect
        self._away = False
        self._due: StoreFault | None = None
        """What befalls the transaction that is under way, or the next one."""
        self._statements = 0
        self._told = 0
        self._store_chance = Random(seed * 15_485_863 + 3)
        self._stack.enter_context(patch.object(postgres, "_connect", self._dial))
        super().__init__(seed, coverage)
        self.server_plan = make_server_plan(seed, self.plan.trouble_until_s)
        if self.server_plan.clock_jump is not None:
            self.auditor.patience_ms = 10**12
        if self.server_plan.deaf:
            self.coverage.hit(StoreFault.DEAF)

    def _open(self) -> Store:
        return open_store(self.url)

    def _database(self) -> Database:
        database = ServerDatabase(self.url)
        self._stack.callback(database.connection.close)
        return database

    def _hook_commits(self) -> None:
        self._connections._notices.close()
        self._connections._notices = self  # `told` and `looked` below
        self._connections._begun = self._watched(self._befallen(self._connections._begun))

    @property
    def clocks_jump(self) -> bool:
        return super().clocks_jump or self.server_plan.clock_jump is not None

    # ------------------------------------------------------------------------------------------- wake-ups, as `Notices`

    def told(self) -> int:
        return self._told + int(self.loop.time())

    def looked(self) -> int:
        return self._told + int(self.loop.time() * 5)

    def close(self) -> None:
        """There is no thread."""

    # ------------------------------------------------------------------------------------------------------ connections

    def _dial(self, url: str) -> Any:
        if self._away:
            raise psycopg.OperationalError("connection refused: the server restarts (simulated)")
        connection = self._connect(url)
        connection.cursor_factory = _cursor_of(self)
        connection.commit = self._commit(connection, connection.commit)
        return connection

    def statement(self, connection: psycopg.Connection[Any], text: str) -> None:
        """Told before each one."""
        if text.startswith("NOTIFY") and CHANNEL in text and not self.server_plan.deaf:
            self._told += 1
        due = self._due
        if due is None:
            return
        self._statements -= 1
        if self._statements > 0:
            return
        if due in (StoreFault.CUT_BEFORE, StoreFault.CUT_WITHIN):
            self._strike()
            self._end(connection)
        elif due in SQLSTATES:
            self._strike()
            _refuse(connection, SQLSTATES[due])

    def _commit(self, connection: psycopg.Connection[Any], commit: Callable[[], None]) -> Callable[[], None]:
        def tried() -> None:
            due = self._due
            if due in (StoreFault.CUT_AT_COMMIT, StoreFault.HANG):
                self._strike()
                self._end(connection)
                commit()
            elif due in (StoreFault.CUT_AFTER, StoreFault.HANG_LANDED):
                self._strike()
                commit()
                self._look_at_commit(self.actor)
                connection.close()
                raise psycopg.OperationalError("the connection is lost (simulated)")
            elif due is StoreFault.DISK_FULL_AT_COMMIT:
                self._strike()
                _refuse(connection, SQLSTATES[StoreFault.DISK_FULL])
            elif due in (StoreFault.FAILOVER, StoreFault.FAILOVER_LANDED):
                self._strike()
                if due is StoreFault.FAILOVER_LANDED:
                    commit()
                    self._look_at_commit(self.actor)
                self._fail_over()
                raise psycopg.OperationalError("the server is lost (simulated)")
            else:
                commit()

        return tried

    def _fail_over(self) -> None:
        """Everybody's connections are gone, and for a while there is nobody to connect to."""
        self._away = True
        self._end_all()
        self.loop.call_later(self._store_chance.uniform(*FAILOVER_S), self._is_back)

    def _is_back(self) -> None:
        self._away = False

    def _end_all(self) -> None:
        self.database.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        )

    def _strike(self) -> None:
        assert self._due is not None
        self.coverage.hit(self._due)
        self._due = None

    def _end(self, connection: psycopg.Connection[Any]) -> None:
        self.database.execute("SELECT pg_terminate_backend(?, 5000)", (connection.info.backend_pid,))

    def _befallen(self, original: Callable[[], Any]) -> Callable[[], Any]:
        @contextmanager
        def begun() -> Iterator[Any]:
            if self.actor is not None and self.troubled and self._due is None:
                chance = self._store_chance
                if chance.random() < self.server_plan.rate:
                    self._due = chance.choice(AT_A_TRANSACTION)
                    within = self._due is not StoreFault.CUT_BEFORE
                    self._statements = chance.randint(2, FIRST_STATEMENTS) if within else 1
            try:
                with original() as connection:
                    yield connection
            finally:
                self._due = None  # it had fewer statements than that

        return begun

    # ----------------------------------------------------------------------------------------------------- what befalls

    def commit_delays(self) -> tuple[float, float]:
        chance = self._store_chance
        if self.troubled and chance.random() < self.server_plan.hang_rate:
            return chance.uniform(*HANG_S), -1.0
        return super().commit_delays()

    def hang(self) -> None:
        """The transaction for which the loop has just waited is one whose connection was given up."""
        self._due = self._store_chance.choice(HANGS)

    def more(self) -> list[Any]:
        plan = self.server_plan
        tasks: list[Any] = [self._restart(*restart) for restart in plan.restarts]
        if plan.clock_jump is not None:
            at_s, by_ms = plan.clock_jump
            tasks.append(self._jump_all(at_s, by_ms))
        return tasks

    async def _restart(self, at_s: float, away_s: float) -> None:
        await asyncio.sleep(at_s)
        self.coverage.hit(StoreFault.RESTART)
        self._away = True
        self._end_all()
        await asyncio.sleep(away_s)
        self._is_back()

    async def _jump_all(self, at_s: float, by_ms: int) -> None:
        """Each process asks for the server's clock every 5 s: machines do not follow at the same moment."""
        await asyncio.sleep(at_s)
        self.coverage.hit(StoreFault.CLOCK)
        for host in self.plan.hosts:
            self.skew_ms[host] = self.skew_ms.get(host, 0) + by_ms
            await asyncio.sleep(self._store_chance.uniform(0.0, 5.0))

    def _bury(self) -> None:
        try:
            super()._bury()
        finally:
            self._stack.close()


def _refuse(connection: psycopg.Connection[Any], state: str) -> None:
    with psycopg.Cursor(connection) as cursor:
        cursor.execute(f"DO $$BEGIN RAISE EXCEPTION 'simulated' USING ERRCODE = '{state}'; END$$".encode())


def _cursor_of(world: ServerWorld) -> type[psycopg.Cursor[Any]]:
    class Cursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *given: Any, **more: Any) -> Any:
            world.statement(self.connection, query if isinstance(query, str) else str(query))
            return super().execute(query, *given, **more)

    return Cursor
