"""Time, chance and ids come in through this door; a linter bans `time`, `random`, `uuid` and `sleep` elsewhere."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now_s(self) -> float:
        """Monotonic seconds, the running loop's own clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    async def sleep(self, seconds: float) -> None: ...


class Chance(Protocol):
    def random(self) -> float:
        """Uniform in [0, 1)."""

    def hex_id(self, digits: int) -> str:
        """Fresh random hex digits."""
