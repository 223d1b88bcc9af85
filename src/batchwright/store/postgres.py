"""A PostgreSQL server: a pool of writing connections, a pool of reading ones, and one that listens.

Nothing outlives a transaction on a connection (no prepared statement, no setting, no lock of a session), so that a
pooler which hands connections out by the transaction may stand before the server. Only the listening one is a session;
where its server never tells it anything, readers and workers look by themselves (`store.notices`).

A transaction that writes is READ COMMITTED: each statement sees what was committed before it. What must not change
between two of its statements is locked by the first (`docs/adr/0008-postgresql.md` says which, and in what order). One
that reads is REPEATABLE READ and read-only: it sees one moment and is in nobody's way. Each says in its first message
how long the server may take (`store.postgres_driver`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool

from batchwright.core.errors import StoreAway, StoreError
from batchwright.store import body_days
from batchwright.store.connections import TryAgain
from batchwright.store.notices import Notices

T = TypeVar("T")

WRITERS = 4
READERS = 8
"""Connections of one process at most, beside the listening one."""
POOL_WAIT_S = 30.0
TRIES = 20
IN_THE_WAY = frozenset(
    {
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected: this transaction was chosen to make room
        "23505",  # unique_violation: another wrote the same row first; it is read the next time
    }
)

CANCEL_S = 5.0
"""For a server to say that it has given a statement up."""
ALREADY_OR_LATER = frozenset(
    {
        "57014",  # query_canceled
        "55P03",  # lock_not_available
        "40P01",  # deadlock_detected
        "55000",  # object_not_in_prerequisite_state: another process is at it
        "42P01",  # undefined_table: another process has done it
        "42809",  # wrong_object_type: likewise
    }
)


def load_psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise StoreError(
            "A PostgreSQL database needs the extra `postgres`, which is not installed: "
            'pip install "batchwright[postgres]"'
        ) from error
    return psycopg


class PostgresConnections:
    """Implements `store.connections.Connections`."""

    upgrades_itself = False
    keeps_days = True

    def __init__(self, url: str, *, shown: str) -> None:
        """`shown`: the URL as people may see it. Raises StoreError where the server cannot be reached or refuses."""
        self._shown = shown
        self._writers = _engine(url, WRITERS)
        self._readers = _engine(url, READERS)
        self._notices = Notices(lambda: _connect(url))
        self._lock = threading.Lock()
        self._commits = 0
        self._days_looked_ms = -body_days.LOOKED_EVERY_MS
        self._closed = False
        with self._explained(), self._writers.connect():
            pass

    @property
    def name(self) -> str:
        return f"The database {self._shown}"

    @property
    def elsewhere(self) -> str:
        return "name another database, or another schema of it (?options=-csearch_path%3DNAME)"

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._explained(), self._begun() as connection:
            yield connection

    def transact(self, work: Callable[[Connection], T]) -> T:
        with self._explained():
            for tried in range(1, TRIES + 1):
                try:
                    with self._begun() as connection:
                        return work(connection)
                except TryAgain:
                    if tried == TRIES:
                        raise
                except DBAPIError as error:
                    day = body_days.lacking_day(error)
                    if tried == TRIES or (day is None and getattr(error.orig, "sqlstate", None) not in IN_THE_WAY):
                        raise
                    if day is not None:
                        self._make_day(day)
                except _BrokenBefore:
                    if tried == TRIES:
                        raise
        raise AssertionError("the last try returns or raises")

    def _make_day(self, day: int) -> None:
        """Of which nobody has thought ahead: the first one, or where a clock stands apart."""
        with self._begun() as connection:
            body_days.make(connection, day)

    def run_alone(self, sql: str, patience_s: float) -> bool:
        """One statement outside a transaction; false: others were in its way for so long, and it was given up, or
        another process has done it."""
        with self._explained(), self._writers.connect() as connection:
            self._check_open()
            driver: Any = connection.connection.dbapi_connection
            driver.silent_s = patience_s + CANCEL_S
            # A setting of the session would be the next client's behind a pooler.
            patience = threading.Timer(patience_s, driver.cancel_safe)
            patience.start()
            try:
                driver.execute(sql)
            except load_psycopg().Error as error:
                connection.invalidate()  # where it was cancelled, the word may come late and meet what is next on it
                if error.sqlstate not in ALREADY_OR_LATER:
                    raise DBAPIError.instance(sql, None, error, load_psycopg().Error) from error
                return False
            finally:
                patience.cancel()
        return True

    @contextmanager
    def _begun(self) -> Iterator[Connection]:
        with self._on(self._writers) as connection:
            yield connection
        with self._lock:
            self._commits += 1

    @contextmanager
    def _on(self, engine: Engine) -> Iterator[Connection]:
        """One transaction. Raises _BrokenBefore where the connection breaks within it."""
        from batchwright.store.postgres_driver import READING, WRITING, Silent

        self._check_open()
        patience = WRITING if engine is self._writers else READING
        with engine.connect() as connection, connection.begin():
            driver: Any = connection.connection.dbapi_connection
            try:
                driver.silent_s = patience.silent_s
                connection.exec_driver_sql(patience.begin)
                yield connection
            except DBAPIError as error:
                if not driver.closed or isinstance(error.orig, Silent):
                    raise  # where nothing was said, another connection would only wait as long again
                # Before the commit was sent: nothing of it can have landed, and another connection may do.
                if not connection.invalidated:
                    connection.invalidate(error)
                raise _BrokenBefore(error) from error

    def look(self, work: Callable[[Connection], T]) -> T:
        with self._explained():
            try:
                with self._on(self._readers) as connection:
                    return work(connection)
            except _BrokenBefore:
                with self._on(self._readers) as connection:
                    return work(connection)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._explained(), self._on(self._readers) as connection:
            yield connection

    def give_back_pages(self) -> None:
        """The server vacuums by itself."""

    def sweep_days(self, now_ms: int, keep_ended_ms: int) -> int:
        with self._lock:
            if 0 <= now_ms - self._days_looked_ms < body_days.LOOKED_EVERY_MS:
                return 0
            self._days_looked_ms = now_ms
        return body_days.sweep(self, now_ms, keep_ended_ms)

    def data_version(self) -> int:
        self._check_open()
        return self._notices.told()

    def changes(self) -> int:
        """Moves with each commit of this process, with what others tell, and else every 0.2 s: what is read here may be
        that old."""
        self._check_open()
        with self._lock:
            return self._commits + self._notices.looked()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._notices.close()
        self._readers.dispose()
        self._writers.dispose()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("The store has been closed.")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except PoolTimeout as error:
            raise StoreError(
                f"{self.name}: all {WRITERS} writing or {READERS} reading connections of this process have been busy "
                f"for {POOL_WAIT_S:g} s. The server is overloaded or holds them up."
            ) from error
        except TryAgain as error:
            raise StoreError(
                f"{self.name}: other transactions were in the way of this one {TRIES} times. Nothing of it was written."
            ) from error
        except (DBAPIError, _BrokenBefore) as error:
            cause = error.error if isinstance(error, _BrokenBefore) else error
            explained = _explain(cause, self.name)
            if explained is None:
                raise _without_details(cause) from error
            raise explained from cause


class _BrokenBefore(Exception):
    """The connection broke before a commit was sent on it."""

    def __init__(self, error: DBAPIError) -> None:
        super().__init__(str(error))
        self.error = error


def _engine(url: str, size: int) -> Engine:
    def connect() -> Any:
        connection = _connect(url)
        # Behind a pooler it may run where another client has listened: what it is told of is not kept.
        connection.add_notify_handler(lambda notice: None)
        return connection

    load_psycopg()
    engine = create_engine(
        "postgresql+psycopg://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=size,
        max_overflow=0,
        pool_timeout=POOL_WAIT_S,
        # A server that was restarted, or a pooler, has closed what lay here.
        pool_pre_ping=True,
        pool_use_lifo=True,
        use_native_hstore=False,
        # A message is for the log, and parameters are requests and answers.
        hide_parameters=True,
    )
    event.listen(engine, "before_cursor_execute", _not_together)
    return engine


def _not_together(_connection: Connection, cursor: Any, statement: str, *_: object) -> None:
    """Within `prepared.together` SQLAlchemy would find nothing, whatever is there."""
    if cursor.connection.pgconn.pipeline_status:
        raise AssertionError(f"this must be a prepared statement where several are sent together: {statement[:200]}")


def _connect(url: str) -> Any:
    load_psycopg()
    from batchwright.store.postgres_driver import dial  # needs the driver

    return dial(url)


_CAUSES: dict[str, str] = {
    "53100": "the server's disk is full. Free some space there, then run the same command again",
    "53300": "the server has no connection left. Raise its max_connections, put a pooler before it, or run fewer "
    "processes here",
    "25006": "it can only be read, as a standby. Name the primary server",
    "42501": "its user may not do that. It needs CREATE on the schema, and to own the tables there or be of the role "
    "that does",
    "3D000": "there is no such database. Create it (createdb), or correct its name, then run the same command again. "
    "Expected is postgresql://USER@HOST/NAME; without NAME it is named as its user",
    "28000": "the server refuses its user. Name one that it knows and lets in from here (CREATE ROLE, pg_hba.conf)",
    "28P01": "the server refuses its user or password. Check the user's name, and give the password in PGPASSWORD, in "
    "~/.pgpass, or within BATCHWRIGHT_DATABASE",
    "57014": "the server has cancelled a statement that took too long (statement_timeout)",
    "55P03": "a lock was not had in time (lock_timeout): another transaction holds it for too long",
    "25P03": "the server has ended a transaction in which this process did nothing for too long; it was stopped",
    "42P01": "a table of batchwright is not there any more. Restore it from a backup, or name another database",
}
_PASSING = ("08", "53", "57P", "57014", "55P03", "25P03", "25006")
"""How the states begin that may be otherwise a moment later: the server comes back, room is made, connections end, a
standby becomes the primary, what held a statement up is over. Where no state came, there was no connection."""
_REFUSALS = (
    (re.compile("password authentication failed"), "28P01"),
    (re.compile("no password supplied"), "28P01"),
    (re.compile("no pg_hba.conf entry"), "28000"),
    (re.compile('role "'), "28000"),
    (re.compile('database ".*" does not exist'), "3D000"),
)
"""What the driver gives without a state, since nobody was let in: how the server words it, and the state it means."""
_KEPT_CHARS = 300
"""Of what a server says."""


def _explain(error: DBAPIError, name: str) -> StoreError | None:
    """What a database error means to a person; None for an error that is a fault of ours."""
    cause = error.orig
    psycopg = load_psycopg()
    state = getattr(cause, "sqlstate", None) or _state_of_refusal(str(cause))
    meaning = _CAUSES.get(state)
    passes = not state or state.startswith(_PASSING)
    if meaning is not None:
        return (StoreAway if passes else StoreError)(f"{name}: {meaning}.")
    if not isinstance(cause, (psycopg.OperationalError, psycopg.InterfaceError)):
        return None
    words = " ".join((_primary(cause) or str(cause)).split())[:_KEPT_CHARS]
    return (StoreAway if passes else StoreError)(
        f"{name} cannot be reached, or broke off ({words}). Check that the server runs and that its address is right; "
        "what was confirmed is not lost."
    )


def _state_of_refusal(text: str) -> str:
    """Of a connection that the server took, and ended at once; empty: it is not known why."""
    if "FATAL:" not in text and "no password supplied" not in text:
        return ""
    return next((state for words, state in _REFUSALS if words.search(text)), "")


def _without_details(error: DBAPIError) -> DBAPIError:
    """The same error without the server's DETAIL, which shows the very row that was refused: what people wrote."""
    if (cause := error.orig) is not None and (primary := _primary(cause)):
        cause.args = (primary,)
        error.args = (f"({type(cause).__name__}) {primary}",)
    return error


def _primary(cause: BaseException) -> str:
    """The message that a server sent, in one line; empty: none came."""
    return getattr(getattr(cause, "diag", None), "message_primary", None) or ""
