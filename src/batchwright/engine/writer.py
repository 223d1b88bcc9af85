"""The store's threads: a transaction is one hop there and back, whatever number of statements it has.

One thread writes, and one reads what is short. Two that read at once are slower than one: the database lets go of the
interpreter at each statement and must have it back, and threads that wait for it cost several times what they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Writer(Protocol):
    async def do(self, work: Callable[[], T]) -> T:
        """Runs `work` after everything that was asked for earlier; its result or exception comes back."""


class Reader(Protocol):
    async def do(self, work: Callable[[], T]) -> T:
        """Runs `work`, which waits for nobody who writes, after other reads; its result or exception comes back."""


class StoreThread:
    """One thread for all writes of this process, or for all its short reads; created and closed by `assemble`."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        self._executor.shutdown(wait=True)
