"""Our own transport to addresses that were chosen beforehand: implements `ports.http.PinnedClient`.

A pool lasts as long as a connection of it does: strangers name the places, and they name many.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from functools import partial

from batchwright.http.own import OwnTarget
from batchwright.http.pool import Pool
from batchwright.http.request import Origin, check_method, read_url, request_head
from batchwright.http.sweep import Sweep, sweep_interval_s
from batchwright.http.trust import tls_context
from batchwright.ports.http import Timeouts

MAX_TAKEN_BYTES = 256 * 1024
"""Of an answer: its status is what matters, and a stranger wrote it."""

Place = tuple[Origin, tuple[str, ...]]


class OwnPinnedClient:
    """To be made and used inside one running loop."""

    def __init__(self, timeouts: Timeouts, environ: Mapping[str, str]) -> None:
        """`environ`: which certificates are trusted."""
        self._loop = asyncio.get_running_loop()
        self._timeouts = timeouts
        self._environ = environ
        self._tls: ssl.SSLContext | None = None
        self._pools: dict[Place, Pool] = {}
        self._sweep = Sweep(self._loop, sweep_interval_s(timeouts), self._visit)

    def target(self, method: str, url: str, headers: Mapping[str, str], *, addresses: Sequence[str]) -> OwnTarget:
        if not addresses:
            raise ValueError("no address to connect to was given")
        address = read_url(url)
        head = request_head(check_method(method), address, headers)
        return OwnTarget(partial(self._pool, (address.origin, tuple(addresses))), head)

    async def close(self) -> None:
        self._sweep.stop()
        for pool in self._pools.values():
            await pool.close()

    def _pool(self, place: Place) -> Pool:
        pool = self._pools.get(place)
        if pool is None:
            origin, addresses = place
            tls = None
            if origin.scheme == "https":
                tls = self._tls = self._tls or tls_context(self._environ)
            pool = Pool(
                origin,
                loop=self._loop,
                timeouts=self._timeouts,
                tls=tls,
                sweep=self._sweep,
                addresses=addresses,
                max_answer_bytes=MAX_TAKEN_BYTES,
            )
            self._pools[place] = pool
        return pool

    def _visit(self, now_s: float) -> bool:
        self._pools = {place: pool for place, pool in self._pools.items() if pool.sweep(now_s)}
        return bool(self._pools)
