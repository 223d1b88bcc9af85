"""A clock for tests with a real loop: its seconds are the loop's, its epoch a date that stands still."""

from __future__ import annotations

import asyncio

FIXED_NOW_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""


class LoopClock:
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        return FIXED_NOW_MS

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
