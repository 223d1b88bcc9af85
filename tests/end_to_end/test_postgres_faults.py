"""Real processes on one PostgreSQL: stopped and continued, behind a server that falls silent or is away, behind
PgBouncer, and five of them killed by chance."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from support.killed_places import Fleet
from support.pgbouncer import PgBouncer
from support.postgres import PostgresServer
from support.scripted_vendor import ScriptedVendor
from support.service import chats
from support.shared_database import LATENCY_S, ROWS
from support.stalling_proxy import StallingProxy
from support.together import Together
from support.two_places import Two, orphans, twice

MANY_ROWS = 4 * ROWS
ROUNDS, KILLS = 10, 5
"""Of each round, which has KILL_ROWS: 50 in all."""
KILL_ROWS = 750
KILL_LATENCY_S = 0.25
"""So slow that a batch lasts while those who were killed come back."""
REPLACED = "taken for dead and replaced"
AT_WORK = "Working on the batches"


def stopped(folder: Path, server: PostgresServer) -> None:
    """SIGSTOP past the lease, then SIGCONT."""
    with ScriptedVendor() as vendor, ExitStack() as stack:
        vendor.set(hold=True)
        two = Two(folder, server.new_database(), vendor, stack)
        batch_id = two.service.submit(chats(ROWS))
        ours = two.work(0)
        ours.until(vendor, lambda vendor: len(vendor.held) == 16)
        ours.process.send_signal(signal.SIGSTOP)
        two.work(1)
        two.takes_over()
        vendor.set(hold=False, latency_s=LATENCY_S)  # its own requests are answered with the others'
        ours.process.send_signal(signal.SIGCONT)
        ours.wait_for(REPLACED)
        two.holds(batch_id)
        assert orphans(two.url) == 16


def silent(folder: Path, server: PostgresServer) -> None:
    """The server answers nothing to our worker, and closes nothing: it stops sending by the half of its lease."""
    with ScriptedVendor() as vendor, ExitStack() as stack:
        vendor.set(latency_s=LATENCY_S)
        url = server.new_database()
        proxy = stack.enter_context(StallingProxy(server.port))
        two = Two(folder, url, vendor, stack, ours=proxy.url(url))
        batch_id = two.service.submit(chats(ROWS))
        ours = two.work(0)
        ours.until(vendor, lambda vendor: len(vendor.hits) > 32)
        proxy.stall()
        two.work(1)
        two.holds(batch_id)
        assert ours.process.poll() is None, "it waits for the server"
        assert twice(vendor) <= two.service.status(batch_id)["possible_double_payments"]
        proxy.go_on()
        ours.wait_for(REPLACED)


def away(folder: Path) -> None:
    """The server is stopped in the midst and started again."""
    with closing(PostgresServer()) as server, ScriptedVendor() as vendor, ExitStack() as stack:
        vendor.set(latency_s=LATENCY_S)
        two = Two(folder, server.new_database(), vendor, stack)
        batch_id = two.service.submit(chats(ROWS))
        workers = [two.work(place) for place in (0, 1)]
        workers[1].wait_for(AT_WORK)
        for share in (3, 2):
            workers[0].until(vendor, lambda vendor, share=share: len(vendor.hits) > ROWS // share)  # type: ignore[misc]
            said = [len(worker.said) for worker in workers]
            server.stop()
            for worker, before in zip(workers, said, strict=True):
                worker.wait_for_match(rf"(?s)^(.{{{before},}}cannot be reached)")
            server.start()
        two.holds(batch_id)
        assert [worker.process.poll() for worker in workers] == [None, None], workers[0].said + workers[1].said


class Rounds:
    """One fleet's, one after another; each test waits for one."""

    def __init__(self) -> None:
        self.landed: list[Future[int]] = [Future() for _ in range(ROUNDS)]
        """Kills that came while their batch was under way."""

    def live(self, folder: Path, server: PostgresServer, seed: int) -> None:
        try:
            with ScriptedVendor(seed=seed) as vendor:
                vendor.set(latency_s=KILL_LATENCY_S, fail_percent=5)
                with Fleet(folder, server.new_database(), vendor, seed=seed) as fleet:
                    for number, ended in enumerate(self.landed):
                        before = fleet.landed
                        fleet.round(number, rows=KILL_ROWS, kills=KILLS)
                        fleet.holds()
                        ended.set_result(fleet.landed - before)
        except BaseException as error:
            for ended in self.landed:
                if not ended.done():
                    ended.set_exception(error)
            raise


def through_a_pooler(folder: Path, server: PostgresServer, bouncer: PgBouncer) -> None:
    with ScriptedVendor() as vendor, ExitStack() as stack:
        vendor.set(latency_s=LATENCY_S)
        two = Two(folder, bouncer.url(server.new_database()), vendor, stack)
        for worker in (two.work(0), two.work(1)):
            worker.wait_for(AT_WORK)
        for batch_id in [two.service.submit(chats(ROWS)) for _ in range(MANY_ROWS // ROWS)]:
            two.holds(batch_id)
        assert vendor.peak > 16, "both have sent"
        assert len(vendor.hits) == MANY_ROWS


@pytest.fixture(scope="module")
def rounds() -> Rounds:
    return Rounds()


@pytest.fixture(scope="module")
def begun(postgres: PostgresServer, rounds: Rounds, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    together = Together()

    def folder() -> Path:
        return tmp_path_factory.mktemp("faults")

    together.begin("killed by chance", partial(rounds.live, folder(), postgres, 1))
    together.begin("away", partial(away, folder()))
    together.begin("stopped", partial(stopped, folder(), postgres))
    together.begin("silent", partial(silent, folder(), postgres))
    yield together
    together.close()


def test_a_worker_that_was_stopped_past_its_lease_writes_nothing(begun: Together) -> None:
    begun.result("stopped")


def test_a_worker_whose_server_falls_silent_stops_in_time(begun: Together) -> None:
    begun.result("silent")


def test_workers_outlive_a_server_that_is_away(begun: Together) -> None:
    begun.result("away")


@pytest.mark.parametrize("number", range(ROUNDS))
def test_services_and_workers_killed_by_chance(begun: Together, rounds: Rounds, number: int) -> None:
    rounds.landed[number].result()


def test_most_of_the_kills_came_while_their_batch_was_under_way(begun: Together, rounds: Rounds) -> None:
    begun.result("killed by chance")
    assert sum(ended.result() for ended in rounds.landed) >= ROUNDS * KILLS * 3 // 4


def test_two_workers_through_a_pooler(
    postgres: PostgresServer, pgbouncer: PgBouncer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    through_a_pooler(tmp_path_factory.mktemp("pooler"), postgres, pgbouncer)
