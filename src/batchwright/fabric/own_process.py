"""What a process of our own is tuned to before it sends rows: its loop, its collector, its heap. No host's process."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

GC_THRESHOLDS = (50_000, 20, 100)
"""A row leaves no cycles behind; at the defaults the collector looks through everything that was imported for nothing,
which takes 4% of a run's CPU."""


def fast_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the loop that rows are sent on; None: asyncio's own, where uvloop does not exist."""
    if sys.platform == "win32":
        return None
    import uvloop  # only who sends rows pays for it

    return uvloop.new_event_loop


THREADS = 2
"""Each that reads the store may keep a connection, a page cache and zstd contexts of its own."""


def own_loop(*, fast: bool = True, threads: int = THREADS) -> asyncio.Runner:
    """A loop of our own, with few threads beside it. `fast`: one that rows are sent on. To be used with `with`."""
    runner = asyncio.Runner(loop_factory=fast_loop_factory() if fast else None)
    runner.get_loop().set_default_executor(ThreadPoolExecutor(threads, thread_name_prefix="work"))
    return runner


def tune_own_process() -> None:
    """For a process of our own, never for a host's."""
    _keep_memory_flat()
    _collect_seldom()
    sys.setswitchinterval(SWITCH_S)


SWITCH_S = 0.0005
"""How long the loop keeps the interpreter from the thread that commits, where both want it. A commit gives it up a
dozen times; where rows come as fast as they can be sent it waited for Python's own 5 ms each time, took half as long
again, and what is reserved and held between two of them grew with it."""


def _collect_seldom() -> None:
    """Takes what is there now out of the cyclic collector's sight, and calls it seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LARGE_BYTES = 1024 * 1024
"""A block above it is given back to the system at once."""
KEPT_BYTES = 4 * LARGE_BYTES
"""What the heap keeps of what was freed at its end. With less, the blocks of each segment are fetched from the system
anew: 1.5 page faults a row, which take up to a tenth of its CPU on a virtual machine."""


def _keep_memory_flat() -> None:
    """Asks glibc to give large blocks back at once.

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
