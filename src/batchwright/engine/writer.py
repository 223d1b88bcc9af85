"""The one writer thread: a transaction is one hop there and back, whatever number of statements it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Writer(Protocol):
    async def do(self, work: Callable[[], T]) -> T:
        """Runs `work` after everything that was asked for earlier; its result or exception comes back."""


class ThreadWriter:
    """One thread for all writes of this process; created and closed by `assemble`."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-writer")

    async def do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        self._executor.shutdown(wait=True)
