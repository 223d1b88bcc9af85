"""`work --ray` and `ray up|status|down`: a real Ray cluster on loopback, of which everything is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchwright.core.errors import UsageError
from batchwright.fabric import ray
from batchwright.fabric.fleet import RayPlan
from support.clusters import StandingCluster
from support.command_line import CommandLine, Started
from support.left_behind import children_of, holds, is_alive, is_settled, leave_batch, listens_beyond, wait_for_end
from support.postgres import PostgresServer
from support.scripted_vendor import ScriptedVendor

ROWS = 2000
LEASE = {"BATCHWRIGHT_LEASE": "10s", "BATCHWRIGHT_HEARTBEAT": "1s", "BATCHWRIGHT_GRACE": "5s"}
"""What dies here is proved dead by its lock, not by its lease: that only has to outlast a busy machine."""
RAY = ("--ray", "local", "--ray-min", "2", "--ray-max", "2", "--ray-cpus", "0.5")
SECRET = "sk-of-the-environment"


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    found = postgres.new_database()
    yield found
    postgres.drop(found)


def processes(started: Started, word: str) -> list[int]:
    return [pid for pid, line in children_of(started.process.pid).items() if word in line]


def test_an_actor_is_killed_then_the_head_and_it_goes_on_without_ray(tmp_path: Path, url: str) -> None:
    with ScriptedVendor() as vendor:
        vendor.set(latency_s=0.05)
        command = CommandLine(tmp_path, BATCHWRIGHT_DATABASE=url, SECRET_KEY=SECRET, **LEASE)
        leave_batch(command, vendor, ROWS)
        vendor.set(hold=True)
        held = len(vendor.hits)
        started = command.start("work", *RAY, "--progress", "plain")
        everything: dict[int, str] = {}
        try:
            # Both actors send: two workers, each with 16 rows at most.
            started.until(vendor, lambda vendor: len(vendor.hits) >= held + 18)
            everything = children_of(started.process.pid)
            assert not any(SECRET in line for line in everything.values())
            assert listens_beyond(list(everything)) == []
            actors = processes(started, "ray::WorkerActor")
            assert len(actors) == 2
            vendor.set(hold=False)
            vendor.release()
            started.until(vendor, lambda vendor: len(vendor.hits) >= ROWS // 4)
            os.kill(actors[0], signal.SIGKILL)
            started.until(vendor, lambda vendor: len(vendor.hits) >= ROWS // 2)
            vendor.set(hold=True)
            head = processes(started, "gcs_server")
            assert len(head) == 1
            os.kill(head[0], signal.SIGKILL)
            started.wait_for("Ray driver process 1")
            assert not is_settled(url)
            started.process.send_signal(signal.SIGTERM)
            everything |= children_of(started.process.pid)
            ended = started.end()
            assert ended.code == 0, ended.err
            wait_for_end(list(everything))
        finally:
            started.kill()
        vendor.set(hold=False)
        vendor.release()
        assert not [pid for pid in everything if is_alive(pid)]
        ended = command("work", "--until-idle", "--progress", "plain")
        assert ended.code == 0, ended.err
        holds(command, url, ROWS)


def test_a_fleet_stays_on_a_cluster_until_it_is_ended(tmp_path: Path) -> None:
    """In a state folder, which a cluster of this one machine may share."""
    with ScriptedVendor() as vendor, StandingCluster(tmp_path / "cluster") as cluster:
        command = CommandLine(tmp_path / "here", BATCHWRIGHT_RAY=cluster.address, **cluster.variables, **LEASE)
        leave_batch(command, vendor, 300)
        store = command.state / "batchwright.sqlite"
        ended = command("ray", "status")
        assert (ended.code, ended.out) == (1, "")
        assert "No workers of these batches" in ended.err
        ended = command("ray", "up", "--ray-cpus", "0.5")
        assert ended.code == 0, ended.err
        assert "Workers on the Ray cluster: 1 to 2" in ended.err
        assert "Workers on the Ray cluster: 1 to 3" in command("ray", "up", "--ray-cpus", "0.5", "--ray-max", "3").err
        begun = command.start("watch", "@last", "--progress", "none").end()
        assert begun.code == 0, begun.err
        ended = command("ray", "status")
        assert ended.code == 0, ended.err
        assert "1 workers, 1 to 3" in ended.out
        assert "worker-1 (" in ended.out
        ended = command("ray", "up", "--ray-cpus", "0.5", "--ray-max", "3")
        assert "Workers on the Ray cluster: 1 to 3" in ended.err, "the bounds that hold now"
        refused = command("ray", "up", PYTHONPATH=cluster.other_code(tmp_path / "other", command))
        assert refused.code == 2
        assert "the workers of a fleet are all of one" in refused.err
        ended = command("ray", "down")
        assert (ended.code, "All have ended." in ended.err) == (0, True)
        assert command("ray", "status").code == 1
        holds(command, store, 300)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("work", "--ray", "127.0.0.1:1"), 2, "the Ray cluster 127.0.0.1:1 cannot be joined"),
        (("work", "--ray", "ray://h:1"), 2, "expected `local`"),
        (("work", "--ray", "--processes", "2"), 2, "--processes and --ray"),
        (("work", "--ray", "--ray-min", "3", "--ray-max", "2"), 2, "ray_min is 3 and ray_max 2"),
        (("ray", "up", "--ray", "local"), 2, "ends with the command that began it"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    tmp_path: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    ended = CommandLine(tmp_path)(*arguments)
    assert ended.code == code, ended.err
    assert text in ended.err
    assert "Traceback" not in ended.err


def test_a_cluster_that_lets_nobody_in_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "JOIN_AND_LEAVE", "import threading; threading.Event().wait()")
    monkeypatch.setattr(ray, "JOINS_S", 0.5)
    plan = RayPlan(address="auto", fleet="f", least=1, most=1, cpus=1.0, one_machine=True)
    with pytest.raises(UsageError, match=r"began is that command's alone.* give HOST:PORT"), ray.joined(plan):
        pass
