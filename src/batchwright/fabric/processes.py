"""Workers as processes of their own on this machine, watched over by the one that started them.

    starting -> working -> ended as it was told                        (its slot stays empty)
        |          |
        +----------+-----> died or failed -> waits -> starting         (counted, told; the wait grows, and is bounded)

The processes are spawned, not forked: a fork takes threads' locks and open connections with it. One that ended many
times before it had begun to work ends them all: what is in its way is not mended by another start.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from batchwright.core.errors import StoreError, UsageError
from batchwright.fabric import child_process
from batchwright.fabric.child_process import HELD_BACK, Failed, Order, Told, ToParent
from batchwright.fabric.hosting import Say, WorkerBuilder, together
from batchwright.ports.clock import Clock
from batchwright.ports.observer import WorkerView

WAIT_MIN_S, WAIT_MAX_S = 0.5, 30.0
"""Before the first start after a death, and at most."""
STEADY_S = 60.0
"""One that has worked for so long begins with the shortest wait again."""
NEVER_WORKED_MAX = 5
"""Starts of one slot in a row that ended before it worked."""
IDLE_LOOKS = 3
"""Of each worker, in a row, until all count as idle at one time: what one gives back another takes up meanwhile."""
END_NOW_S = 10.0
"""A process that was told to end at once and has not by then is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    build: WorkerBuilder
    count: int
    name: str = "worker process"
    """What one is, for people: a word of which more than one are "...es"."""
    until_idle: bool = False
    """End all once none of them has found rows to send."""
    own_group: bool = False
    """Each has processes of its own, which end with it."""


class ProcessWorkers:
    """Several processes as one `hosting.RunningWorker`. To be made inside a running loop."""

    def __init__(self, plan: ProcessPlan, *, clock: Clock, say: Say) -> None:
        self._plan = plan
        self._clock = clock
        self._say = say
        self._running: dict[int, _Child] = {}
        self._answered = 0
        """By processes that have ended."""
        self._stop = asyncio.Event()
        self.deaths = 0
        self._worked = False
        """Some process did, that has ended."""
        self._slots = [asyncio.create_task(self._keep(n), name=f"process {n}") for n in range(1, plan.count + 1)]

    async def wait(self) -> None:
        """Raises UsageError for what they refuse to begin with, StoreError when a worker cannot be started here."""
        done, _ = await asyncio.wait(self._slots, return_when=asyncio.FIRST_EXCEPTION)
        if any(slot.exception() for slot in done):
            await self.stop(grace=True)
        for slot in self._slots:
            await slot

    async def stop(self, *, grace: bool) -> None:
        self._stop.set()
        for child in self._running.values():
            child.order(Order(grace=grace))
        if not grace:
            await asyncio.wait(self._slots, timeout=END_NOW_S)
            for child in self._running.values():
                child.kill()
        await asyncio.wait(self._slots)

    def view(self) -> WorkerView | None:
        if all(slot.done() for slot in self._slots):
            return None
        views = [child.view for child in self._running.values() if child.view is not None]
        whole = together(views)
        answered, lacking = whole.answered + self._answered, len(self._slots) - len(views)
        if not lacking:
            return replace(whole, answered=answered)
        note = f"{lacking} of {len(self._slots)} {self._plan.name}es on the way"
        return replace(whole, answered=answered, idle_looks=0, note="; ".join(filter(None, (whole.note, note))))

    async def _keep(self, number: int) -> None:
        wait_s, never_worked = WAIT_MIN_S, 0
        while not self._stop.is_set():
            began_s = self._clock.now_s()
            child = _Child(self._plan, self._say, self._viewed)
            self._running[number] = child
            code = await child.ended
            del self._running[number]
            self._answered += child.view.answered if child.view is not None else 0
            if child.refused and not self._worked:
                raise UsageError(child.failure)  # also of one that the first refusal had told to stop
            if self._stop.is_set() and child.failure:
                raise StoreError(f"The {self._plan.name} {number} ({child.pid}) ended: {child.failure}")
            if self._stop.is_set():
                return
            self._worked = self._worked or child.view is not None
            self.deaths += 1
            if child.view is not None and self._clock.now_s() - began_s > STEADY_S:
                wait_s = WAIT_MIN_S
            never_worked = 0 if child.view is not None else never_worked + 1
            end = f"The {self._plan.name} {number} ({child.pid}) ended: {child.failure or _end_text(code)}"
            if never_worked == NEVER_WORKED_MAX:
                raise StoreError(f"{end} It was started {never_worked} times and never began to work.")
            self._say(f"{end} Another is started in {wait_s:g} s; {self.deaths} so far ended without being told to.")
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stop.wait()
            wait_s = min(2 * wait_s, WAIT_MAX_S)

    def _viewed(self) -> None:
        if not self._plan.until_idle or self._stop.is_set():
            return
        view = self.view()
        if view is not None and view.idle_looks >= IDLE_LOOKS:
            self._stop.set()
            for child in self._running.values():
                child.order(Order(grace=True))


class _Child:
    """One process, from its start to its end."""

    def __init__(self, plan: ProcessPlan, say: Say, viewed: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self.view: WorkerView | None = None
        """What it told last; None: it has not begun to work."""
        self.failure, self.refused = "", False
        self.ended: asyncio.Future[int] = loop.create_future()
        self._say = say
        self._viewed = viewed
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        arguments = (theirs, plan.build, plan.own_group)
        self._process = spawn.Process(target=child_process.main, args=arguments, name="batchwright worker")
        self._own_group = plan.own_group
        with _signals_held_back():
            self._process.start()
        theirs.close()  # or the pipe would not end with it
        self.pid = self._process.pid or 0
        threading.Thread(target=self._listen, args=(loop, self._connection), daemon=True).start()

    def order(self, order: Order) -> None:
        with suppress(OSError):  # it has ended
            self._connection.send(order)

    def kill(self) -> None:
        if not self.ended.done():
            self._process.kill()

    def _listen(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        with suppress(RuntimeError):  # the loop has ended: so does this process
            with suppress(EOFError, OSError):
                while True:
                    loop.call_soon_threadsafe(self._hear, connection.recv())
            self._process.join()
            if self._own_group and sys.platform != "win32":
                with suppress(ProcessLookupError):  # nobody is left there
                    os.killpg(self.pid, signal.SIGKILL)
            loop.call_soon_threadsafe(self._set_ended)

    def _hear(self, message: ToParent) -> None:
        match message:
            case Told(text):
                self._say(text)
            case Failed(text, refused):
                self.failure, self.refused = text, refused
            case WorkerView():
                self.view = message
                self._viewed()

    def _set_ended(self) -> None:
        self._connection.close()
        self.ended.set_result(self._process.exitcode or 0)


def _end_text(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}."
    return f"with exit code {code}."


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """What is started meanwhile begins with these signals blocked, and unblocks them when it is ready for them."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
