"""Ctrl-C and SIGTERM as a count: the first asks for an orderly end, the second for an end now. So does a terminal that
is closed (SIGHUP), once.

`signal.signal` and not the loop's own handlers: the count then rises also while the loop is busy reading the input.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """A person interrupted while rows were read or written; what was half done is undone."""


class CountedInterrupts:
    """Implements `seams.Interrupts`. `raise_count` may be called from a signal handler or any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self.raises = False
        """Whether a signal is to raise KeyboardInterrupt."""

    @property
    def count(self) -> int:
        return self._count

    def raise_count(self) -> None:
        self._count += 1
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    async def wait(self, seen: int) -> None:
        while self._count <= seen:
            future = self._loop.create_future()
            self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        self.raises = True
        try:
            yield
        finally:
            self.raises = False

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


@contextmanager
def interrupts_of_process(loop: asyncio.AbstractEventLoop) -> Iterator[CountedInterrupts]:
    """Takes over SIGINT, SIGTERM and SIGHUP while it is open; the third SIGINT does what it did before. What
    `nohup` has made deaf to SIGHUP stays so.

    Outside the main thread (the library in a notebook's thread) signals stay whose they are and the count stays 0.
    """
    interrupts = CountedInterrupts(loop)
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if sys.platform != "win32" and (was := signal.getsignal(signal.SIGHUP)) is not signal.SIG_IGN:
        before[signal.SIGHUP] = was

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if sys.platform != "win32" and number == signal.SIGHUP and interrupts.count:
            return  # the shell and the kernel both say that a terminal is closed
        interrupts.raise_count()
        if interrupts.count >= 2:
            signal.signal(number, before[signal.Signals(number)])
        if interrupts.raises:
            raise KeyboardInterrupt

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
