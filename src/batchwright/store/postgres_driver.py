"""Connections to a PostgreSQL server, none of which waits for ever.

Three things end a wait, so that whoever waits is told in time to stop sending by the half of a lease:

- the server, which is told in each transaction's first message how long a statement, a lock and a client that says
  nothing in the midst of a transaction may take. A setting of the session would not outlive a pooler that hands out
  connections by the transaction, and a parameter of the start is refused by it;
- this side, where the server says nothing at all to a statement or a commit: it has stopped, or what lies between has,
  while TCP holds that all is well. The connection is closed then, for what comes on it later is of another moment;
- TCP, for a machine that is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.abc import PQGen

from batchwright.core.errors import UsageError
from batchwright.store.postgres_text import register

DEFAULTS: dict[str, object] = {
    "connect_timeout": 10,
    # A machine that has gone without a word is found out before a lease is over, not in two hours.
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "application_name": "batchwright",
}
"""Of a connection, where the URL does not say another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long one transaction's statements may take."""

    begin: str
    """The first message: begins the transaction and tells the server."""
    silent_s: float
    """Without a word of the server to a statement or a commit; longer than what the server was told."""


def _begin(kind: str, **limits_s: float) -> str:
    told = (f"SET LOCAL {name} = {int(seconds * 1000)}" for name, seconds in limits_s.items())
    return "; ".join((f"BEGIN ISOLATION LEVEL {kind}", *told))


IDLE_S = 5.0
"""Between two statements of ours nothing is waited for: a process that takes so long was stopped, and what it has
locked stands in others' way. It does all of the transaction again."""
WRITING = Patience(
    begin=_begin(
        "READ COMMITTED READ WRITE",
        statement_timeout=12.0,
        lock_timeout=8.0,
        idle_in_transaction_session_timeout=IDLE_S,
    ),
    silent_s=15.0,
)
"""15 s are half of the default lease. The longest step there is takes a fraction of one."""
READING = Patience(
    begin=_begin("REPEATABLE READ READ ONLY", statement_timeout=60.0, idle_in_transaction_session_timeout=60.0),
    silent_s=65.0,
)
"""Holds nobody up; what reads a batch as a whole may take its time, and does something between its statements."""


class Silent(psycopg.OperationalError):
    """The server has said nothing for too long. Whether a commit landed is not known."""


class Bounded(psycopg.Connection[Any]):
    """A connection whose operations are given up by this side too."""

    silent_s: float | None = WRITING.silent_s
    """None: as long as it takes."""

    def wait(self, gen: PQGen[Any], interval: float = 0.1, timeout: float | None = None) -> Any:
        if timeout is not None or self.silent_s is None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.silent_s)
        except psycopg.errors._WaitTimeout as error:
            self.pgconn.finish()
            raise Silent(f"the server has said nothing for {self.silent_s:g} s") from error


def dial(url: str) -> Bounded:
    """A connection on which nothing begins a transaction by itself. Raises UsageError for a URL that cannot be read."""
    try:
        given = psycopg.conninfo.conninfo_to_dict(url)
        # No statement is prepared on the server: behind a pooler the next transaction may run on another connection.
        # What a URL may say has more types than the stubs know by name.
        connection = Bounded.connect(**{**DEFAULTS, **given}, autocommit=True, prepare_threshold=None)  # type: ignore[arg-type]
    except psycopg.ProgrammingError as error:  # of libpq, before anything was sent
        raise _unreadable(error, url) from None
    register(connection)
    return connection


def connect_timeout_s(url: str) -> float:
    """What a connection is given at each address, as libpq takes it; 0: any time. Raises UsageError as `dial`."""
    try:
        given = psycopg.conninfo.conninfo_to_dict(url).get("connect_timeout") or DEFAULTS["connect_timeout"]
    except psycopg.ProgrammingError as error:
        raise _unreadable(error, url) from None
    try:
        return max(0.0, float(str(given)))
    except ValueError:
        return 0.0  # libpq refuses it in its own words


def _unreadable(error: psycopg.ProgrammingError, url: str) -> UsageError:
    return UsageError(
        f"the database's URL (--database, BATCHWRIGHT_DATABASE or `database` in config.toml) cannot be read: "
        f"{_words_of(error, url)}. Expected postgresql://USER@HOST/NAME, with libpq's parameters after a ? if any"
    )


def _words_of(error: psycopg.ProgrammingError, url: str) -> str:
    """As libpq says it; what it quotes of a URL that may hold a password is left out."""
    words = " ".join(str(error).split())
    holds_secret = "password" in url or ":" in url.partition("://")[2].rpartition("@")[0]
    return words.partition('"')[0].rstrip(" :") if holds_secret else words
