"""Several real workers on one store and one vendor with a limit, on a loop whose time is a number.

async def scene(fleet): ...            # starts workers, waits (no time passes but in numbers), looks
run_fleet(scene, store, vendor)
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar, cast

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.failures import FailureKind
from batchwright.core.rate import Limits
from batchwright.core.worker_id import WorkerId
from batchwright.engine.worker import Worker, WorkerParts
from batchwright.engine.worker_settings import MIB, LaneLimits, WorkerSettings
from batchwright.ports.store import Store
from batchwright.ports.vendor import Answer
from world.virtual_loop import run_virtually

T = TypeVar("T")
EPOCH_MS = 1_767_225_600_000
ANSWER = b'{"choices":[{"message":{"content":"fine"},"finish_reason":"stop"}]}'


class Clock:
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.now_s() * 1000)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class MinuteVendor:
    """Lets so many requests through in any minute, wherever it begins; the others get a 429 that names no wait. With
    `states` it has a bucket instead that refills steadily, and its headers say how large that is and what is left."""

    per_minute: int
    latency_s: float = 0.2
    states: bool = False
    max_in_flight: int = 0
    """As a local server's slots; 0: no bound of its own."""
    sent: list[tuple[float, str, bool]] = field(default_factory=list)
    """(second, worker, whether it was let through), of every request."""
    on_body: Callable[[str, bytes], None] = lambda worker, body: None
    """Is told of each request before it is answered: who sent it, and what."""
    by_name: Counter[str] = field(default_factory=Counter)
    """Requests by the name that the batch gave the vendor."""
    _minute: deque[float] = field(default_factory=deque)
    _left: float = math.inf
    _left_s: float = 0.0

    def ask(self, worker: str) -> Answer:
        now_s = asyncio.get_running_loop().time()
        limits = None
        if self.states:
            self._left = min(float(self.per_minute), self._left + (now_s - self._left_s) * self.per_minute / 60.0)
            self._left_s = now_s
            through = self._left >= 1.0
            self._left -= through
            reset_s = (self.per_minute - self._left) * 60.0 / self.per_minute
            limits = Limits(
                requests_per_minute=self.per_minute, remaining_requests=int(self._left), reset_requests_s=reset_s
            )
        else:
            while self._minute and self._minute[0] <= now_s - 60.0:
                self._minute.popleft()
            through = len(self._minute) < self.per_minute
            if through:
                self._minute.append(now_s)
        self.sent.append((now_s, worker, through))
        if not through:
            return Answer(kind=FailureKind.RATE_LIMITED, http_status=429, message="too many requests", limits=limits)
        return Answer(kind=None, http_status=200, body=ANSWER, prompt_tokens=1, completion_tokens=1, limits=limits)

    def within(self, from_s: float, until_s: float, worker: str = "") -> int:
        """Requests let through meanwhile, of all workers or of one."""
        return sum(through and from_s <= at_s < until_s and worker in ("", name) for at_s, name, through in self.sent)

    def refused_share(self, from_s: float = 0.0) -> float:
        asked = [through for at_s, _, through in self.sent if at_s >= from_s]
        return asked.count(False) / len(asked)


OpenGroup = Callable[[Destination], Any]


class _Call:
    def __init__(self, handle: asyncio.TimerHandle) -> None:
        self._handle = handle

    def abort(self) -> None:
        self._handle.cancel()


class _Desk:
    """The vendor as one worker reaches it: implements `ports.vendor.Vendors`."""

    def __init__(self, vendor: MinuteVendor, name: str, open_group: OpenGroup) -> None:
        self._vendor, self._name, self._open_group = vendor, name, open_group
        self.groups: list[Any] = []
        self.dead = False

    def keeps_prefixes(self, destination: Destination) -> bool:
        return False

    def lacks(self, destination: Destination) -> str:
        return ""

    async def open(self, destination: Destination, *, timeout_s: float = 0.0) -> Any:
        if destination.protocol is VendorProtocol.BATCH:
            self.groups.append(self._open_group(destination))
            return self.groups[-1]
        return _Line(self, destination.vendor, self._vendor.max_in_flight)

    def send(self, name: str, body: bytes, on_end: Callable[[Answer], None]) -> _Call:
        assert not self.dead, "a dead process sends nothing"
        self._vendor.by_name[name] += 1
        self._vendor.on_body(self._name, body)
        answer = self._vendor.ask(self._name)
        return _Call(asyncio.get_running_loop().call_later(self._vendor.latency_s, on_end, answer))

    async def close(self) -> None:
        for group in self.groups:
            await group.close()


