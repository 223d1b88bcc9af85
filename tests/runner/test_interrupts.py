from __future__ import annotations

import asyncio
import signal
import sys

import pytest

from batchwright.runner.interrupts import interrupts_of_process


def test_signals_are_counted_and_wake_who_waits() -> None:
    before = signal.getsignal(signal.SIGINT)

    async def scene() -> tuple[int, int]:
        with interrupts_of_process(asyncio.get_running_loop()) as interrupts:
            waiting = asyncio.create_task(interrupts.wait(0))
            await asyncio.sleep(0)
            signal.raise_signal(signal.SIGINT)
            await asyncio.wait_for(waiting, 5)
            first = interrupts.count
            signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(interrupts.wait(1), 5)
            return first, interrupts.count

    async def main() -> tuple[int, int]:
        return await scene()

    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(main()) == (1, 2)
    finally:
        loop.close()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
def test_a_terminal_that_is_closed_counts_once_and_not_under_nohup() -> None:
    async def scene() -> int:
        with interrupts_of_process(asyncio.get_running_loop()) as interrupts:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGHUP)
            return interrupts.count

    before = signal.getsignal(signal.SIGHUP)
    try:
        for handler, counted in ((signal.SIG_DFL, 1), (signal.SIG_IGN, 0)):
            signal.signal(signal.SIGHUP, handler)
            assert asyncio.run(scene()) == counted
            assert signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, before)


def test_before_anything_is_durable_an_interrupt_raises_at_once() -> None:
    async def scene() -> None:
        with interrupts_of_process(asyncio.get_running_loop()) as interrupts:
            with pytest.raises(KeyboardInterrupt), interrupts.at_once():
                signal.raise_signal(signal.SIGINT)
            assert interrupts.count == 1

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(scene())
    finally:
        loop.close()
