"""`server.recent`: one reading for all who ask between two commits, and never an answer from before the last."""

from __future__ import annotations

import asyncio

import pytest

from batchwright.server import recent
from batchwright.server.recent import Recent
from support.loop_clock import LoopClock
from world.virtual_loop import run_virtually

STATUS = ("local", "/status/batch_a", "")


class Source:
    """A store's mark, and a question that counts how often it is answered."""

    def __init__(self) -> None:
        self.mark = 1
        self.asked = 0
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def make(self) -> bytes:
        self.asked += 1
        number = self.asked
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return b"%d" % number

    def recent(self) -> Recent:
        return Recent(lambda: self.mark, LoopClock())


def test_between_two_commits_a_question_is_answered_once() -> None:
    async def work() -> None:
        source = Source()
        answers = source.recent()
        assert await answers.answer(STATUS, source.make) == b"1"
        assert await answers.answer(STATUS, source.make) == b"1"
        assert await answers.answer(("other", *STATUS[1:]), source.make) == b"2"
        source.mark += 1
        assert await answers.answer(STATUS, source.make) == b"3"
        await asyncio.sleep(recent.KEPT_S + 0.1)
        assert await answers.answer(STATUS, source.make) == b"4"

    run_virtually(work())


def test_those_who_ask_at_one_moment_share_an_answer_and_who_leaves_takes_it_from_nobody() -> None:
    async def work() -> None:
        source = Source()
        source.gate = asyncio.Event()
        answers = source.recent()
        asking = [asyncio.create_task(answers.answer(STATUS, source.make)) for _ in range(3)]
        await asyncio.sleep(0)
        asking[0].cancel()
        await asyncio.sleep(0)
        source.gate.set()
        assert await asyncio.gather(*asking[1:]) == [b"1", b"1"]
        assert source.asked == 1

    run_virtually(work())


def test_who_asks_after_a_commit_does_not_get_what_was_begun_before_it() -> None:
    async def work() -> None:
        source = Source()
        source.gate = asyncio.Event()
        answers = source.recent()
        early = asyncio.create_task(answers.answer(STATUS, source.make))
        await asyncio.sleep(0)
        source.mark += 1
        late = asyncio.create_task(answers.answer(STATUS, source.make))
        await asyncio.sleep(0)
        source.gate.set()
        assert list(await asyncio.gather(early, late)) == [b"1", b"2"]

    run_virtually(work())


def test_an_error_is_told_and_not_kept() -> None:
    async def work() -> None:
        source = Source()
        source.error = ValueError("no such batch")
        answers = source.recent()
        for _ in range(2):
            with pytest.raises(ValueError, match="no such batch"):
                await answers.answer(STATUS, source.make)
        source.error = None
        assert await answers.answer(STATUS, source.make) == b"3"

    run_virtually(work())


@pytest.mark.parametrize("bound", ["KEPT_MAX", "KEPT_BYTES"])
def test_what_is_kept_is_bounded(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, bound, 2)

    async def work() -> None:
        source = Source()
        answers = source.recent()
        for name in range(5):
            await answers.answer((str(name),), source.make)
        assert await answers.answer(("0",), source.make) == b"6"

    run_virtually(work())
