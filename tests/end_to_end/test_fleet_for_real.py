"""`batchwright workers` and `batchwright lanes` beside real processes, on a state folder and on one database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command_line import CommandLine, Started, chat_row
from support.postgres import PostgresServer
from support.scripted_vendor import ScriptedVendor
from support.service import chats
from support.service_process import ServiceProcess

OUT = 8
SOON = "heartbeat = '0.2s'\n"


@pytest.fixture
def vendor() -> Iterator[ScriptedVendor]:
    with ScriptedVendor() as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def command(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CommandLine]:
    if request.param == "sqlite":
        yield CommandLine(tmp_path)
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database() as url:
        yield CommandLine(tmp_path, BATCHWRIGHT_DATABASE=url)


def service_of(command: CommandLine, vendor: ScriptedVendor) -> ServiceProcess:
    service = ServiceProcess(command, vendor, "--no-work")
    service.write_project(
        f"{SOON}[vendors.scripted]\nbase_url = '{vendor.base_url}'\nconcurrency = {OUT}\nrpm = 60000\n"
    )
    return service


def start_work(command: CommandLine) -> Started:
    worker = command.start("work", "--progress", "plain")
    worker.wait_for("Working on the batches")
    return worker


def listed(command: CommandLine, what: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in command(what, "--json").out.splitlines()]


def test_workers_are_shown_drained_and_lanes_closed_and_opened(command: CommandLine, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)
    with service_of(command, vendor) as service:
        first = start_work(command)
        batch_id = service.submit(chats(40))
        first.until(vendor, lambda vendor: vendor.in_flight == OUT)

        found = {worker["pid"]: worker for worker in listed(command, "workers")}
        assert found[service.running.process.pid]["state"] == "calls only"
        worker = found[first.process.pid]
        assert (worker["state"], worker["segments"]) == ("working", 1)
        assert worker["last_checkpoint"] is not None
        name = str(worker["name"])
        lines = [line.split("\t") for line in command("workers").out.splitlines()]
        assert {line[0] for line in lines} == {str(one["name"]) for one in found.values()}
        (lane,) = listed(command, "lanes")
        assert (lane["vendor"], lane["model"], lane["state"], lane["requests_per_minute"]) == (
            "scripted",
            "m",
            "open",
            60_000,
        )
        assert isinstance(lane["workers"], list)
        assert [(each["name"], each["share"]) for each in lane["workers"]] == [(name, 1.0)]
        assert service.client.get("/workers").json()[0].keys() == worker.keys()
        assert service.client.get("/lanes").json()[0].keys() == lane.keys()

        closed = command("lanes", "pause", "scripted/m", "--reason", "odd answers")
        assert (closed.code, "is the name right?" in closed.err) == (0, False)
        service.until(batch_id, lambda status: "quarantined" in [wait["cause"] for wait in status["waiting"]])
        vendor.set(hold=False)  # what was out comes back; nothing follows, for the worker has heard of it
        status = service.until(batch_id, lambda status: bool(status["state"] == "paused"))
        assert "quarantined: odd answers" in str(status["pauses"])
        assert 'batchwright_quarantines{vendor="scripted"} 1\n' in service.client.get("/metrics").text
        sent = len(vendor.hits)
        assert sent < 40
        (lane,) = listed(command, "lanes")
        assert (lane["state"], lane["in_flight"]) == ("quarantined", 0)
        assert command("lanes", "resume", "scripted").code == 2, "that is not what was closed"
        vendor.set(hold=True)
        assert command("lanes", "resume", "scripted/m").code == 0
        first.until(vendor, lambda vendor: vendor.in_flight == OUT)

        drained = command("workers", "drain", name)
        assert drained.code == 0, drained.err
        second = start_work(command)
        vendor.set(hold=False)
        ended = first.end()
        assert ended.code == 0, ended.err
        assert "This worker was drained" in ended.err
        done = service.ended(batch_id)
        assert (done["completed_count"], done["possible_double_payments"]) == (40, 0)
        gone = command("workers", "drain", name)
        assert (gone.code, "no worker of that name is alive" in gone.err) == (2, True)
        second.interrupt()
        assert second.end().code == 0


def test_a_service_ends_with_its_worker_and_a_run_is_not_drained(tmp_path: Path, vendor: ScriptedVendor) -> None:
    command = CommandLine(tmp_path)
    vendor.set(hold=True)
    service = ServiceProcess(command, vendor)
    service.write_project(f"{SOON}[vendors.scripted]\nbase_url = '{vendor.base_url}'\n")
    with service:
        running = command.start(
            "run", command.write("rows.jsonl", [chat_row("one"), chat_row("two")]), "-o", "out.jsonl"
        )
        running.until(vendor, lambda vendor: vendor.in_flight > 0)
        by_pid = {worker["pid"]: worker for worker in listed(command, "workers")}
        refused = command("workers", "drain", str(by_pid[running.process.pid]["name"]))
        assert refused.code == 2
        assert "end that command with Ctrl-C" in refused.err
        vendor.set(hold=False)
        assert running.end().code == 0
        drained = command("workers", "drain", str(by_pid[service.running.process.pid]["name"]), "--wait")
        assert (drained.code, "has ended." in drained.err) == (0, True)
        ended = service.end()
        assert ended.code == 0, ended.err
        assert "This worker was drained" in ended.err