@dataclass
class _Line:
    """Under one of its names: implements `ports.vendor.Vendor`."""

    desk: _Desk
    name: str
    max_in_flight: int = 0
    waiting: str = ""

    def send(self, endpoint: str, body: bytes, on_end: Callable[[Answer], None]) -> _Call:
        return self.desk.send(self.name, body, on_end)


class _Writer:
    """Writes in the loop's own thread; from `held` on it waits, as before a server that does not answer."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._lock = asyncio.Lock()

    async def do(self, work: Callable[[], T]) -> T:
        async with self._lock:
            await asyncio.sleep(0.002)
            await self.goes_on.wait()
            return work()


@dataclass
class Seat:
    worker: Worker
    writer: _Writer
    desk: _Desk
    task: asyncio.Task[None]

    def kill(self) -> None:
        """Its process is gone: nothing of it runs any more, and nobody is told."""
        self.desk.dead = True
        self.writer.goes_on.clear()
        self.task.cancel()


class Fleet:
    def __init__(self, store: Store, vendor: MinuteVendor) -> None:
        self.store, self.vendor = store, vendor
        self.seats: dict[str, Seat] = {}
        self.reports: list[str] = []
        self.batch_api: Callable[[Destination, _Writer], Any] | None = None
        """Opens batch APIs, for those who have any."""
        self.end_s = 0.0
        """Until when it was left to work."""

    def start(
        self,
        name: str,
        *,
        rpm: float = 0.0,
        concurrency: int = 0,
        checkpoint_s: float = 0.5,
        input_bytes_max: int = 64 * MIB,
        only_batch: str = "",
        host: str = "",
        incarnation: str = "1",
        beats_apart: bool = False,
        standing_by: bool = False,
    ) -> Seat:
        """Each in a place of its own, so that nobody's lock tells of its death. One that has the name of another, in
        another incarnation, is `name/incarnation` at the vendor and in `seats`."""
        known = name if incarnation == "1" else f"{name}/{incarnation}"
        writer = _Writer()
        desk = _Desk(self.vendor, known, lambda place: cast(Any, self.batch_api)(place, writer))
        worker = Worker(
            WorkerParts(
                store=self.store,
                writer=writer,
                beats=_Writer() if beats_apart else writer,
                vendors=cast(Any, desk),
                find_price=lambda destination, model: None,
                clock=Clock(),
                chance=cast(Any, Random(len(self.seats))),
                day_of=lambda ms: "2026-01-01",
                report=self.reports.append,
            ),
            identity=WorkerId(name, incarnation),
            settings=WorkerSettings(
                checkpoint_s=checkpoint_s,
                input_bytes_max=input_bytes_max,
                idle_poll_s=1.0,
                wake_poll_s=0.5,
                vendor_limits={"openai": LaneLimits(concurrency=concurrency, rpm=rpm)},
            ),
            only_batch=only_batch,
            standing_by=standing_by,
            host=host or name,
            pid=len(self.seats),
        )
        task = asyncio.create_task(worker.run(), name=known)
        self.seats[known] = Seat(worker, writer, desk, task)
        return self.seats[known]

    async def stop(self) -> None:
        self.end_s = asyncio.get_running_loop().time()
        for seat in self.seats.values():
            if not seat.task.done() and not seat.desk.dead:
                seat.worker.stop(grace=False)
                await asyncio.wait([seat.task])
        for seat in self.seats.values():
            await seat.desk.close()
            if not seat.desk.dead and (error := seat.task.exception()) is not None:
                raise error

    def shares_ppm(self) -> int:
        """The sum of what is in use now."""
        now_s = asyncio.get_running_loop().time()
        return sum(
            desk.lane.share_ppm
            for seat in self.seats.values()
            if not seat.desk.dead and not seat.task.done()
            for desk in seat.worker.floor.desks.values()
            if desk.lane.has_share(now_s)
        )


def run_fleet(scene: Callable[[Fleet], Awaitable[None]], store: Store, vendor: MinuteVendor) -> Fleet:
    fleet = Fleet(store, vendor)

    async def whole() -> None:
        try:
            await scene(fleet)
            await fleet.stop()
        finally:
            tasks = [seat.task for seat in fleet.seats.values()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    run_virtually(whole())
    return fleet


async def until(condition: Callable[[], bool], *, at_most_s: float, step_s: float = 0.05) -> float:
    """Until that is so; returns the second. Raises TimeoutError."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + at_most_s
    while not condition():
        if loop.time() > end_s:
            raise TimeoutError(f"it did not come true within {at_most_s} s")
        await asyncio.sleep(step_s)
    return loop.time()
