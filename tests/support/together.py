"""Work of several tests of one file, begun together: what each mostly does is wait (for its own processes)."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Together:
    def __init__(self, at_once: int = 0) -> None:
        self._pool = ThreadPoolExecutor(at_once or (os.cpu_count() or 1) + 1, thread_name_prefix="together")
        self._begun: dict[str, Future[Any]] = {}

    def begin(self, name: str, work: Callable[[], Any]) -> None:
        self._begun[name] = self._pool.submit(work)

    def result(self, name: str) -> Any:
        """What the work returned; raises what it raised."""
        return self._begun[name].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
