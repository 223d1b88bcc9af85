"""The process's own clock and chance: the only place that reads them."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import random
import secrets
import sys
import time
from datetime import UTC, datetime


class SystemClock:
    """`ports.clock.Clock`: the monotonic clock that the loop's timers use, and the calendar."""

    def now_s(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SystemChance:
    """`ports.clock.Chance`."""

    def __init__(self) -> None:
        self._random = random.Random()

    def random(self) -> float:
        return self._random.random()

    def hex_id(self, digits: int) -> str:
        return secrets.token_hex((digits + 1) // 2)[:digits]


def utc_day(moment_ms: int) -> str:
    """`YYYY-MM-DD` in UTC."""
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%d")


GC_THRESHOLDS = (50_000, 20, 100)
"""A row leaves no cycles behind; at the defaults the collector looks through everything that was imported for nothing,
which takes 4% of a run's CPU."""


def collect_seldom() -> None:
    """Takes what is there now out of the cyclic collector's sight, and calls it seldom; for a process of our own."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LARGE_BYTES = 1024 * 1024
"""A block above it is given back to the system at once."""
KEPT_BYTES = 4 * LARGE_BYTES
"""What the heap keeps of what was freed at its end. With less, the blocks of each segment are fetched from the system
anew: 1.5 page faults a row, which take up to a tenth of its CPU on a virtual machine."""


def keep_memory_flat() -> None:
    """Asks glibc to give large blocks back at once; for a process of our own, never for a host's.

    Segments and parts are blocks of some hundred KiB that come and go in several threads. Left to itself glibc raises
    its threshold for such blocks to what it saw last and keeps a heap a thread, and 200,000 rows then hold 95 MiB where
    80 do. Elsewhere (musl, macOS, Windows) nothing is done.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for option, value in ((M_ARENA_MAX, 1), (M_MMAP_THRESHOLD, LARGE_BYTES), (M_TRIM_THRESHOLD, KEPT_BYTES)):
        mallopt(option, value)
