"""A batch that is durable and that nobody works on, and what became of it."""

from __future__ import annotations

import os
import select
from pathlib import Path

from batchwright.core.batch_state import derive
from batchwright.store.open import open_store
from support.command_line import CommandLine, content
from support.scripted_vendor import ScriptedVendor

LISTENING = "0A"
LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")
"""As /proc/net has 127.0.0.1, ::1, and the first on a socket of the second kind."""


def leave_batch(command: CommandLine, vendor: ScriptedVendor, rows: int) -> None:
    """Taken in by a `run` that is killed with its first rows at the vendor."""
    command.write("rows.jsonl", [{"prompt": f"Say word{row}"} for row in range(rows)])
    vendor.set(hold=True)
    run = command.start(
        *("run", "rows.jsonl", "-o", "out.jsonl", "--base-url", vendor.base_url, "--api-key-env", "", "-m", "m"),
        *("-c", "16", "--max-attempts", "20", "--progress", "none"),
    )
    run.until(vendor, lambda vendor: len(vendor.hits) >= 1)
    run.kill()
    run.end()
    vendor.set(hold=False)
    vendor.release()


def is_settled(place: Path | str) -> bool:
    """Whether the newest batch has ended."""
    store = open_store(place)
    try:
        batch = store.find_batches(limit=1)[0]
        return derive(batch.facts, batch.tally).terminal
    finally:
        store.close()


def holds(command: CommandLine, place: Path | str, rows: int) -> None:
    """Every row is there once, in order and right, and the store says so too."""
    ended = command("export", "@last", "-o", "out.jsonl")
    assert ended.code == 0, ended.err
    lines = command.lines()
    assert [line["request_index"] for line in lines] == list(range(rows))
    assert [content(line) for line in lines] == [f"word{row}" for row in range(rows)]
    store = open_store(place)
    try:
        assert [store.check(batch.batch_id) for batch in store.find_batches()] == [[]]
    finally:
        store.close()


def children_of(pid: int) -> dict[int, str]:
    """Processes that descend from this one, each with its command line. On Linux."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found: dict[int, str] = {}
    for child in parents:
        above = child
        while above in parents and above != pid:
            above = parents[above]
        if above == pid and child != pid:
            try:
                found[child] = (Path("/proc") / str(child) / "cmdline").read_text().replace("\x00", " ").strip()
            except OSError:
                continue
    return found


def is_alive(pid: int) -> bool:
    """A zombie has ended."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_end(pids: list[int], timeout_s: float = 60.0) -> None:
    """Until none of these processes, whoever's children they are, is there any more. On Linux."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ready, _, _ = select.select([descriptor], [], [], timeout_s)
            assert ready, f"process {pid} is still there"
        finally:
            os.close(descriptor)


def listens_beyond(pids: list[int]) -> list[str]:
    """Addresses beside loopback that these processes listen at. On Linux."""
    sockets: dict[str, str] = {}
    for name in ("tcp", "tcp6"):
        for line in (Path("/proc/net") / name).read_text().splitlines()[1:]:
            fields = line.split()
            address = fields[1].rpartition(":")[0]
            if fields[3] == LISTENING and address not in LOOPBACK:
                sockets[f"socket:[{fields[9]}]"] = fields[1]
    found = []
    for pid in pids:
        try:
            opened = [os.readlink(entry) for entry in (Path("/proc") / str(pid) / "fd").iterdir()]
        except OSError:
            continue
        found += [sockets[name] for name in opened if name in sockets]
    return found
