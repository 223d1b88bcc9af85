"""What waits in the midst of a call that knows no loop: each in a thread of its own, of which one runs at a time.

The loop's thread lets one go on and stands still until that waits or has ended: two lives of one seed are one life.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from world.processes import Crash, Process

T = TypeVar("T")


class Fiber(Generic[T]):
    def __init__(self, process: Process, work: Callable[[], T]) -> None:
        self.process = process
        self._work = work
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._wait_s: float | None = None
        self._result: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"fiber of {process.identity}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        self._wait_s = None
        self._back.release()

    def _go_on(self) -> float | None:
        """Until it waits: returns for how many seconds. None: it has ended."""
        self._turn.release()
        self._back.acquire()
        return self._wait_s

    def wait(self, seconds: float) -> None:
        """Called from within the work. Raises Crash where the process has died meanwhile."""
        self._wait_s = seconds
        self._back.release()
        self._turn.acquire()
        if self.process.dead:
            raise Crash

    async def result(self) -> T:
        """What the work returned; raises what it raised. Where this is cancelled the work goes on to its end at once,
        as a writer's thread does; that of a dead process ends where it stands."""
        try:
            seconds = self._go_on()
            while seconds is not None:
                await asyncio.sleep(seconds)
                seconds = self._go_on()
        except asyncio.CancelledError:
            while self._go_on() is not None:
                pass
            raise
        finally:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return cast(T, self._result)
