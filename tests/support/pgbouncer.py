"""A real PgBouncer in transaction mode before the session's PostgreSQL server; skipped where there is none."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from support.postgres import NOBODY, USER, PostgresServer, as_nobody
from support.raw_server import free_port

PROGRAM = shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
START_TRIES = 200
SETTINGS = """\
[databases]
* = host=127.0.0.1 port={server} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
server_round_robin = 1
"""
"""Fewer connections to the server than clients have, taken in turn: whatever a client left on one is met by another."""


class PgBouncer:
    def __init__(self, server: PostgresServer) -> None:
        assert PROGRAM is not None
        self._folder = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
        self.port = free_port()
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(SETTINGS.format(server=server.port, user=USER, port=self.port))
        if os.geteuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
        log = self._folder / "log"
        with log.open("wb") as out:
            self._process = subprocess.Popen([PROGRAM, settings], stdout=out, stderr=out, **as_nobody())
        for _ in range(START_TRIES):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            except OSError:
                try:
                    self._process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
                break
        raise AssertionError(f"PgBouncer did not start: {log.read_text()}")

    def url(self, url: str) -> str:
        """A database's URL, through it."""
        return urlunsplit(urlsplit(url)._replace(netloc=f"{USER}@127.0.0.1:{self.port}"))

    def close(self) -> None:
        self._process.kill()
        self._process.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    if PROGRAM is None:
        pytest.skip("there is no pgbouncer on this machine (Debian: apt-get install pgbouncer)")
    bouncer = PgBouncer(postgres)
    yield bouncer
    bouncer.close()
