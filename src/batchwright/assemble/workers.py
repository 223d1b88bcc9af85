"""What a worker of this machine is built from."""

from __future__ import annotations

import os
from collections.abc import Callable

from batchwright.assemble.machine import Machine
from batchwright.core.worker_id import WorkerId
from batchwright.engine.sweeper import worker_lock_name
from batchwright.engine.worker import Worker, WorkerParts
from batchwright.engine.worker_settings import ANY_VENDOR, NO_LIMITS, LaneLimits, WorkerSettings
from batchwright.fabric.in_process import Hosted, LoopWorker
from batchwright.fabric.system import utc_day
from batchwright.ports.observer import Trace, WorkerFigures
from batchwright.runner.request import Pace
from batchwright.runner.row_files import LocalFiles
from batchwright.settings import Settings
from batchwright.vendors.registry import OpenVendors


def _worker_settings(settings: Settings, asked: LaneLimits) -> WorkerSettings:
    return WorkerSettings(
        lease_s=settings.lease_s,
        heartbeat_s=settings.heartbeat_s,
        grace_s=settings.grace_s,
        checkpoint_s=settings.checkpoint_interval_s,
        asked=asked,
        vendor_limits=vendor_limits(settings),
    )


def vendor_limits(settings: Settings) -> dict[str, LaneLimits]:
    """Each vendor of the settings is in it: one that is not is there no more, which is another thing than that its
    limits are."""
    return (
        {ANY_VENDOR: limits_of_pace(settings.usual_pace)}
        | {place.vendor: NO_LIMITS for place in settings.destinations}
        | {
            name: LaneLimits(concurrency=limits.concurrency, rpm=limits.rpm, tpm=limits.tpm)
            for name, limits in settings.limits.items()
        }
    )


def limits_of_pace(pace: Pace) -> LaneLimits:
    return LaneLimits(concurrency=pace.concurrency, rpm=pace.rpm, tpm=pace.tpm, timeout_s=pace.timeout_s)


def start_worker(
    machine: Machine,
    vendors: OpenVendors,
    *,
    say: Callable[[str], None],
    asked: LaneLimits,
    only_batch: str = "",
    until_idle: bool = False,
    stays: bool = False,
    trace: Trace | None = None,
) -> LoopWorker:
    """A worker on this loop; `stays`: drained, it stands by."""
    return host_worker(
        machine,
        lambda standing_by: build_worker(
            machine,
            vendors,
            say=say,
            asked=asked,
            only_batch=only_batch,
            until_idle=until_idle,
            standing_by=standing_by,
            trace=trace,
        ),
        say=say,
        stays=stays,
    )


def host_worker(
    machine: Machine, build: Callable[[bool], Worker], *, say: Callable[[str], None], stays: bool = False
) -> LoopWorker:
    """Its lock is taken before it is registered: a worker that is in the store without a lock counts as dead.
    `build`: is told whether the worker begins by standing by."""

    def make(standing_by: bool) -> Hosted:
        worker = build(standing_by)
        lock = machine.locks.take(worker_lock_name(worker.identity), holder=f"process {os.getpid()}")
        assert lock is not None, "a fresh incarnation's lock cannot be taken already"
        return Hosted(worker, lock.release)

    return LoopWorker(make, say=say, stays=stays)


def build_worker(
    machine: Machine,
    vendors: OpenVendors,
    *,
    say: Callable[[str], None],
    asked: LaneLimits,
    only_batch: str = "",
    until_idle: bool = False,
    claims: bool = True,
    standing_by: bool = False,
    figures: WorkerFigures | None = None,
    trace: Trace | None = None,
) -> Worker:
    identity = WorkerId(f"{machine.host}-{os.getpid()}", machine.chance.hex_id(8))
    return Worker(
        WorkerParts(
            store=machine.store,
            writer=machine.writer,
            beats=machine.beats,
            vendors=vendors,
            find_price=machine.find_price,
            clock=machine.clock,
            chance=machine.chance,
            day_of=utc_day,
            report=say,
            outages=machine.outages,
            files=LocalFiles(),
            figures=figures or WorkerFigures(),
            trace=trace,
        ),
        identity=identity,
        settings=_worker_settings(machine.settings, asked),
        only_batch=only_batch,
        until_idle=until_idle,
        claims=claims,
        standing_by=standing_by,
        host=machine.host,
        pid=os.getpid(),
    )
