"""SIGHUP: the settings are read again, and what can change under a running service does: vendors and the model of new
submits, prices, limits, keys. All of it or nothing: a file that cannot be read leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from batchwright.assemble.beside import beside
from batchwright.assemble.local import has_local
from batchwright.assemble.machine import Machine
from batchwright.assemble.workers import vendor_limits
from batchwright.core.batch_spec import Destination
from batchwright.core.errors import BatchwrightError, UsageError
from batchwright.fabric.in_process import LoopWorker
from batchwright.server.service import Offers
from batchwright.settings import Settings
from batchwright.vendors.registry import OpenVendors

NEEDS_RESTART = (
    "state_dir",
    "database",
    "blobs",
    "blobs_endpoint",
    "blobs_region",
    "blobs_virtual_host",
    "blobs_encryption",
    "pace",
    "serving",
    "transport",
    "lease_s",
    "heartbeat_s",
    "grace_s",
    "checkpoint_interval_s",
)
"""Fields of `Settings` that a running service goes on with as it began."""
_SAID = {"pace": "limits in .env (those of a settings file take effect)", "grace_s": "grace", "lease_s": "lease"} | {
    "heartbeat_s": "heartbeat",
    "checkpoint_interval_s": "checkpoint_interval",
    "serving": "[serve]",
}
"""What a person knows them as, where that is another word."""


@dataclass(slots=True)
class Hangups:
    """`load` reads the settings anew, under the flags that the process was started with. Raises UsageError."""

    load: Callable[[], Settings]
    asked: asyncio.Event = field(default_factory=asyncio.Event)


@contextlib.contextmanager
def hangups_of_process(loop: asyncio.AbstractEventLoop, load: Callable[[], Settings]) -> Iterator[Hangups]:
    hangups = Hangups(load)
    if sys.platform == "win32":
        yield hangups
        return
    loop.add_signal_handler(signal.SIGHUP, hangups.asked.set)
    try:
        yield hangups
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What of a service the settings are applied to."""

    machine: Machine
    offers: Offers
    vendors: OpenVendors
    worker: LoopWorker
    say: Callable[[str], None]


@contextlib.asynccontextmanager
async def reloading(hangups: Hangups | None, what: Reloaded, settings: Settings) -> AsyncIterator[None]:
    """While it is open, each hangup is answered."""
    if hangups is None:
        yield
        return
    read = [settings]
    async with beside(
        "reading of settings", partial(_answer, hangups, what, read), clock=what.machine.clock, say=what.say
    ):
        yield


async def _answer(hangups: Hangups, what: Reloaded, read: list[Settings]) -> None:
    """`read`: the settings that hold, alone in a list, for whoever answers next."""
    while True:
        await hangups.asked.wait()
        hangups.asked.clear()
        try:
            now = hangups.load()
            local = await asyncio.to_thread(has_local, now)
            read[0] = _apply(now, read[0], what, has_local=local)
        except BatchwrightError as error:
            what.say(f"The settings were not read again, what was read before holds: {error}")


def _apply(now: Settings, before: Settings, what: Reloaded, *, has_local: bool) -> Settings:
    """Everything that can be refused comes first."""
    check_key_file(now)
    what.machine.find_price.reload(now)
    what.offers.change(now.destinations, now.model, now.routes, has_local=has_local)
    variables = now.variables
    what.vendors.renew(now.key_values(), variables.dotenv, variables.dotenv_file)
    what.worker.reload(vendor_limits(now))
    later = [_SAID.get(name, name) for name in NEEDS_RESTART if getattr(now, name) != getattr(before, name)]
    places = ", ".join(
        f"{place.vendor} ({place.unusable})" if place.unusable else place.vendor for place in now.destinations
    )
    text = f"The settings were read again: vendors {places or '(none)'}; prices, limits and keys too."
    if renewed := _other_keys(before.destinations, now.destinations):
        text += f" Open batches go on with the keys they have, until a resume gives them the new: {', '.join(renewed)}."
    if left := _left_behind(before.destinations, now.destinations):
        text += f" Open batches still go to where they were submitted for: {', '.join(left)}."
    if later:
        text += f" Changes of {', '.join(later)} take a restart."
    what.say(text)
    return replace(now, **{name: getattr(before, name) for name in NEEDS_RESTART})


def _left_behind(before: Sequence[Destination], now: Sequence[Destination]) -> list[str]:
    """Places that are not there any more."""
    there = {(place.vendor, place.base_url) for place in now}
    return [
        f"{place.vendor} ({place.base_url})" if place.base_url else place.vendor
        for place in before
        if (place.vendor, place.base_url) not in there and not place.unusable
    ]


def _other_keys(before: Sequence[Destination], now: Sequence[Destination]) -> list[str]:
    """Vendors whose key has another name."""
    named = {(place.vendor, place.base_url): place.key_env for place in before}
    return [place.vendor for place in now if named.get((place.vendor, place.base_url), place.key_env) != place.key_env]


def check_key_file(settings: Settings) -> None:
    """Raises UsageError for a `.env` that holds a vendor's key and that others on this machine can read."""
    variables = settings.variables
    if not variables.dotenv_file or sys.platform == "win32":
        return
    held = [
        place.key_env
        for place in settings.destinations
        if place.key_env in variables.dotenv and not variables.environment.get(place.key_env, "").strip()
    ]
    if not held:
        return
    mode = stat.S_IMODE(Path(variables.dotenv_file).stat().st_mode)
    if mode & 0o077:
        raise UsageError(
            f"{variables.dotenv_file} holds {held[0]} and can be read by others on this machine (mode {mode:o}); a "
            f"service takes keys from the environment or from a file of its owner alone: chmod 600 it"
        )
