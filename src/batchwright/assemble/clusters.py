"""Which fleet on which Ray cluster works on the batches of these settings, and the commands on it."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from batchwright.assemble.hosting import WorkerOrder
from batchwright.core.errors import UsageError
from batchwright.fabric.fleet import FleetView, RayPlan
from batchwright.fabric.ray import LOCAL, RayFleet, RayHost, joined
from batchwright.fabric.system import SystemClock
from batchwright.settings import Settings
from batchwright.settings.frozen import freeze, without_password

AUTO = "auto"
LOOK_EVERY_S = 0.5


@contextmanager
def ray_host(settings: Settings) -> Iterator[RayHost]:
    """What hosts the workers of `work --ray`."""
    with tempfile.TemporaryDirectory(prefix="bw-ray-", ignore_cleanup_errors=True) as folder:
        plan = replace(_plan(settings, settings.hosts.ray), folder=folder)
        yield RayHost(plan=plan, build=_order(settings))


def begin_fleet(settings: Settings) -> FleetView | None:
    """`batchwright ray up`. Raises UsageError, StoreError."""
    plan = _standing_plan(settings)
    with joined(plan):
        fleet = RayFleet(plan)
        fleet.begin(_order(settings))
        return fleet.view()


def look_at_fleet(settings: Settings) -> FleetView | None:
    """`batchwright ray status`; None: there is none of these batches."""
    plan = _standing_plan(settings)
    with joined(plan):
        return RayFleet(plan).view()


async def end_fleet(settings: Settings, *, grace: bool) -> bool:
    """`batchwright ray down`: returns once all its workers have ended; False: there were none."""
    plan, clock = _standing_plan(settings), SystemClock()
    with joined(plan):
        fleet = RayFleet(plan)
        found = fleet.view() is not None
        fleet.drain(grace=grace)
        while (view := fleet.view()) is not None and view.actors:
            await clock.sleep(LOOK_EVERY_S)
        fleet.end()
        return found


def _order(settings: Settings) -> WorkerOrder:
    return WorkerOrder(settings=freeze(settings), sweeps=True)


def _standing_plan(settings: Settings) -> RayPlan:
    address = settings.hosts.ray or AUTO
    if address == LOCAL:
        raise UsageError(
            "a local Ray cluster ends with the command that began it: `batchwright work --ray` has one; give a "
            "cluster that stays, as HOST:PORT of its head"
        )
    return _plan(settings, address)


def _plan(settings: Settings, address: str) -> RayPlan:
    hosts = settings.hosts
    store = without_password(settings.database) if settings.database else str(settings.state_dir)
    return RayPlan(
        address=address,
        fleet=f"batchwright-{hashlib.sha256(store.encode()).hexdigest()[:12]}",
        least=hosts.ray_min,
        most=hosts.ray_max,
        cpus=hosts.ray_cpus,
        one_machine=not settings.database,
    )
