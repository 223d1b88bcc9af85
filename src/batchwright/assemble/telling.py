"""What `serve` tells its log of vendors and pauses: which vendors cannot be used, what stands still and what goes on.

Read from the store, so that it is told whoever paused: this process's worker, another's, a checkpoint that spent a
budget, a person over HTTP. No text of a vendor's or of a stranger's is told: that could hold a prompt.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import assert_never

from batchwright.assemble.beside import beside
from batchwright.assemble.machine import Machine
from batchwright.core.batch_spec import LaneKey, split_lane
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.errors import StoreError
from batchwright.core.failures import FailureKind
from batchwright.engine.outages import Who
from batchwright.settings import Settings
from batchwright.vendors.registry import OpenVendors

LOOK_EVERY_S = 1.0
TOLD_MAX = 1_000
"""Batches that stand still at once; of more, none is told of any longer."""
KIND_MET = re.compile(rf"(?:{'|'.join(FailureKind)}) \([^)]*\)")
"""How the reason of a lane's pause begins where a vendor's own words follow: kind, status and code."""


def vendor_problems(settings: Settings, vendors: OpenVendors) -> list[str]:
    """A line for each vendor of the settings that no row can go to from here: why, and what to do."""
    lines = []
    for place in settings.destinations:
        if place.unusable:
            remedy = " ".join(settings.remedies.get(place.unusable, "").split())
            lines.append(f"Vendor {place.vendor} cannot be used: {place.unusable}. {remedy}".rstrip(" .") + ".")
        elif lacks := vendors.lacks(place):
            lines.append(f"Vendor {place.vendor} cannot be used: {lacks}.")
    return lines


@asynccontextmanager
async def telling_of_pauses(machine: Machine, say: Callable[[str], None]) -> AsyncIterator[None]:
    """While it is open, lanes and batches that are paused, and that go on, are told of, the first time those that
    stand still already."""
    async with beside("telling of pauses", partial(_tell, machine, say), clock=machine.clock, say=say):
        yield


async def _tell(machine: Machine, say: Callable[[str], None]) -> None:
    told: dict[str, str] = {}
    seen = -1
    while True:
        try:
            version = machine.store.changes()
            if version != seen:
                now = await machine.reader.do(lambda: _standing(machine))
                _say_changes(told, now, say)
                told, seen = now, version
        except StoreError as error:
            text = f"What is paused cannot be read; it is tried each {LOOK_EVERY_S:g} s: {error}"
            line = machine.outages.met(Who.PAUSES, error, text, now_s=machine.clock.now_s())
        else:
            over = machine.outages.passed(Who.PAUSES, machine.clock.now_s())
            line = over and f"{over}; what is paused is told again"
        if line:
            say(line)
        await machine.clock.sleep(LOOK_EVERY_S)


def _say_changes(before: dict[str, str], now: dict[str, str], say: Callable[[str], None]) -> None:
    for what, text in now.items():
        if before.get(what) != text:
            say(f"{what} is paused: {text}.")
    for what in before.keys() - now.keys():
        say(f"{what} is not paused any more.")


def _standing(machine: Machine) -> dict[str, str]:
    """What stands still, each with why. In the reader's thread."""
    found = {f"Vendor {_lane_text(pause.lane)}": _met(pause.reason) for pause in machine.store.lane_pauses()}
    found |= {f"All that goes to {closed.name}": "a person closed it" for closed in machine.store.quarantines()}
    reasons: dict[str, list[str]] = {}
    for batch_id, pause in machine.store.batch_pauses(TOLD_MAX):
        reasons.setdefault(batch_id, []).append(_why(pause))
    return found | {batch_id: "; ".join(texts) for batch_id, texts in reasons.items()}


def _why(pause: Pause) -> str:
    match pause.cause:
        case PauseCause.LANE:
            return f"its rows wait for vendor {_lane_text(pause.lane)}"
        case PauseCause.BUDGET | PauseCause.KEY_BUDGET | PauseCause.BODIES:
            return pause.reason
        case PauseCause.GATE:
            return "its first rows all failed in the same way"
        case PauseCause.USER:
            return "somebody asked for it"
        case PauseCause.UNKNOWN:
            raise AssertionError("only a service's pause has a cause that is not known")
        case _:
            assert_never(pause.cause)


def _met(reason: str) -> str:
    kind = KIND_MET.match(reason)
    return kind[0] if kind is not None else reason


def _lane_text(lane: str) -> str:
    """ "openai, model gpt-4o" of "openai|OPENAI_API_KEY|gpt-4o#01234567"."""
    key = LaneKey.parse(split_lane(lane)[0])
    return f"{key.vendor}, model {key.model}" if key.model else key.vendor
