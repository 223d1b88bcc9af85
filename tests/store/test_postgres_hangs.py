"""A server that says nothing and closes nothing: whoever waits for it is told in time, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from sqlalchemy import Connection

from batchwright.core.errors import StoreError
from batchwright.core.worker_id import WorkerId
from batchwright.store import postgres_driver
from batchwright.store.connections import Connections
from batchwright.store.open import open_store
from support.postgres import PostgresServer
from support.stalling_proxy import StallingProxy
from support.store_drive import Worker, new_segment, submit


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as found:
        yield found


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[StallingProxy]:
    with StallingProxy(postgres.port) as found:
        yield found


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("READING", "WRITING"):
        given = getattr(postgres_driver, name)
        monkeypatch.setattr(postgres_driver, name, replace(given, silent_s=0.3))


SAYS_NOTHING = r"cannot be reached, or broke off \(.*said nothing for 0.3 s"


@pytest.mark.usefixtures("impatient")
def test_a_server_that_says_nothing_is_given_up(url: str, proxy: StallingProxy) -> None:
    store = open_store(f"{proxy.url(url)}?connect_timeout=2")
    submit(store, "batch_a", [new_segment(0)])
    proxy.stall()
    for ask in (lambda: store.get_batch("batch_a"), lambda: store.take_lease("sweep", WorkerId("me", "0"), 1, 10)):
        with pytest.raises(StoreError):
            ask()
    proxy.go_on()
    assert Worker(store).run() == 1
    store.close()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("last", ["statement", "commit"])
def test_a_transaction_in_which_it_falls_silent_is_not_done_again(
    postgres: PostgresServer, url: str, proxy: StallingProxy, last: str
) -> None:
    store = open_store(proxy.url(url))
    connections: Connections = store._connections  # type: ignore[attr-defined]
    tries = []

    def work(connection: Connection) -> None:
        tries.append(connection.exec_driver_sql("INSERT INTO lease VALUES ('mine', 'me', 1)").rowcount)
        proxy.stall()
        if last == "statement":
            connection.exec_driver_sql("SELECT 1")

    with pytest.raises(StoreError, match=SAYS_NOTHING):
        connections.transact(work)
    assert tries == [1]
    proxy.go_on()
    # What was sent before the connection was given up comes through now: a commit may land, and nothing else.
    postgres.break_connections(url)
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT count(*) FROM lease").fetchone()
    assert found is not None
    assert found[0] in ((0,) if last == "statement" else (0, 1))
    store.close()


def test_the_server_is_told_how_long_things_may_take(url: str) -> None:
    store = open_store(url)
    connections: Connections = store._connections  # type: ignore[attr-defined]
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "transaction_isolation")

    def settings(connection: Connection) -> list[str]:
        return [str(connection.exec_driver_sql(f"SHOW {name}").scalar_one()) for name in names]

    assert connections.transact(settings) == ["12s", "8s", "5s", "read committed"]
    assert connections.look(settings) == ["1min", "0", "1min", "repeatable read"]
    with pytest.raises(StoreError, match="can only be read"), connections.read() as connection:
        connection.exec_driver_sql("DELETE FROM lease")
    store.close()
    # Nothing of it stays with the connection.
    with postgres_driver.dial(url) as driver:
        driver.execute(postgres_driver.WRITING.begin)
        driver.commit()
        assert driver.execute("SHOW statement_timeout").fetchone() == ("0",)


def test_who_stops_in_the_midst_of_a_transaction_holds_nobody_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended by the server, and done again when its process goes on."""
    hasty = postgres_driver.WRITING.begin.replace(f"= {int(postgres_driver.IDLE_S * 1000)}", "= 100")
    monkeypatch.setattr(postgres_driver, "WRITING", replace(postgres_driver.WRITING, begin=hasty))
    store, other = open_store(url), open_store(url)
    submit(store, "batch_a", [new_segment(0)])
    connections: Connections = store._connections  # type: ignore[attr-defined]
    lock = "SELECT batch_id FROM batch FOR UPDATE"
    tries = []

    def stopped(connection: Connection) -> str:
        found = str(connection.exec_driver_sql(lock).scalar_one())
        tries.append(found)
        if len(tries) == 1:
            assert other._connections.transact(  # type: ignore[attr-defined]
                lambda connection: connection.exec_driver_sql(lock).scalar_one()
            )
        return str(connection.exec_driver_sql(lock).scalar_one())

    assert connections.transact(stopped) == "batch_a"
    assert len(tries) == 2
    store.close()
    other.close()


def test_a_lock_that_is_not_had_is_told_of(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = postgres_driver.WRITING.begin.replace("lock_timeout = 8000", "lock_timeout = 50")
    monkeypatch.setattr(postgres_driver, "WRITING", replace(postgres_driver.WRITING, begin=hasty))
    store = open_store(url)
    submit(store, "batch_a", [new_segment(0)])
    with psycopg.connect(url) as holder:
        holder.execute("SELECT FROM batch FOR UPDATE")
        with pytest.raises(StoreError, match="a lock was not had in time"):
            store.resume_batch("batch_a")
    store.close()
