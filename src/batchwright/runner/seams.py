"""What the runner is handed beside `ports.batches`: workers, locks, a display and interrupts.

The cut: the runner asks for workers on one batch and is told when they ended; where they run (this loop, another
process, a service that has its own) is not its business. Locks tell two runs on one machine apart: one is held from
looking for an earlier batch until the new one is durable, so that the same command started twice at once makes one
batch; the other for as long as a run owes a batch its output. Interrupts are counted, never raised.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from batchwright.ports.batches import Batches, BatchStatus
from batchwright.ports.clock import Clock
from batchwright.ports.observer import WorkerView
from batchwright.runner.object_inputs import OpenObjects
from batchwright.runner.request import Pace


class RunningWorkers(Protocol):
    """Workers that were started for one batch, as one thing."""

    async def wait(self) -> None:
        """Returns when none of them runs any more: the batch is settled or paused, or `stop` was called.

        Raises what ended them otherwise (VendorUnavailable, StoreError, a bug). May be awaited once. Workers of a
        service are not ours to wait for: their `wait` returns only after `stop`.
        """

    async def stop(self, *, grace: bool) -> None:
        """Stops sending, checkpoints what was answered, gives the segments back; returns when that is done.

        With `grace`, rows in flight are waited for (bounded); without, they are dropped and count as in doubt. A second
        call without grace cuts a first one with grace short. Harmless after the end.
        """

    def view(self) -> WorkerView | None:
        """Live figures for a screen; None where there are none. Cheap; called several times a second."""


class Workers(Protocol):
    async def start(self, batch_id: str, pace: Pace) -> RunningWorkers:
        """Starts what works on this batch and on no other. What `pace` sets goes before what the batch says.

        Raises VendorUnavailable where it can tell already that no row can be sent.
        """


class HeldLock(Protocol):
    def release(self) -> None:
        """Harmless when called twice. The end of the process releases it too, however it ends."""


@dataclass(frozen=True, slots=True)
class HeldElsewhere:
    """Another live process has the lock."""

    holder: str
    """For people: "process 4711"."""


class RunLocks(Protocol):
    def take(self, name: str) -> HeldLock | HeldElsewhere:
        """At once, never waiting. `name` is a batch id or `plan-` and an identity; letters, digits, `_` and `-`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a screen shows of a running batch: the store's truth, and this process's live figures beside it."""

    status: BatchStatus
    view: WorkerView | None
    now_ms: int
    elapsed_s: float
    rows_per_s: float
    """Over the last seconds; 0.0 while nothing ended."""
    eta_s: float
    """-1.0: not known."""
    stopping: str
    """Why nothing new is sent although rows are open ("Ctrl-C: ..."); empty: going on."""


class Display(Protocol):
    """Where progress is shown. Everything goes to stderr; nothing here may fail a run."""

    def say(self, text: str) -> None:
        """A line (or several) that stays."""

    def reading(self, rows: int) -> None:
        """So many rows of the input are taken in."""

    def show(self, snapshot: Snapshot) -> None: ...

    def writing(self, done: int, total: int) -> None:
        """So many rows of the output are written."""

    def close(self) -> None:
        """Takes what moves off the screen; what was said stays. Harmless when called twice."""


class Interrupts(Protocol):
    """How often a person (Ctrl-C) or the system (SIGTERM) asked this process to end."""

    @property
    def count(self) -> int:
        """0: go on. 1: finish what is out. 2: stop now."""

    async def wait(self, seen: int) -> None:
        """Returns once `count` is above `seen`."""

    def at_once(self) -> AbstractContextManager[None]:
        """While it is open an interrupt raises KeyboardInterrupt where the main thread is: nothing is durable yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """All of them, as the parts of the runner pass them on."""

    batches: Batches
    workers: Workers
    display: Display
    clock: Clock
    locks: RunLocks
    interrupts: Interrupts
    objects: OpenObjects | None = None
    """For outputs that are objects; None: there can be none."""
