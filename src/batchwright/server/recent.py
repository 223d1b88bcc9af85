"""Answers that still stand: what was read since anybody last committed is not read again for the next who asks.

Between two commits the store answers every question as before. So an answer is kept beside the store's mark of that
moment, and all who ask the same meanwhile, at one moment too, share it. A change is seen by the very next question:
the mark is looked at each time, which costs a hundredth of reading anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from batchwright.ports.clock import Clock

KEPT_S = 1.0
"""Some of what is told is in no store: how fast rows go, whether a process lives."""
KEPT_MAX = 1_000
KEPT_BYTES = 16 * 1024 * 1024
"""Of all answers together."""

Question = tuple[str, ...]
"""Who asks and what: equal ones have equal answers."""


class _Kept(NamedTuple):
    began_s: float
    answer: asyncio.Task[bytes]


class Recent:
    """To be used on one loop."""

    def __init__(self, mark: Callable[[], int], clock: Clock) -> None:
        """`mark` is another number once anything was committed."""
        self._read_mark, self._clock = mark, clock
        self._mark: int | None = None
        self._kept: dict[Question, _Kept] = {}
        self._bytes = 0

    async def answer(self, question: Question, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """What `make` answers, or answered a moment ago. Raises what it raises, and keeps that from nobody else."""
        mark = self._read_mark()
        if mark != self._mark or len(self._kept) >= KEPT_MAX or self._bytes > KEPT_BYTES:
            self._mark, self._bytes = mark, 0
            self._kept.clear()
        now_s = self._clock.now_s()
        kept = self._kept.get(question)
        if kept is None or now_s - kept.began_s > KEPT_S or _failed(kept.answer):
            kept = _Kept(now_s, asyncio.create_task(self._measured(make), name="an answer for all who ask"))
            kept.answer.add_done_callback(_look_at)
            self._kept[question] = kept
        # Whoever goes away takes the answer from nobody who stays.
        return await asyncio.shield(kept.answer)

    async def _measured(self, make: Callable[[], Awaitable[bytes]]) -> bytes:
        answer = await make()
        self._bytes += len(answer)
        return answer


def _failed(answer: asyncio.Task[bytes]) -> bool:
    return answer.done() and (answer.cancelled() or answer.exception() is not None)


def _look_at(answer: asyncio.Task[bytes]) -> None:
    """Its error is told to those who wait, if anybody still does."""
    if not answer.cancelled():
        answer.exception()
