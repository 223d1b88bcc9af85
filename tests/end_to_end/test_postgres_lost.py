"""Real processes on a PostgreSQL whose disk is full for a while, and on one that is lost for good while a standby takes
its place."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.scripted_vendor import ScriptedVendor
from support.service import chats
from support.shared_database import LATENCY_S, ROWS
from support.two_places import Two, twice

DISK_BYTES = 64 * 1024 * 1024
PIECE = b"\0" * 65_536


@pytest.fixture
def small_disk() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="small-disk-"))
    folder.chmod(0o755)  # the server may run as another user
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
        folder.rmdir()
        pytest.skip("a small disk is a tmpfs here, which only root of a Linux machine may mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


def fill(ballast: Path) -> None:
    """To the last byte."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(PIECE)
        except OSError:
            return


def test_workers_wait_for_room_on_the_disk_of_the_server(
    postgres: PostgresServer, small_disk: Path, tmp_path: Path
) -> None:
    tables = small_disk / "tables"
    tables.mkdir()
    with ScriptedVendor() as vendor, ExitStack() as stack:
        vendor.set(latency_s=LATENCY_S)
        url = postgres.new_database(tables)
        stack.callback(postgres.drop, url)
        two = Two(tmp_path, url, vendor, stack)
        batch_id = two.service.submit(chats(ROWS))
        ours = two.work(0)
        ours.until(vendor, lambda vendor: len(vendor.hits) > ROWS // 4)
        fill(small_disk / "ballast")
        ours.wait_for("the server's disk is full")
        (small_disk / "ballast").unlink()
        two.holds(batch_id)
        assert ours.process.poll() is None, ours.said
        assert twice(vendor) == 0


def test_workers_go_on_at_the_standby_when_the_server_is_lost(tmp_path: Path) -> None:
    """In the midst of their commits: what of them landed is on both."""
    with (
        closing(PostgresServer({"synchronous_commit": "on"})) as server,
        closing(server.standby()) as standby,
        ScriptedVendor() as vendor,
        ExitStack() as stack,
    ):
        vendor.set(latency_s=LATENCY_S)
        name = server.new_database().rpartition("/")[2]
        hosts = f"127.0.0.1:{server.port},127.0.0.1:{standby.port}"
        url = f"postgresql://postgres@{hosts}/{name}?target_session_attrs=read-write"
        two = Two(tmp_path, url, vendor, stack)
        batch_id = two.service.submit(chats(ROWS))
        vendor.set(hold=True)
        workers = [two.work(0), two.work(1)]
        for worker in workers:
            worker.wait_for("Working on the batches")
        vendor.set(hold=False)
        vendor.release()
        workers[0].until(vendor, lambda vendor: len(vendor.hits) > ROWS // 3)
        server.crash()
        workers[0].wait_for("cannot be reached, or broke off")
        standby.told("SELECT pg_promote()")
        two.holds(batch_id)
        assert two.service.status(batch_id)["possible_double_payments"] >= twice(vendor)
        assert [worker.process.poll() for worker in workers] == [None, None], workers[0].said + workers[1].said
