"""Watching libcurl's sockets for it, in two ways that behave alike.

Where there is epoll, libcurl's sockets go into one of our own and the loop watches only that: 512 sockets that change
hands every 50 ms would otherwise be registered with the loop one by one. Elsewhere the loop watches each.
"""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Callable
from typing import Protocol

EVENTS_AT_ONCE = 1024


class SocketWatch(Protocol):
    def set(self, descriptor: int, *, read: bool, write: bool) -> None:
        """From now on; neither: no more."""

    def close(self) -> None: ...


def watch_sockets(
    loop: asyncio.AbstractEventLoop, act: Callable[[int, bool, bool], None], after: Callable[[], None]
) -> SocketWatch:
    """Calls `act(descriptor, readable, writable)` for each socket that is ready and `after()` behind a run of them."""
    if sys.platform == "linux":
        return EpollWatch(loop, act, after)
    return LoopWatch(loop, act, after)


if sys.platform == "linux":

    class EpollWatch:
        def __init__(
            self, loop: asyncio.AbstractEventLoop, act: Callable[[int, bool, bool], None], after: Callable[[], None]
        ) -> None:
            self._loop = loop
            self._act = act
            self._after = after
            self._epoll = select.epoll()
            self._known: set[int] = set()
            loop.add_reader(self._epoll.fileno(), self._on_ready)

        def set(self, descriptor: int, *, read: bool, write: bool) -> None:
            mask = (select.EPOLLIN if read else 0) | (select.EPOLLOUT if write else 0)
            if not mask:
                self._known.discard(descriptor)
                # libcurl may have closed it already, which took it out of the epoll too.
                try:
                    self._epoll.unregister(descriptor)
                except OSError:
                    return
            elif descriptor in self._known:
                self._epoll.modify(descriptor, mask)
            else:
                self._known.add(descriptor)
                self._epoll.register(descriptor, mask)

        def close(self) -> None:
            if not self._epoll.closed:
                self._loop.remove_reader(self._epoll.fileno())
                self._epoll.close()

        def _on_ready(self) -> None:
            for descriptor, mask in self._epoll.poll(0, EVENTS_AT_ONCE):
                trouble = mask & (select.EPOLLERR | select.EPOLLHUP)
                self._act(descriptor, bool(mask & select.EPOLLIN or trouble), bool(mask & select.EPOLLOUT))
            self._after()


class LoopWatch:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, act: Callable[[int, bool, bool], None], after: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._act = act
        self._after = after
        self._readers: set[int] = set()
        self._writers: set[int] = set()

    def set(self, descriptor: int, *, read: bool, write: bool) -> None:
        if read:
            self._readers.add(descriptor)
            self._loop.add_reader(descriptor, self._on_ready, descriptor, True)
        elif descriptor in self._readers:
            self._readers.discard(descriptor)
            self._loop.remove_reader(descriptor)
        if write:
            self._writers.add(descriptor)
            self._loop.add_writer(descriptor, self._on_ready, descriptor, False)
        elif descriptor in self._writers:
            self._writers.discard(descriptor)
            self._loop.remove_writer(descriptor)

    def close(self) -> None:
        for descriptor in self._readers | self._writers:
            self.set(descriptor, read=False, write=False)

    def _on_ready(self, descriptor: int, readable: bool) -> None:
        self._act(descriptor, readable, not readable)
        self._after()
