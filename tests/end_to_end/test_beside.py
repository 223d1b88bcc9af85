"""What runs on beside a command that stays begins again after a fault that nobody expected, and says so."""

from __future__ import annotations

import asyncio

import pytest

from batchwright.assemble.beside import AGAIN_AFTER_S, beside
from batchwright.core.errors import StoreError


class Clock:
    """Nobody waits."""

    slept: list[float]

    def __init__(self) -> None:
        self.slept = []

    def now_s(self) -> float:
        return 0.0

    def now_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (KeyError("a row's own words"), "KeyError at "),
        (ExceptionGroup("several", [KeyError("a row's own words")]), "KeyError"),
        (StoreError("The disk is odd."), "The disk is odd."),
    ],
)
def test_it_begins_again_and_tells_no_rows_words(fault: Exception, said: str) -> None:
    lines: list[str] = []
    clock = Clock()
    begun = 0

    async def main() -> None:
        second = asyncio.Event()

        async def work() -> None:
            nonlocal begun
            begun += 1
            if begun == 1:
                raise fault
            second.set()
            await asyncio.Event().wait()

        async with asyncio.timeout(60), beside("sweeper", work, clock=clock, say=lines.append):
            await second.wait()

    asyncio.run(main())
    (line,) = lines
    assert line.startswith("A fault of batchwright itself ended the sweeper: ")
    assert said in line
    assert "own words" not in line
    assert clock.slept == [AGAIN_AFTER_S]
