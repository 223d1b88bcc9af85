"""How a command's work is run."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from batchwright.cli import running


@pytest.mark.filterwarnings("error")
def test_an_interrupt_before_the_loop_is_there_leaves_no_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_options: object) -> asyncio.Runner:
        raise KeyboardInterrupt

    async def work() -> None: ...

    begun = work()
    monkeypatch.setattr(asyncio, "Runner", interrupted)
    with pytest.raises(KeyboardInterrupt):
        running.run_to_end(begun)
    assert inspect.getcoroutinestate(begun) == inspect.CORO_CLOSED
