"""The few things that are asked of a socket itself, whichever transport it belongs to."""

from __future__ import annotations

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
