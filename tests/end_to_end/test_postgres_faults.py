"""Real processes on one PostgreSQL: stopped and continued, behind a server that falls silent or is away, behind
PgBouncer, and five of them killed by chance."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from batchwright.store.open import open_store
from support.command_line import CommandLine, Started
from support.killed_places import Fleet
from support.pgbouncer import PgBouncer
from support.postgres import PostgresServer
from support.scripted_vendor import ScriptedVendor
from support.service import chats
from support.service_process import ServiceProcess
from support.shared_database import LATENCY_S, LEASE, ROWS
from support.stalling_proxy import StallingProxy
from support.together import Together

MANY_ROWS = 4 * ROWS
ROUNDS = 6
REPLACED = "taken for dead and replaced"
AT_WORK = "Working on the batches"


def twice(vendor: ScriptedVendor) -> int:
    """Rows that were sent to it more than once."""
    return sum(count > 1 for count in Counter(hit.text for hit in vendor.hits).values())


def orphans(url: str) -> int:
    with closing(open_store(url)) as store:
        return sum(batch.tally.orphans for batch in store.find_batches())


class Two:
    """A service that takes a batch in and works on nothing, and two workers of other places, of which one is ours."""

    def __init__(self, folder: Path, url: str, vendor: ScriptedVendor, stack: ExitStack, *, ours: str = "") -> None:
        """`ours`: the database's URL for our worker."""
        self.vendor, self.url, self._stack = vendor, url, stack
        self.service = ServiceProcess(self._place(folder / "service", url), vendor, "--no-work")
        stack.enter_context(self.service)
        self.places = [self._place(folder / "ours", ours or url), self._place(folder / "other", url)]
        for place in self.places:
            text = f"[vendors.scripted]\nbase_url = '{vendor.base_url}'\nconcurrency = 16\n"
            (place.folder / "batchwright.toml").write_text(text)

    def _place(self, folder: Path, url: str) -> CommandLine:
        return CommandLine(folder, BATCHWRIGHT_DATABASE=url, **LEASE)

    def work(self, place: int) -> Started:
        started = self.places[place].start("work", "--progress", "none")
        self._stack.callback(started.end)
        self._stack.callback(started.kill)
        return started

    def takes_over(self) -> None:
        """Until the other sends what ours has in flight. What that is answered is held from then on."""
        self.vendor.wait_for(lambda vendor: twice(vendor) > 0, 60.0)

    def holds(self, batch_id: str) -> None:
        status = self.service.ended(batch_id)
        assert (status["state"], status["completed_count"]) == ("completed", ROWS), status
        items = self.service.results(batch_id)
        assert [item["result"]["content"] for item in items] == [f"w{row}" for row in range(ROWS)]
        with closing(open_store(self.url)) as store:
            assert store.check(batch_id) == []


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
        for time, share in ((1, 3), (2, 2)):
            workers[0].until(vendor, lambda vendor, share=share: len(vendor.hits) > ROWS // share)  # type: ignore[misc]
            server.stop()
            for worker in workers:
                worker.wait_for_match(rf"(?s)((waits for the database.*){{{time}}})")
            server.start()
        two.holds(batch_id)
        assert [worker.process.poll() for worker in workers] == [None, None], workers[0].said + workers[1].said


def killed_by_chance(folder: Path, server: PostgresServer, seed: int) -> int:
    with ScriptedVendor(seed=seed) as vendor:
        vendor.set(latency_s=LATENCY_S, fail_percent=5)
        with Fleet(folder, server.new_database(), vendor, seed=seed) as fleet:
            for number in range(ROUNDS):
                fleet.round(number)
            fleet.holds()
            return fleet.landed


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
def begun(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    together = Together()

    def folder() -> Path:
        return tmp_path_factory.mktemp("faults")

    together.begin("killed by chance", partial(killed_by_chance, folder(), postgres, 1))
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


def test_services_and_workers_killed_by_chance(begun: Together) -> None:
    assert begun.result("killed by chance") >= ROUNDS // 2, "too few of them landed"


def test_two_workers_through_a_pooler(
    postgres: PostgresServer, pgbouncer: PgBouncer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    through_a_pooler(tmp_path_factory.mktemp("pooler"), postgres, pgbouncer)
