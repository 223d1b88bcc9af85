"""Real processes on one PostgreSQL: in one place and in two, killed, cut off from the server, one after the other.

A place is a state folder, with the locks in it; processes of another place stand for another machine: what they know of
each other goes through the database alone.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from batchwright.store.open import open_store
from support.command_line import CommandLine, Started
from support.postgres import PostgresServer
from support.scripted_vendor import ScriptedVendor
from support.served_process import served
from support.service import chats
from support.service_process import BATCH, ServiceProcess
from support.shared_database import IN_FLIGHT, LATENCY_S, LEASE, ROWS, Shared
from support.together import Together
from support.watched_command import read_account

STEPS = (
    ("after create_batch:1", "before close_intake:1", "after register_worker:1", "commit:12", "before send:40"),
    ("after checkpoint:3", "before booking:40", "before checkpoint:4", "commit:25", "before end_worker:1"),
)
KILLS = 5
CUTS = 6


def killed_at_steps(folder: Path, server: PostgresServer, points: tuple[str, ...]) -> None:
    with ScriptedVendor() as vendor:
        vendor.set(latency_s=LATENCY_S)
        shared = Shared(folder, server.new_database(), vendor)
        for number, point in enumerate(points):
            account = folder / f"account{number}"
            ended = shared.run("-m", "support.watched_command", str(account), point).end()
            assert ended.code == -signal.SIGKILL, f"it was not killed: {ended.code}, {ended.err}"
            shared.exposed += read_account(account).exposed
        shared.goes_on_to_the_end()
        assert shared.sent_twice() <= shared.exposed


def killed_in_two_places(folder: Path, server: PostgresServer, seed: int) -> int:
    """Three workers, two here and one elsewhere; each kill is of one that was chosen by chance, begun anew at once."""
    chance = random.Random(seed)
    kills = 0
    with ScriptedVendor(seed=seed) as vendor, ExitStack() as stack:
        vendor.set(latency_s=LATENCY_S, fail_percent=5)
        shared = Shared(folder, server.new_database(), vendor)
        begin: dict[str, Callable[[], Started]] = {
            "run": shared.run,
            "here": lambda: shared.work(shared.here),
            "elsewhere": lambda: shared.work(shared.elsewhere),
        }

        def begun(name: str) -> Started:
            started = begin[name]()
            stack.callback(started.kill)
            return started

        running = {"run": begun("run")}
        running["run"].until(vendor, lambda vendor: len(vendor.hits) > IN_FLIGHT)
        running |= {name: begun(name) for name in ("here", "elsewhere")}
        while kills < KILLS and shared.reaches(len(vendor.hits) + chance.randint(20, ROWS // 10)):
            name = chance.choice(list(running))
            running[name].kill()
            running[name].end()
            kills += shared.unfinished()
            running[name] = begun(name)
        report = running["run"].end()
        assert report.code == 0, report.err
        shared.holds()
        assert report.report["possible_double_payments"] >= shared.sent_twice()
    return kills


def cut_off(folder: Path, server: PostgresServer) -> None:
    """The server ends every connection, again and again: nothing is lost. Workers go on; a `run` that was just asking
    may end and say so, and the same command goes on."""
    with ScriptedVendor() as vendor, ExitStack() as stack:
        vendor.set(latency_s=LATENCY_S)
        shared = Shared(folder, server.new_database(), vendor)
        run = shared.run()
        stack.callback(run.kill)
        run.until(vendor, lambda vendor: len(vendor.hits) > IN_FLIGHT)
        worker = shared.work(shared.elsewhere)
        stack.callback(worker.kill)
        for cut in range(1, CUTS):
            assert shared.reaches(cut * ROWS // CUTS)
            server.break_connections(shared.url)
        ended = run.end()
        assert ended.code == 0 or "what was confirmed is not lost" in ended.err, ended.err
        shared.goes_on_to_the_end()
        assert worker.process.poll() is None, worker.said


def goes_away(folder: Path, server: PostgresServer) -> None:
    """The server is away for many times longer than a commit that fails is tried: a `run` and a service wait for it,
    and send nothing twice."""
    with ScriptedVendor() as vendor, ExitStack() as stack:
        vendor.set(latency_s=LATENCY_S)
        shared = Shared(folder, server.new_database(), vendor)
        elsewhere = CommandLine(folder / "elsewhere", BATCHWRIGHT_DATABASE=shared.url, **LEASE)
        service = stack.enter_context(served(elsewhere, "--simulate", "--no-work"))
        run = shared.run()
        stack.callback(run.kill)
        run.until(vendor, lambda vendor: len(vendor.hits) > ROWS // 4)
        vendor.set(hold=True)  # no commit is under way when the server goes: its reply could be lost
        run.until(vendor, lambda vendor: len(vendor.held) >= IN_FLIGHT)
        server.shut(shared.url)
        vendor.set(hold=False)
        run.wait_for("waits for the database")
        run.wait_for("by now)")  # half a minute later
        assert service.http.get("/readyz").status_code == 503
        server.open(shared.url)
        ended = run.end()
        assert ended.code == 0, ended.err
        assert "the database is there again" in ended.err
        assert (ended.report["ok"], ended.report["possible_double_payments"]) == (ROWS, 0)
        assert shared.sent_twice() == 0
        shared.holds()
        assert service.http.get("/readyz").status_code == 200


def sleeps_past_the_lease(folder: Path, server: PostgresServer) -> None:
    """A `run` and a service stand still until others have taken over all that they held: both go on."""
    with ScriptedVendor() as vendor, ExitStack() as stack:
        vendor.set(latency_s=LATENCY_S)
        shared = Shared(folder, server.new_database(), vendor)
        first = ServiceProcess(CommandLine(folder / "first", BATCHWRIGHT_DATABASE=shared.url, **LEASE), vendor)
        stack.enter_context(first)
        run = shared.run()
        stack.callback(run.kill)
        run.until(vendor, lambda vendor: len(vendor.hits) > IN_FLIGHT)
        for asleep in (first.running, run):
            asleep.process.send_signal(signal.SIGSTOP)
        worker = shared.work(shared.elsewhere)
        stack.callback(worker.kill)
        assert not shared.reaches(100 * ROWS), "the batch ended without them"
        for asleep in (first.running, run):
            asleep.process.send_signal(signal.SIGCONT)
        ended = run.end()
        assert ended.code == 0, ended.err
        shared.holds()
        first.running.wait_for("A new worker begins in this process")
        worker.kill()
        worker.end()
        assert first.ended(first.submit(chats(20)))["completed_count"] == 20
        call = first.client.post("/v1/chat/completions", json=chats(1)[0])
        assert call.status_code == 200, call.text


def two_services(folder: Path, server: PostgresServer) -> None:
    """One takes a batch in and is killed; the other works on it, and gives it out."""
    with ScriptedVendor() as vendor:
        vendor.set(latency_s=LATENCY_S)
        url = server.new_database()
        first, second = (
            ServiceProcess(CommandLine(folder / name, BATCHWRIGHT_DATABASE=url, **LEASE), vendor)
            for name in ("first", "second")
        )
        with first:
            second.key = first.key
            with second:
                batch_id = first.submit(chats(ROWS))
                first.running.until(vendor, lambda vendor: len(vendor.hits) > ROWS // 4)
                assert second.status(batch_id)["total_count"] == ROWS
                other = second.submit(chats(20))
                first.kill()
                status = second.ended(batch_id)
                assert (status["state"], status["completed_count"]) == ("completed", ROWS)
                assert second.ended(other)["state"] == "completed"
                items = second.results(batch_id)
                assert [item["request_index"] for item in items] == list(range(ROWS))
                vendor.set(hold=True)
                third = second.submit(chats(ROWS))
                first.start()
                answer = first.client.post(f"{BATCH}/cancel/{third}")
                assert answer.status_code == 200, answer.text
                vendor.set(hold=False)
                assert second.ended(third)["state"] == "cancelled"
    store = open_store(url)
    assert [store.check(batch.batch_id) for batch in store.find_batches()] == [[], [], []]
    store.close()


@pytest.fixture(scope="module")
def begun(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    together = Together()

    def folder() -> Path:
        return tmp_path_factory.mktemp("shared")

    for number, points in enumerate(STEPS):
        together.begin(f"steps {number}", partial(killed_at_steps, folder(), postgres, points))
    for seed in range(3):
        together.begin(f"places {seed}", partial(killed_in_two_places, folder(), postgres, seed))
    together.begin("cut off", partial(cut_off, folder(), postgres))
    together.begin("away", partial(goes_away, folder(), postgres))
    together.begin("asleep", partial(sleeps_past_the_lease, folder(), postgres))
    together.begin("services", partial(two_services, folder(), postgres))
    yield together
    together.close()


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_killed_at_named_steps(begun: Together, number: int) -> None:
    begun.result(f"steps {number}")


def test_killed_by_chance_in_two_places(begun: Together) -> None:
    kills = [begun.result(f"places {seed}") for seed in range(3)]
    assert sum(kills) >= KILLS, f"too few of them landed while their batch was unfinished: {kills}"


def test_cut_off_from_the_server(begun: Together) -> None:
    begun.result("cut off")


def test_the_server_is_away_for_a_while(begun: Together) -> None:
    begun.result("away")


def test_asleep_for_longer_than_the_lease(begun: Together) -> None:
    begun.result("asleep")


def test_one_of_two_services_is_killed(begun: Together) -> None:
    begun.result("services")
