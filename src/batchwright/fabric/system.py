"""The process's own clock and chance: the only place that reads them."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from datetime import UTC, datetime


class SystemClock:
    """`ports.clock.Clock`: the monotonic clock that the loop's timers use, and the calendar."""

    def __init__(self) -> None:
        self.behind_ms = 0
        """Added to the calendar: how far a server's clock, which several machines go by, is ahead of this one's."""

    def now_s(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.behind_ms

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
