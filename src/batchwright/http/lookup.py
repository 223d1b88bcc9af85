"""Look-ups of hosts that strangers name, in threads of their own.

The loop's own `getaddrinfo` shares its threads with all that reads the store: a few names whose servers never answer
would hold everything up.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

THREADS = 16
"""As many as deliveries under way: a name whose server never answers takes one until the resolver gives up."""


class Lookups:
    """`ports.http.Lookup` by this machine's resolver."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="webhook-lookup")

    async def __call__(self, host: str, port: int) -> list[str]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))
