"""The few things that are asked of a socket itself, whichever transport it belongs to."""

from __future__ import annotations

import asyncio
import select
import socket

KEEP_ALIVE_PROBE_S = 60
"""An answer may take ten minutes in which nothing is sent; routers forget a silent connection after four or five."""


def has_news(descriptor: int) -> bool:
    """Whether bytes or an end of the connection lie on it that nobody has read yet."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])


class News:
    """Which of a pool's sockets have bytes, or an end of the connection, that nobody has read yet.

    It is asked before every request, and a system call lets another thread go first: so one call asks for all of them,
    once in a turn of the loop. What comes later in that turn could as well come after the request.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._known = 0
        self._found: frozenset[int] = frozenset()
        self._fresh = False

    def add(self, descriptor: int) -> None:
        """A connection was made."""
        if self._epoll is None:
            return
        self._known += 1
        try:
            self._epoll.register(descriptor, select.EPOLLIN)
        except FileExistsError:  # the number of one that was closed and is not forgotten yet
            self._epoll.modify(descriptor, select.EPOLLIN)

    def forget(self) -> None:
        """One of them was closed; which one the system knows."""
        self._known -= 1

    def there(self, descriptor: int) -> bool:
        if self._epoll is None:
            return has_news(descriptor)
        if not self._fresh:
            self._found = frozenset(found for found, _ in self._epoll.poll(0, max(1, self._known)))
            self._fresh = True
            self._loop.call_soon(self._grow_old)
        return descriptor in self._found

    def close(self) -> None:
        if self._epoll is not None:
            self._epoll.close()

    def _grow_old(self) -> None:
        self._fresh = False


def probe_when_silent(peer: socket.socket) -> None:
    """Keeps a waiting connection known to what lies on the way, and notices a peer that is gone."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
        if hasattr(socket, option):
            peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), KEEP_ALIVE_PROBE_S)


class KeptSockets:
    """Which socket a kept-alive connection of libcurl has. libcurl names a connection by its addresses only."""

    def __init__(self) -> None:
        self._by_addresses: dict[tuple[object, ...], int] = {}
        self._by_descriptor: dict[int, tuple[object, ...]] = {}

    def keep(self, addresses: tuple[object, ...], descriptor: int) -> None:
        """An exchange has ended on it. A descriptor has one connection at a time, which bounds both tables."""
        if self._by_descriptor.get(descriptor) != addresses:
            self._by_addresses.pop(self._by_descriptor.get(descriptor, ()), None)
            self._by_descriptor[descriptor] = addresses
            self._by_addresses[addresses] = descriptor

    def is_stale(self, addresses: tuple[object, ...]) -> bool:
        """Whether a connection that has been used before has news while nothing was asked. False for a new one."""
        descriptor = self._by_addresses.get(addresses)
        if descriptor is None or not has_news(descriptor):
            return False
        del self._by_addresses[addresses]
        self._by_descriptor.pop(descriptor, None)
        return True
