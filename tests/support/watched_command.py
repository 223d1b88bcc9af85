"""The command as it is, watched from inside its own process, and killed there (SIGKILL) at a named step if asked to.

    python -m support.watched_command ACCOUNT POINT run rows.jsonl -o out.jsonl ...

ACCOUNT is a file that outlives the kill: how many attempts were sent, how many had ended, and how many of those are in
a checkpoint that has landed. POINT is `name:occurrence` ("after checkpoint:3"), or `-` for none; `points` lists names.

The product has no switch for this: what is watched and killed here is laid around its parts before it starts.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from batchwright.assemble import machine, workers
from batchwright.engine import file_intake, intake, piece_cutter, stored_upload
from batchwright.engine.sender import Sender
from batchwright.engine.worker import WorkerParts
from batchwright.runner import export
from batchwright.store import dropping, repricing, rounds
from batchwright.store import files as store_files
from batchwright.store.object_store import RemoteObjects
from batchwright.vendors.openai import OpenAIVendor

LAYOUT = struct.Struct("=QQQ")
SENT, ENDED, DURABLE = range(3)
STORE_STEPS = (
    "create_batch",
    "add_segments",
    "close_intake",
    "register_worker",
    "end_worker",
    "reopen",
    "request_close",
    "close_step",
    "resume_batch",
    "reprice",
    "add_pieces",
    "finish_file",
    "create_file_batch",
    "begin_intake_again",
    "close_file_intake",
    "refuse_file_batch",
    "sweep_files",
)
"""Each is a point before and one after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    sent: int
    ended: int
    durable: int
    """Of the attempts that ended: in a checkpoint that has landed."""

    @property
    def exposed(self) -> int:
        """In flight, or answered since the last checkpoint that landed began: what a kill may cost."""
        return self.sent - self.durable


def read_account(path: Path) -> Account:
    """All zero if the process was killed before it sent anything."""
    data = path.read_bytes() if path.exists() else bytes(LAYOUT.size)
    sent, ended, durable = LAYOUT.unpack_from(data)
    return Account(sent=sent, ended=ended, durable=durable)


class _Watch:
    def __init__(self, path: str, point: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.ftruncate(descriptor, LAYOUT.size)
        # Each number is one aligned store. (`Struct.pack_into` clears the place first: a kill in between left zeros.)
        self._kept = memoryview(mmap.mmap(descriptor, LAYOUT.size)).cast("Q")
        self._sent = self._ended = self._proposed = 0
        self._point, _, occurrence = point.partition(":")
        self._left = int(occurrence or 1)

    def reach(self, point: str) -> None:
        if point != self._point:
            return
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def step(self, name: str) -> None:
        """The worker's own named steps."""
        if name == "before checkpoint":
            self._proposed = self._ended
        else:
            self._kept[DURABLE] = self._proposed
        self.reach(name)

    def send(self) -> None:
        self._sent += 1
        self._kept[SENT] = self._sent

    def end(self) -> None:
        self._ended += 1
        self._kept[ENDED] = self._ended

    def around(self, place: Any, name: str, point: str) -> None:
        """Points before and after a call."""
        original: Callable[..., Any] = getattr(place, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            self.reach(f"before {point}")
            result = original(*arguments, **named)
            self.reach(f"after {point}")
            return result

        setattr(place, name, watched)


class _WatchedStore:
    """The store, with a point before and after each of its steps."""

    def __init__(self, store: Any, watch: _Watch) -> None:
        self._store = store
        for name in STORE_STEPS:
            setattr(self, name, getattr(store, name))
            watch.around(self, name, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _lay_around(watch: _Watch) -> None:
    places: Any = (workers, machine)
    open_store = places[1].open_store
    places[0].WorkerParts = partial(WorkerParts, step=watch.step)
    places[1].open_store = lambda *place: _WatchedStore(open_store(*place), watch)

    book, send = Sender._book, OpenAIVendor.send

    def booked(self: Sender, *arguments: Any) -> None:
        watch.reach("before booking")
        book(self, *arguments)
        watch.end()
        watch.reach("after booking")

    def sent(self: OpenAIVendor, *arguments: Any) -> Any:
        watch.send()
        watch.reach("before send")
        call = send(self, *arguments)
        watch.reach("after send")
        return call

    parts: Any = (Sender, OpenAIVendor)
    parts[0]._book, parts[1].send = booked, sent
    watch.around(export, "_commit", "writing")
    watch.around(os, "replace", "rename")
    watch.around(rounds, "_step", "reopening step")
    watch.around(dropping, "step", "drop step")
    watch.around(RemoteObjects, "put", "object put")
    watch.around(repricing, "_count", "repricing sums")
    _watch_commits(watch)


def _watch_commits(watch: _Watch) -> None:
    """ "commit": all statements of a transaction were executed, and it is not committed."""
    from sqlalchemy import Engine, event

    event.listen(Engine, "commit", lambda connection: watch.reach("commit"))


def _in_small_steps() -> None:
    """So that a few hundred rows need several transactions where many thousands would."""
    places: Any = (intake, rounds)
    places[0].WRITE_BYTES = 1
    places[0].SEGMENT_ROWS = 100
    places[1].STEP = 1
    files: Any = (file_intake, stored_upload, piece_cutter)
    files[0].WRITE_BYTES = 1
    files[1].WRITE_BYTES = 1
    files[2].SEGMENT_ROWS = 100
    uploads: Any = store_files
    uploads.SWEPT_PIECES = 1


def main(arguments: Sequence[str]) -> None:
    account, point, *command = arguments
    _lay_around(_Watch(account, point if point != "-" else ""))
    _in_small_steps()
    sys.argv = ["batchwright", *command]
    from batchwright.cli import main as batchwright

    batchwright()


if __name__ == "__main__":
    main(sys.argv[1:])
