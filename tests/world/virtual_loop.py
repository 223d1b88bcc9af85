"""An asyncio loop whose time is a number: it jumps to the next timer at once, so that hours pass in seconds and two
runs from one seed are the same run. No sockets, no threads."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any


class WorldStuck(Exception):
    """Nothing is ready and no timer is set: somebody waits for what will never come."""


class _Selector(selectors.BaseSelector):
    def __init__(self) -> None:
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise WorldStuck
        self.now_s += max(0.0, timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        raise KeyError(fileobj)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-9
        self._over = False

    def time(self) -> float:
        return self._virtual.now_s

    def set_time(self, now_s: float) -> None:
        """Before anything runs."""
        self._virtual.now_s = now_s

    def stop_soon(self) -> None:
        """Ends `run_until_stopped` after the present turn, also when called from inside one."""
        self._over = True

    def run_until_stopped(self, turns_max: int) -> None:
        """Turns until `stop_soon`, at most so often."""
        asyncio.events._set_running_loop(self)
        try:
            for _ in range(turns_max):
                if self._over:
                    return
                self._run_once()  # type: ignore[attr-defined]
        finally:
            asyncio.events._set_running_loop(None)

    def bury(self) -> None:
        """Lets cancelled tasks end, and closes."""
        self._over = False
        with suppress(WorldStuck):
            self.run_until_stopped(20)
        self.close()


def run_virtually(work: Coroutine[Any, Any, None]) -> None:
    """To its end, on a loop whose time passes only while all wait."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.bury()
