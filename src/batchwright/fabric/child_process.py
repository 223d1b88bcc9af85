"""A process that hosts one worker for another process, its parent: what it does from its first line to its last.

It talks with its parent over one pipe: orders come in, sentences and figures go out. The pipe ends with the parent,
however that ends: the worker then ends in good order by itself. Signals of the terminal, which reach every process
there, are the parent's to pass on; SIGTERM to this very process asks for an orderly end.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from batchwright.core.errors import BatchwrightError, CallerError
from batchwright.fabric.hosting import RunningWorker, WorkerBuilder
from batchwright.fabric.own_process import own_loop, tune_own_process
from batchwright.fabric.system import SystemClock
from batchwright.ports.observer import WorkerView

VIEW_EVERY_S = 0.5
UNREAD_MAX = 200
"""Messages to a parent that does not read: of more, the newest are left out. A worker never waits for it."""
HELD_BACK = [signal.SIGINT, signal.SIGTERM]
"""Blocked from before the process is there until it knows what to do with them."""
if sys.platform != "win32":
    HELD_BACK.append(signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Told:
    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """What ended the worker, in words for people."""

    text: str
    refused: bool = False
    """What was asked for cannot be had: another start is refused too."""


@dataclass(frozen=True, slots=True)
class Order:
    """To stop."""

    grace: bool


ToParent = Told | Failed | WorkerView


def main(connection: Connection, build: WorkerBuilder, own_group: bool) -> None:
    """The target of the process. Ends it with 0, or with 1 when the worker ended otherwise than by an order.
    `own_group`: what it starts can be told apart from all else, and ended with it."""
    if own_group and sys.platform != "win32":
        os.setpgid(0, 0)
    tune_own_process()
    outbox = _Outbox(connection)
    with own_loop() as runner:
        code = runner.run(_host(connection, build, outbox))
    outbox.close()
    raise SystemExit(code)


async def _host(connection: Connection, build: WorkerBuilder, outbox: _Outbox) -> int:
    loop = asyncio.get_running_loop()
    orders: asyncio.Queue[Order] = asyncio.Queue()
    _take_signals(lambda: orders.put_nowait(Order(grace=True)))
    threading.Thread(
        target=_read, args=(connection, lambda order: loop.call_soon_threadsafe(orders.put_nowait, order)), daemon=True
    ).start()
    hosted = _Hosted(build, outbox)
    working = asyncio.create_task(hosted.work(), name="work")
    viewing = asyncio.create_task(hosted.tell_views(), name="views")
    obeying = asyncio.create_task(hosted.obey(orders, working), name="orders")
    await asyncio.wait([working])
    for task in (viewing, obeying):
        task.cancel()
    failure = None if working.cancelled() else working.exception()
    if isinstance(failure, BatchwrightError):
        outbox.put(Failed(str(failure), isinstance(failure, CallerError)))
        return 1
    if failure is not None:
        outbox.put(Failed(f"a fault of batchwright itself: {type(failure).__name__}: {failure}"))
        raise failure
    return 0


class _Hosted:
    def __init__(self, build: WorkerBuilder, outbox: _Outbox) -> None:
        self._build = build
        self._outbox = outbox
        self._worker: RunningWorker | None = None

    async def work(self) -> None:
        async with self._build(lambda text: self._outbox.put(Told(text))) as worker:
            self._worker = worker
            await worker.wait()

    async def obey(self, orders: asyncio.Queue[Order], working: asyncio.Task[None]) -> None:
        stops: set[asyncio.Task[None]] = set()
        while True:
            order = await orders.get()
            if self._worker is None:
                working.cancel()
            else:
                stops.add(asyncio.create_task(self._worker.stop(grace=order.grace), name="stop"))

    async def tell_views(self) -> None:
        clock = SystemClock()
        while True:
            view = self._worker.view() if self._worker is not None else None
            if view is not None:
                self._outbox.put(view)
            await clock.sleep(VIEW_EVERY_S)


class _Outbox:
    """To the parent, in a thread of its own: one that does not read must hold nobody up."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._messages: queue.Queue[ToParent | None] = queue.Queue(UNREAD_MAX)
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def put(self, message: ToParent | None) -> None:
        with suppress(queue.Full):
            self._messages.put_nowait(message)

    def close(self) -> None:
        """What was put is sent, unless nobody reads it."""
        self.put(None)
        self._thread.join(VIEW_EVERY_S)

    def _send(self) -> None:
        with suppress(OSError):  # the parent is gone
            while (message := self._messages.get()) is not None:
                self._connection.send(message)


def _read(connection: Connection, obey: Callable[[Order], Any]) -> None:
    with suppress(RuntimeError):  # the loop has ended meanwhile
        with suppress(EOFError, OSError):
            while True:
                obey(connection.recv())
        obey(Order(grace=True))


def _take_signals(end: Callable[[], None]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "win32":
        return
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
