"""`batchwright workers` and `batchwright lanes`: what the store knows of both, and what a person asks of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from batchwright.assemble.machine import open_machine
from batchwright.core.batch_spec import LaneKey, split_lane
from batchwright.core.errors import UsageError
from batchwright.core.quarantine import Quarantine, covering
from batchwright.core.records import SIMULATED
from batchwright.core.routes import LOCAL
from batchwright.ports.fleet import FleetRow, WorkerRow
from batchwright.settings import Settings

WAIT_LOOK_S = 0.5
"""How often it is looked whether a drained worker has ended."""


async def read_fleet(settings: Settings) -> tuple[FleetRow, int]:
    """And the moment it was read at, in milliseconds since the epoch."""
    async with open_machine(settings) as machine:
        return machine.store.fleet(), machine.clock.now_ms()


async def drain_workers(
    settings: Settings, names: Sequence[str], *, wait: bool, say: Callable[[str], None]
) -> list[WorkerRow]:
    """Asks the workers of these names to end, all or none; with `wait` it returns once they have. Raises UsageError."""
    async with open_machine(settings) as machine:
        store = machine.store
        live = store.live_workers()
        chosen = list({row.worker: row for row in (_named(live, name) for name in names)}.values())
        left = set()
        for row in chosen:
            if row.state.drained and row.draining:
                say(f"{row.worker.name} is drained already.")
                continue
            left.add(row.worker)
            store.drain_worker(row.worker)
            say(
                f"{row.worker.name} is asked to end: it hears of it within seconds, lets what is out come back and "
                f"gives the rest to the others. Under `work --processes` and on Ray it stands by then, until "
                f"`batchwright workers resume {row.worker.name}`."
            )
        while wait and left:
            await machine.clock.sleep(WAIT_LOOK_S)
            machine.sweeper.bury_dead(machine.clock.now_ms())
            alive = {row.worker for row in store.live_workers()}
            for worker in left - alive:
                say(f"{worker.name} has ended.")
            left &= alive
        return chosen


async def end_drains(settings: Settings, names: Sequence[str]) -> list[WorkerRow]:
    """Lets workers that stand by since they were drained work again, all or none. Raises UsageError."""
    async with open_machine(settings) as machine:
        live = machine.store.live_workers()
        chosen = list({row.worker: row for row in (_named(live, name) for name in names)}.values())
        for row in chosen:
            if not row.state.drained:
                how = "is on its way to its end, which cannot be taken back" if row.draining else "works"
                raise UsageError(
                    f"{row.worker.name} {how}: only a worker that `batchwright workers` calls drained can be resumed"
                )
        for row in chosen:
            machine.store.end_drain(row.worker)
        return chosen


def _named(live: Sequence[WorkerRow], name: str) -> WorkerRow:
    found = [row for row in live if row.worker.name == name] or [
        row for row in live if name and row.worker.name.startswith(name)
    ]
    if not found:
        raise UsageError(f"no worker of that name is alive: {name!r}; `batchwright workers` shows them")
    if len(found) > 1:
        names = ", ".join(row.worker.name for row in found)
        raise UsageError(f"{len(found)} workers' names begin with {name!r}: {names}; name them one by one")
    if found[0].state.only_batch:
        raise UsageError(
            f"{found[0].worker.name} works for a command that runs {found[0].state.only_batch} alone; end that "
            "command with Ctrl-C or SIGTERM, and give it again to go on"
        )
    return found[0]


async def close_lanes(settings: Settings, text: str, reason: str, *, force: bool) -> Quarantine:
    """`text`: VENDOR or VENDOR/MODEL. Returns what holds now. Raises UsageError for a vendor that nothing here knows,
    unless `force`: it may be another machine's."""
    vendor, model = _parted(text)
    async with open_machine(settings) as machine:
        known = _known_vendors(settings, machine.store.fleet())
        if not (force or vendor in known):
            raise UsageError(
                f"no vendor {vendor!r} is in the settings here, and no worker sends to one; there are: "
                f"{', '.join(sorted(known))}. --force closes it all the same"
            )
        fact = Quarantine(vendor=vendor, model=model, reason=reason.strip(), since_ms=machine.clock.now_ms())
        machine.store.set_quarantine(fact)
    return fact


def _known_vendors(settings: Settings, fleet: FleetRow) -> set[str]:
    """Those that every machine has, those of the settings (also those that get no rows now), and of lanes that live
    workers tell of or have paused."""
    lanes = {use.lane for row in fleet.workers for use in row.uses}
    lanes |= {wait.lane for row in fleet.workers for wait in row.waits}
    lanes |= {pause.lane for pause in fleet.pauses}
    routed = {step.vendor for steps in settings.routes.values() for step in steps}
    here = {place.vendor for place in settings.destinations}
    return {LOCAL.vendor, SIMULATED, *here, *routed, *settings.limits, *(_key_of(lane).vendor for lane in lanes)}


async def open_lanes(settings: Settings, text: str) -> tuple[bool, int]:
    """Lifts the quarantine of that name, and lets lanes that workers paused be tried. Returns whether there was one,
    and how many such lanes. Raises UsageError where there is nothing to open."""
    vendor, model = _parted(text)
    wanted = Quarantine(vendor=vendor, model=model, reason="", since_ms=0)
    async with open_machine(settings) as machine:
        store = machine.store
        lifted = store.lift_quarantine(vendor, model)
        paused = [pause.lane for pause in store.lane_pauses() if wanted.covers(_key_of(pause.lane))]
        for lane in paused:
            store.clear_lane(lane)
        closed = store.quarantines()
    still = next((fact for fact in closed if fact.vendor == vendor and fact.model in ("", model)), None)
    if still is not None:
        raise UsageError(
            f"{text} stays closed with {still.name}, which is quarantined as a whole: "
            f"`batchwright lanes resume {still.name}` lifts that"
        )
    if not lifted and not paused:
        names = ", ".join(fact.name for fact in closed) or "none"
        raise UsageError(f"nothing named {text} is quarantined or paused; quarantined are: {names}")
    return lifted, len(paused)


async def closed_lanes_of(settings: Settings, batch_id: str) -> list[Quarantine]:
    """What a person has closed and open rows of this batch have no way around, each once."""
    async with open_machine(settings) as machine:
        closed = machine.store.quarantines()
        lane_sets = machine.store.open_lane_sets(batch_id) if closed else ()
    found: dict[str, Quarantine] = {}
    for lane_set in lane_sets:
        over = [covering(closed, LaneKey.parse(lane)) for lane in lane_set.split("\n")]
        if None not in over:
            found.update((fact.name, fact) for fact in over if fact is not None)
    return list(found.values())


def _key_of(lane: str) -> LaneKey:
    return LaneKey.parse(split_lane(lane)[0])


def _parted(text: str) -> tuple[str, str]:
    vendor, slash, model = text.partition("/")
    if not vendor or (slash and not model) or "|" in vendor:
        raise UsageError(f"{text!r} names no lane: expected VENDOR or VENDOR/MODEL, as `batchwright lanes` shows them")
    return vendor, model
