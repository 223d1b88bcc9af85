"""The runner's seams for tests: workers that answer rows by a script, locks, a clock, chance, a display that keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from batchwright.core import row_map
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import InputRow, Record
from batchwright.ports.observer import WorkerView
from batchwright.runner.request import Pace
from batchwright.runner.seams import HeldElsewhere, Snapshot
from support.memory_batches import MemoryBatch, MemoryBatches

Answer = Callable[[int, InputRow], Record]


def echo(row: int, input_row: InputRow) -> Record:
    """A success whose answer names the row."""
    body = b'{"choices":[{"message":{"content":"echo %d"},"finish_reason":"stop"}],"model":"m"}' % row
    return Record(row=row, byte=row_map.PLAIN_SUCCESS, attempts=1, used=1, http_status=200, body=body, vendor="acme")


def flagged(row: int, flag: Flag) -> Record:
    return Record(row=row, byte=row_map.FLAG_BYTES[flag], attempts=1, used=1, http_status=200, vendor="acme")


def refused(row: int, kind: FailureKind = FailureKind.INVALID_REQUEST, code: str = "bad") -> Record:
    byte = row_map.KIND_BYTES[kind]
    return Record(row=row, byte=byte, attempts=1, used=1, http_status=400, code=code, message=f"said no to row {row}")


class ScriptedWorkers:
    """Answers the open rows of a batch one by one, in order, each when `gate` lets it."""

    def __init__(self, batches: MemoryBatches, answer: Answer = echo) -> None:
        self._batches, self._answer = batches, answer
        self.asked: list[int] = []
        """Every row that was sent, in order."""
        self.paces: list[Pace] = []
        self.before: Callable[[MemoryBatch, int], None] = lambda batch, row: None
        """Called before each row is sent: a test's place to pause, interrupt or fail."""
        self.hold_at = -1
        """Sends nothing from this row on, until it is told to stop."""
        self.slow_stop = False
        """`stop(grace=True)` does not come to its end."""
        self.stops: list[bool] = []
        self.start_failure: Exception | None = None

    async def start(self, batch_id: str, pace: Pace) -> ScriptedWorker:
        if self.start_failure is not None:
            raise self.start_failure
        self.paces.append(pace)
        return ScriptedWorker(self, self._batches.batches[batch_id])

    def answer(self, batch: MemoryBatch, row: int) -> None:
        self.before(batch, row)
        if batch.pauses or batch.closing is not None:
            return
        self.asked.append(row)
        batch.end(row, self._answer(row, batch.rows[row]))


class ScriptedWorker:
    def __init__(self, workers: ScriptedWorkers, batch: MemoryBatch) -> None:
        self._workers, self._batch = workers, batch
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        batch.live = True

    async def wait(self) -> None:
        try:
            while not self._stopping.is_set() and not self._batch.pauses and (rows := self._batch.open_rows()):
                self._workers.answer(self._batch, rows[0])
                await asyncio.sleep(0)
                if self._workers.hold_at in self._batch.open_rows()[:1]:
                    await self._stopping.wait()
            if self._stopping.is_set() and self._workers.slow_stop:
                await self._ended.wait()
        finally:
            self._batch.live = False
            self._ended.set()

    async def stop(self, *, grace: bool) -> None:
        self._workers.stops.append(grace)
        self._stopping.set()
        if not grace:
            self._ended.set()
        await self._ended.wait()

    def view(self) -> WorkerView:
        return WorkerView(in_flight=1, answered=len(self._workers.asked), retries_waiting=0, lanes=(), note="")


class OneLock:
    def __init__(self, locks: MemoryLocks, name: str) -> None:
        self._locks, self._name = locks, name

    def release(self) -> None:
        self._locks.held.discard(self._name)


class MemoryLocks:
    """Locks of this process, and those that `elsewhere` says another one has."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.elsewhere: set[str] = set()

    def take(self, name: str) -> OneLock | HeldElsewhere:
        if name in self.held or name in self.elsewhere:
            return HeldElsewhere("process 4711")
        self.held.add(name)
        return OneLock(self, name)


class SteppedClock:
    """A second passes with every look."""

    def __init__(self) -> None:
        self._now_s = 1_000.0

    def now_s(self) -> float:
        self._now_s += 1.0
        return self._now_s

    def now_ms(self) -> int:
        return int(self._now_s * 1000)

    async def sleep(self, seconds: float) -> None:
        self._now_s += seconds


class CountedChance:
    def __init__(self) -> None:
        self._given = 0

    def random(self) -> float:
        return 0.5

    def hex_id(self, digits: int) -> str:
        self._given += 1
        return f"{self._given:0{digits}x}"


class KeptDisplay:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.snapshots: list[Snapshot] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def reading(self, rows: int) -> None:
        pass

    def show(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def writing(self, done: int, total: int) -> None:
        pass

    def close(self) -> None:
        pass


class HandInterrupts:
    """A test presses Ctrl-C by `press`."""

    def __init__(self) -> None:
        self.count = 0
        self._pressed = asyncio.Event()

    def press(self) -> None:
        self.count += 1
        self._pressed.set()

    async def wait(self, seen: int) -> None:
        while self.count <= seen:
            self._pressed.clear()
            await self._pressed.wait()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        yield
