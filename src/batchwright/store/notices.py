"""What a PostgreSQL server passes on of other processes' commits: a wake-up, never the truth.

One thread listens. It counts what it is told, and what it has looked at: also every 0.2 s in which it was told nothing,
for most commits are told to nobody. Whoever asks gets a number and waits for no server. Where nothing can be heard (a
pooler in transaction mode, a server that is away) the second number goes on alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from batchwright.core.errors import StoreError
from batchwright.store.dialect import CHANNEL

LOOK_EVERY_S = 0.2
"""What is read of a batch may be that old."""
POLL_EVERY = 5
"""Looks after which whoever waits looks for himself, whether anything was told or not: once a second."""
LISTEN_EVERY = 150
"""Looks after which the server is asked for a word."""
DIAL_EVERY = 10
"""Looks between two attempts to listen again."""


class Notices:
    """The thread starts when the first number is asked for: a command that waits for nothing needs none."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._told = 0
        self._looks = 0
        self._closing = threading.Event()
        self._start = threading.Lock()
        self._thread: threading.Thread | None = None

    def told(self) -> int:
        """Another number once another process has told of a commit, and once a second."""
        self._begin()
        return self._told + self._looks // POLL_EVERY

    def looked(self) -> int:
        """Another number once 0.2 s have passed, or a commit was told."""
        self._begin()
        return self._looks

    def close(self) -> None:
        self._closing.set()
        with self._start:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _begin(self) -> None:
        if self._thread is not None:
            return
        with self._start:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        import psycopg

        while not self._closing.is_set():
            try:
                with self._connect() as connection:
                    while not self._closing.is_set():
                        # Said again, it changes nothing, but finds out a connection on which nothing will come.
                        connection.execute(f"LISTEN {CHANNEL}")
                        for _ in range(LISTEN_EVERY):
                            if self._closing.is_set():
                                break
                            self._count(sum(1 for _ in connection.notifies(timeout=LOOK_EVERY_S, stop_after=1)))
            except (psycopg.Error, StoreError):
                for _ in range(DIAL_EVERY):
                    if self._closing.wait(LOOK_EVERY_S):
                        break
                    self._count(0)

    def _count(self, told: int) -> None:
        # One thread writes, others only read: no lock.
        self._told += told
        self._looks += 1
