"""From an origin to a connected socket: one look-up for all, IPv6 and IPv4 raced (RFC 8305).

The loops' own `create_connection` is not used for it: uvloop's knows no race, and neither keeps a look-up, so that
500 connections would ask the resolver 500 times.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

from batchwright.http.request import Origin

STAGGER_S = 0.25
"""Head start of one address before the next is tried beside it, as RFC 8305 recommends."""
LOOKUP_KEPT_S = 30.0
"""How long a look-up serves further connections. A vendor that moves is followed by then, or at the first failure."""

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


class Dialer:
    """Connects to one origin, as often as asked and as many at once: at `addresses`, or where a look-up leads."""

    def __init__(self, origin: Origin, loop: asyncio.AbstractEventLoop, addresses: Sequence[str] = ()) -> None:
        self._origin = origin
        self._pinned = addresses
        self._loop = loop
        self._addresses: list[AddressInfo] = []
        self._kept_until_s = 0.0
        self._lookup: asyncio.Task[list[AddressInfo]] | None = None

    async def connect(self) -> socket.socket:
        """A connected, non-blocking socket. Raises OSError, of the first address if all failed."""
        addresses = await self._resolve()
        try:
            if len(addresses) == 1:
                return await _connect(self._loop, addresses[0])
            return await _race(self._loop, addresses)
        except OSError:
            self._kept_until_s = 0.0
            raise

    def close(self) -> None:
        if self._lookup is not None:
            self._lookup.cancel()

    async def _resolve(self) -> list[AddressInfo]:
        if self._addresses and self._loop.time() < self._kept_until_s:
            return self._addresses
        if self._lookup is None:
            self._lookup = self._loop.create_task(self._look_up(), name=f"look up {self._origin.host}")
        # Shielded: the look-up is everybody's, so one connection that gives up must not end it for the others.
        return await asyncio.shield(self._lookup)

    async def _look_up(self) -> list[AddressInfo]:
        host, port = self._origin.host, self._origin.port
        try:
            try:
                found = [info for name in self._pinned or (host,) for info in _numeric(name, port)]
            except socket.gaierror:
                if self._pinned:
                    raise
                found = list(await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            self._addresses = _interleave(found)
            self._kept_until_s = self._loop.time() + LOOKUP_KEPT_S
            return self._addresses
        finally:
            self._lookup = None


def _numeric(name: str, port: int) -> list[AddressInfo]:
    """Asks no resolver. Raises gaierror for what is no address."""
    return list(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))


def _interleave(found: Sequence[AddressInfo]) -> list[AddressInfo]:
    """The resolver's order, but families by turns, the one it prefers first."""
    first = [info for info in found if info[0] == found[0][0]]
    others = [info for info in found if info[0] != found[0][0]]
    return [info for info in chain.from_iterable(zip_longest(first, others)) if info is not None]


async def _connect(loop: asyncio.AbstractEventLoop, info: AddressInfo) -> socket.socket:
    family, kind, protocol, _, address = info
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        await loop.sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


async def _race(loop: asyncio.AbstractEventLoop, addresses: Sequence[AddressInfo]) -> socket.socket:
    """Tries them in order, the next whenever one fails or `STAGGER_S` passes; the first that connects wins."""
    left = list(addresses)
    running: set[asyncio.Task[socket.socket]] = set()
    errors: list[OSError] = []
    try:
        while True:
            if left:
                info = left.pop(0)
                running.add(loop.create_task(_connect(loop, info), name=f"connect {info[4][0]}"))
            elif not running:
                raise errors[0]
            done, _ = await asyncio.wait(
                running, timeout=STAGGER_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                error = task.exception()
                if error is None:
                    running.discard(task)
                    return task.result()
                running.discard(task)
                if not isinstance(error, OSError):
                    raise error
                errors.append(error)
    finally:
        for loser in running:
            loser.cancel()
            loser.add_done_callback(_close_loser)


def _close_loser(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()
