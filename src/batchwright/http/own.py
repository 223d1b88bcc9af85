"""Our own HTTP/1.1 transport: implements `ports.http.HttpClient` without proxies (those are `curl`'s)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping

from batchwright.http.flight import OwnFlight
from batchwright.http.pool import Pool
from batchwright.http.request import Origin, check_method, read_url, request_head
from batchwright.http.sweep import Sweep, sweep_interval_s
from batchwright.http.trust import tls_context
from batchwright.ports.http import HttpEnd, Timeouts


class OwnTarget:
    """Implements `ports.http.HttpTarget`."""

    __slots__ = ("_find_pool", "_head")

    def __init__(self, find_pool: Callable[[], Pool], head: bytes) -> None:
        """`find_pool` is asked with each request: a pinned pool may be gone by the next."""
        self._find_pool = find_pool
        self._head = head + b"content-length: "

    def send(
        self,
        body: bytes,
        on_end: Callable[[HttpEnd], None],
        *,
        on_piece: Callable[[bytes], None] | None = None,
        on_head: Callable[[bytes], None] | None = None,
    ) -> OwnFlight:
        pool = self._find_pool()
        flight = OwnFlight(pool, self._head, body, on_end, on_piece, on_head)
        pool.send(flight)
        return flight


class OwnClient:
    """To be made and used inside one running loop."""

    def __init__(self, timeouts: Timeouts, environ: Mapping[str, str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeouts = timeouts
        self._environ = environ
        self._tls: ssl.SSLContext | None = None
        self._pools: dict[Origin, Pool] = {}
        self._sweep = Sweep(self._loop, sweep_interval_s(timeouts), self._visit)

    def target(self, method: str, url: str, headers: Mapping[str, str]) -> OwnTarget:
        """Raises ValueError for a URL or a header that cannot be sent, UsageError for unreadable trust settings."""
        address = read_url(url)
        pool = self._pool(address.origin)
        return OwnTarget(lambda: pool, request_head(check_method(method), address, headers))

    async def close(self) -> None:
        self._sweep.stop()
        for pool in self._pools.values():
            await pool.close()

    def _pool(self, origin: Origin) -> Pool:
        pool = self._pools.get(origin)
        if pool is None:
            tls = None
            if origin.scheme == "https":
                # Made when first needed, and shared: reading the system's certificates takes some 20 ms.
                tls = self._tls = self._tls or tls_context(self._environ)
            pool = Pool(origin, loop=self._loop, timeouts=self._timeouts, tls=tls, sweep=self._sweep)
            self._pools[origin] = pool
        return pool

    def _visit(self, now_s: float) -> bool:
        return any([pool.sweep(now_s) for pool in self._pools.values()])
