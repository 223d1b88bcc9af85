"""`work --processes`: real processes on a state folder and on PostgreSQL, killed and told to end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from support.command_line import CommandLine, Started
from support.left_behind import children_of, holds, is_settled, leave_batch, wait_for_end
from support.postgres import PostgresServer
from support.scripted_vendor import ScriptedVendor
from support.together import Together

ROWS = 600
LATENCY_S = 0.05
LEASE = {"BATCHWRIGHT_LEASE": "10s", "BATCHWRIGHT_HEARTBEAT": "1s", "BATCHWRIGHT_GRACE": "5s"}
"""What dies here is proved dead by its lock, not by its lease: that only has to outlast a busy machine."""
WORKER = "spawn_main"
"""In the command line of each worker's process, and of no other that the parent has."""


class Place:
    """A folder or a database with a batch of which a killed `run` left nearly everything to do."""

    def __init__(self, folder: Path, vendor: ScriptedVendor, url: str = "", rows: int = ROWS) -> None:
        self.vendor, self.rows = vendor, rows
        self.command = CommandLine(folder, **LEASE, **({"BATCHWRIGHT_DATABASE": url} if url else {}))
        self.store = url or self.command.state / "batchwright.sqlite"
        vendor.set(latency_s=LATENCY_S)
        leave_batch(self.command, vendor, rows)

    def work(self, *options: str) -> Started:
        return self.command.start("work", "--processes", "2", "--progress", "plain", *options)

    def reaches(self, started: Started, hits: int) -> None:
        started.until(self.vendor, lambda vendor: len(vendor.hits) >= hits)

    def shown(self) -> dict[str, dict[str, object]]:
        """What `workers` says, by name."""
        rows = [json.loads(line) for line in self.command("workers", "--json").out.splitlines()]
        return {str(row["name"]): row for row in rows}

    def workers(self, started: Started) -> list[int]:
        return [pid for pid, line in children_of(started.process.pid).items() if WORKER in line]


def until_idle(folder: Path, url: str) -> None:
    with ScriptedVendor() as vendor:
        place = Place(folder, vendor, url)
        ended = place.work("--until-idle").end()
        assert ended.code == 0, ended.err
        assert "that is the end (--until-idle)" in ended.err
        assert "has ended: 600 ok" in ended.err
        holds(place.command, place.store, ROWS)


def child_is_killed(folder: Path, url: str) -> None:
    with ScriptedVendor() as vendor:
        place = Place(folder, vendor, url)
        started = place.work()
        place.reaches(started, ROWS // 4)
        victim = place.workers(started)[0]
        os.kill(victim, signal.SIGKILL)
        started.wait_for(f"({victim}) ended: killed by SIGKILL. Another is started in 0.5 s; 1 so far")
        started.wait_for("has ended: 600 ok")
        workers = place.workers(started)
        assert len(workers) == 2
        assert victim not in workers
        started.process.send_signal(signal.SIGTERM)
        assert started.end().code == 0
        wait_for_end(workers)
        holds(place.command, place.store, ROWS)


def parent_is_killed(folder: Path, url: str) -> None:
    with ScriptedVendor() as vendor:
        place = Place(folder, vendor, url)
        started = place.work()
        place.reaches(started, ROWS // 4)
        workers = place.workers(started)
        assert len(workers) == 2
        started.kill()
        started.end()
        wait_for_end(workers)
        assert not is_settled(place.store), "they ended before they could have ended by themselves"
        ended = place.command("work", "--until-idle")
        assert ended.code == 0, ended.err
        holds(place.command, place.store, ROWS)
        given = [hit.text for hit in vendor.hits if hit.outcome == "200"]
        # The workers ended in good order: nothing of theirs was sent again. (The killed `run` had up to 16 out.)
        assert len(given) - len(set(given)) <= 16


def twice_is_now(folder: Path, url: str) -> None:
    with ScriptedVendor() as vendor:
        place = Place(folder, vendor, url, 200)
        vendor.set(hold=True)
        seen = len(vendor.hits)
        started = place.work()
        place.reaches(started, seen + 2)
        workers = place.workers(started)
        started.interrupt()
        started.wait_for("the same signal again")
        started.interrupt()
        assert started.end().code == 130
        wait_for_end(workers)
        vendor.set(hold=False)
        vendor.release()
        assert place.command("work", "--until-idle").code == 0
        holds(place.command, place.store, 200)


def drained_stays_so(folder: Path, url: str) -> None:
    with ScriptedVendor() as vendor:
        place = Place(folder, vendor, url)
        vendor.set(hold=True)
        seen = len(vendor.hits)
        started = place.work()
        place.reaches(started, seen + 2)
        processes = place.workers(started)
        names = {row["pid"]: row["name"] for row in place.shown().values()}
        leaving, staying = (str(names[pid]) for pid in processes)
        assert place.command("workers", "drain", leaving).code == 0
        vendor.set(hold=False)
        vendor.release()
        started.wait_for(f"It stands by until `batchwright workers resume {leaving}`.")
        started.wait_for("has ended: 600 ok")
        assert (place.shown()[leaving]["state"], place.shown()[staying]["state"]) == ("drained", "working")
        assert "workers resume" in str(place.shown()[leaving]["note"])
        assert place.workers(started) == processes
        refused = place.command("workers", "resume", staying)
        assert (refused.code, "only a worker that" in refused.err) == (2, True)
        assert "is drained already" in place.command("workers", "drain", leaving, "--wait").err
        assert place.command("workers", "resume", leaving).code == 0
        started.wait_for("The drain of this worker has ended: it works again.")
        assert place.shown()[leaving]["state"] == "working"
        started.process.send_signal(signal.SIGTERM)
        assert started.end().code == 0
        wait_for_end(processes)


SCENES: dict[tuple[str, str], Callable[[Path, str], None]] = {
    ("until idle", "postgres"): until_idle,
    ("drain", "sqlite"): drained_stays_so,
    ("child", "sqlite"): child_is_killed,
    ("child", "postgres"): child_is_killed,
    ("parent", "sqlite"): parent_is_killed,
    ("parent", "postgres"): parent_is_killed,
    ("twice", "sqlite"): twice_is_now,
}


@pytest.fixture(scope="module")
def begun(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    together = Together()
    for (name, kind), scene in SCENES.items():
        url = postgres.new_database() if kind == "postgres" else ""
        together.begin(f"{name} {kind}", partial(scene, tmp_path_factory.mktemp("processes"), url))
    yield together
    together.close()


@pytest.mark.parametrize(("name", "kind"), list(SCENES))
def test_processes(begun: Together, name: str, kind: str) -> None:
    begun.result(f"{name} {kind}")
