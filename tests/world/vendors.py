"""Simulated vendors: what they do with a row is drawn from the world's chance, and the auditor's ledger hears of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from batchwright.core.batch_spec import Destination
from batchwright.core.errors import VendorUnavailable
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.pricing import Price
from batchwright.ports.vendor import Answer, CallListener, RelayedCall
from world.coverage import Fault
from world.mirrors import Send

if TYPE_CHECKING:
    from world.processes import Process
    from world.world import World

INPUT_PICOUSD = 1_000
OUTPUT_PICOUSD = 5_000
"""A token, for the models that have a price."""
OUTPUT_TOKENS = 40
PRICED, STATED, UNPRICED, FREE = "priced", "stated", "unpriced", "free"
"""Models: priced by our table; the vendor says what it costs; no price is known; nothing is charged."""

KIND_FAULTS: dict[Fault, FailureKind] = {
    Fault.RATE_LIMITED: FailureKind.RATE_LIMITED,
    Fault.RATE_LIMITED_WAIT: FailureKind.RATE_LIMITED,
    Fault.OVERLOADED: FailureKind.OVERLOADED,
    Fault.TIMEOUT_PAID: FailureKind.TIMEOUT,
    Fault.TIMEOUT_UNPAID: FailureKind.TIMEOUT,
    Fault.DROPPED_PAID: FailureKind.NETWORK,
    Fault.DROPPED_UNPAID: FailureKind.NETWORK,
    Fault.UNREACHABLE: FailureKind.UNREACHABLE,
    Fault.ANSWER_TOO_LARGE: FailureKind.ANSWER_TOO_LARGE,
    Fault.BAD_RESPONSE: FailureKind.BAD_RESPONSE,
    Fault.QUOTA_EXHAUSTED: FailureKind.QUOTA_EXHAUSTED,
    Fault.AUTH: FailureKind.AUTH,
    Fault.INVALID_REQUEST: FailureKind.INVALID_REQUEST,
    Fault.MODEL_NOT_FOUND: FailureKind.MODEL_NOT_FOUND,
    Fault.CONTEXT_TOO_LONG: FailureKind.CONTEXT_TOO_LONG,
    Fault.TOO_LARGE: FailureKind.TOO_LARGE,
    Fault.CONTENT_FILTERED: FailureKind.CONTENT_FILTERED,
    Fault.INTERNAL: FailureKind.INTERNAL,
}
FLAG_FAULTS: dict[Fault, Flag] = {
    Fault.TRUNCATED: Flag.TRUNCATED,
    Fault.REFUSED: Flag.REFUSED,
    Fault.FILTERED: Flag.FILTERED,
    Fault.EMPTY: Flag.EMPTY,
}
PAID_UNREAD = frozenset({Fault.TIMEOUT_PAID, Fault.DROPPED_PAID})
LASTING = frozenset({Fault.QUOTA_EXHAUSTED, Fault.AUTH})
"""Come as periods only: until somebody tops the account up, or mends the key."""


def find_price(destination: Destination, model: str) -> Price | None:
    if model == UNPRICED:
        return None
    rates = (0, 0) if model == FREE else (INPUT_PICOUSD * 1_000_000, OUTPUT_PICOUSD * 1_000_000)
    return Price(
        price_id=f"{destination.vendor}/{model}",
        input_rate=rates[0],
        output_rate=rates[1],
        cached_rate=rates[0],
        zero_rated=model == FREE,
    )


@dataclass(frozen=True)
class Period:
    start_s: float
    end_s: float
    fault: Fault


@dataclass
class House:
    """One vendor, whoever asks it."""

    name: str
    rates: dict[Fault, float] = field(default_factory=dict)
    """Chance of each fault for one attempt; the rest is answered."""
    periods: list[Period] = field(default_factory=list)
    latency_s: tuple[float, float] = (0.1, 2.0)


class HouseVendor:
    """Implements `ports.vendor.Vendor` for one process."""

    def __init__(self, world: World, process: Process, house: House) -> None:
        self._world = world
        self._process = process
        self._house = house
        self.max_in_flight = 0
        self.waiting = ""

    def send(self, endpoint: str, body: bytes, on_end: Callable[[Answer], None]) -> Call:
        call = Call(self._world, self._process)
        if self._process.dead:
            return call  # a callback that ran between the crash and the end of its loop: nothing left the machine
        request = json.loads(body)
        send = self._world.auditor.sent(self._process.worker, request, self._house.name)
        fault, latency_s = self._fate(request)
        answer = self._answer(request, send, fault)
        self._world.loop.call_later(latency_s, call.arrive, send, (answer, on_end))
        if request.get("poison") and self._world.troubled:
            self._world.coverage.hit(Fault.POISON)
            self._world.loop.call_later(min(0.05, latency_s / 2), self._process.kill)
        return call

    def relay(self, endpoint: str, body: bytes, listener: CallListener, *, stream: bool) -> RelayedCall:
        raise AssertionError("nobody makes a single call in this world")

    async def close(self) -> None:
        return None

    def _fate(self, request: dict[str, object]) -> tuple[Fault | None, float]:
        world, house = self._world, self._house
        chance = world.chance
        low, high = house.latency_s
        latency_s = low + (high - low) * chance.random() ** 2
        now_s = world.loop.time()
        for period in house.periods:
            if period.start_s <= now_s < period.end_s:
                world.coverage.hit(Fault.OUTAGE)
                return period.fault, min(latency_s, 0.5)
        if request.get("wrong"):
            world.coverage.hit(Fault.SAME_FAILURE)
            return Fault.INVALID_REQUEST, latency_s
        if world.troubled or world.always_faulty:
            drawn = chance.random()
            for fault, rate in house.rates.items():
                drawn -= rate
                if drawn < 0:
                    return fault, latency_s
        return None, latency_s

    def _answer(self, request: dict[str, object], send: Send, fault: Fault | None) -> Answer:
        """Decides what is billed and what is said; both go into the ledger."""
        chance = self._world.chance
        model = str(request["model"])
        kind = KIND_FAULTS.get(fault) if fault is not None else None
        if fault is not None:
            self._world.coverage.hit(fault)
        answer = Answer(
            kind=kind,
            flag=FLAG_FAULTS.get(fault, Flag.PLAIN) if fault is not None else Flag.PLAIN,
            http_status=200 if kind is None else 500,
            request_id=send.name,
            code="" if kind is None else ("wrong" if request.get("wrong") else kind.value),
            message="" if kind is None else "as simulated",
        )
        if fault is Fault.RATE_LIMITED_WAIT:
            answer.wait_s = 0.5 + 5 * chance.random()
        if kind is None or fault is Fault.BAD_RESPONSE:
            answer.body = json.dumps({"to": [send.batch_id, send.index], "send": send.name}).encode()
            self._bill(answer, send, model, chance)
        elif fault in PAID_UNREAD:
            send.paid = True
            if model != FREE:
                send.billed_picousd = INPUT_PICOUSD + int(OUTPUT_TOKENS * chance.random()) * OUTPUT_PICOUSD
        elif fault is Fault.ANSWER_TOO_LARGE and model != FREE:
            send.no_usage = 1
        send.kind = "" if kind is None else kind.value
        send.flag = answer.flag.value
        send.body = answer.body
        self._world.auditor.billed(send)
        return answer

    def _bill(self, answer: Answer, send: Send, model: str, chance: Random) -> None:
        send.paid = True
        if answer.kind is None and model != FREE and chance.random() < self._world.no_usage_share:
            self._world.coverage.hit(Fault.NO_USAGE)
            send.no_usage = 1
            return
        prompt, completion = 1 + int(9 * chance.random()), int(OUTPUT_TOKENS * chance.random())
        answer.prompt_tokens, answer.completion_tokens = prompt, completion
        if model == UNPRICED:
            self._world.coverage.hit(Fault.UNPRICED)
            send.unpriced = 1
        elif model != FREE:
            send.cost_picousd = prompt * INPUT_PICOUSD + completion * OUTPUT_PICOUSD
            if model == STATED:
                send.cost_picousd -= completion % 7
                answer.cost_picousd = send.cost_picousd
            send.billed_picousd = send.cost_picousd


class Call:
    """An attempt under way. An abort closes our end; the vendor goes on and bills all the same."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._aborted = False

    def abort(self) -> None:
        self._aborted = True

    def arrive(self, send: Send, what: tuple[Answer, Callable[[Answer], None]]) -> None:
        if self._process.dead:
            self._world.coverage.hit(Fault.LATE_ANSWER)
            return
        if self._aborted:
            return
        send.delivered = True
        answer, on_end = what
        on_end(answer)


class HouseVendors:
    """Implements `ports.vendor.Vendors` for one process."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def keeps_prefixes(self, destination: Destination) -> bool:
        return False

    def lacks(self, destination: Destination) -> str:
        if destination.vendor in self._process.lacks:
            self._world.coverage.hit(Fault.MISSING_KEY)
            return f"the variable KEY_OF_{destination.vendor} is not set here"
        return ""

    async def open(self, destination: Destination, *, timeout_s: float = 0.0) -> HouseVendor:
        await asyncio.sleep(0.01)
        if self._world.troubled and self._world.chance.random() < self._world.unavailable_share:
            self._world.coverage.hit(Fault.VENDOR_UNAVAILABLE)
            raise VendorUnavailable(f"{destination.vendor} cannot be opened now (simulated)")
        return HouseVendor(self._world, self._process, self._world.houses[destination.vendor])

    async def close(self) -> None:
        return None
