"""A Ray cluster that workers are on: joined, or begun here and ended. With `fabric/ray_actors.py` the only place that
knows Ray; nothing of Ray's leaves the two.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from batchwright.core.errors import StoreError, UsageError
from batchwright.fabric.code_version import code_version
from batchwright.fabric.fleet import FleetView, RayPlan, first_line, other_code_text
from batchwright.fabric.hosting import FleetBuilder, Say
from batchwright.fabric.system import SystemClock
from batchwright.ports.observer import WorkerView

LOCAL = "local"
START_S = 120.0
"""For the first answer of an actor: its process has to be begun, and everything imported."""
DRAIN_S = 15.0
FOLLOW_EVERY_S = 0.5
OBJECT_STORE_BYTES = 80 * 1024 * 1024
"""The least that Ray takes: nothing of ours goes through it."""
HEAD_GONE_S = 10
"""A node of a local cluster ends itself when its head has been away for so long."""
LOOPBACK_ENVIRONMENT = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""On any system: every port is on loopback, and 127.0.0.1 is not taken for another address of the machine."""
QUIET_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would begin each actor by the same `uv run` as the command, which installs before it imports anything.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
HEAD_ANSWERS_S = 5.0
JOINS_S = 20.0
"""For a cluster found on this machine: Ray is imported and joins in some 4 s."""
JOIN_AND_LEAVE = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False, logging_level='ERROR'); ray.shutdown()"
LOCAL_ENVIRONMENT = {
    "RAY_worker_niceness": "0",  # workers are what the cluster is for; late heartbeats would cost them their lease
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(HEAD_GONE_S),
}


class RayFleet:
    """The actors of one store on a cluster that this process has joined (`joined`). Its methods block, and raise
    StoreError where the cluster does not answer."""

    def __init__(self, plan: RayPlan) -> None:
        self._plan = plan
        self._keeper: Any = None
        """Its handle: asked without the head, which may be away."""

    @property
    def bounds(self) -> tuple[int, int]:
        return self._plan.least, self._plan.most

    def begin(self, build: FleetBuilder) -> None:
        """Begins its keeper, or goes on with the one that is there. Raises UsageError for other code than ours."""
        from batchwright.fabric import ray_actors  # Ray takes seconds to import, and is imported once it is joined

        self._check()
        ours = code_version()
        keeper = self._keeper = ray_actors.begin_keeper(ours, build, self._plan)
        view: FleetView = _answer(keeper.view.remote(), START_S)
        if view.code != ours:
            raise UsageError(other_code_text(view.code, ours) + " End it first: batchwright ray down")
        self.bound()

    def view(self) -> FleetView | None:
        """None: it has none."""
        keeper = self._find_keeper()
        return _answer(keeper.view.remote(), START_S) if keeper is not None else None

    def drain(self, *, grace: bool) -> None:
        """Its workers begin to end, with grace or at once, and no other is begun."""
        keeper = self._find_keeper()
        if keeper is not None:
            _answer(keeper.drain.remote(grace), DRAIN_S)

    def bound(self) -> None:
        """The bounds of this plan hold: a keeper that Ray began anew has those it was first begun with."""
        if (keeper := self._find_keeper()) is not None:
            _answer(keeper.change.remote(self._plan), START_S)

    def end(self) -> None:
        """The keeper ends, and whatever worker is left: what that held is free once its lease is over."""
        from batchwright.fabric import ray_actors

        ray_actors.end_all()

    def _find_keeper(self) -> Any:
        from batchwright.fabric import ray_actors

        if self._keeper is None:
            self._keeper = ray_actors.find_actor(ray_actors.KEEPER)
        return self._keeper

    def _check(self) -> None:
        import ray

        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray has no type for it
        nodes = [node for node in nodes if node["Alive"]]
        if self._plan.one_machine and [node["NodeManagerHostname"] for node in nodes] != [socket.gethostname()]:
            raise UsageError(
                f"the batches are in a state folder, which is one machine's, and this Ray cluster has {len(nodes)} "
                "nodes or is elsewhere: put them on a database with --database postgresql://USER@HOST/NAME"
            )

        @ray.remote(num_cpus=0)
        def code_there() -> str:
            from batchwright.fabric.code_version import code_version

            return code_version()

        try:
            there = _answer(code_there.remote(), START_S)
        except ModuleNotFoundError as error:
            raise UsageError(f"the nodes of this Ray cluster lack batchwright ({error}): install it there") from error
        if there != code_version():
            raise UsageError(other_code_text(there, code_version()))


class RayWorkers:
    """The fleet as one `hosting.RunningWorker`, for a host that stays. To be made inside a running loop."""

    def __init__(self, fleet: RayFleet, say: Say) -> None:
        self._fleet, self._say = fleet, say
        self._view: FleetView | None = None
        self._stopping = False
        self._empty_looks = self._told = 0
        self._following = asyncio.create_task(self._follow(), name="fleet")

    async def wait(self) -> None:
        await asyncio.shield(self._following)

    async def stop(self, *, grace: bool) -> None:
        if not self._following.done():
            self._stopping = True
            try:
                await asyncio.to_thread(self._fleet.drain, grace=grace)
            except StoreError as error:
                self._say(f"The actors cannot be told to end: {error} `batchwright ray down` does, once it answers.")
                self._following.cancel()
            await asyncio.wait([self._following])

    def view(self) -> WorkerView | None:
        seen = self._view
        if self._following.done() or seen is None:
            return None
        idle_looks = seen.whole.idle_looks if seen.actors else self._empty_looks
        return replace(seen.whole, answered=seen.answered, idle_looks=idle_looks)

    async def _follow(self) -> None:
        clock = SystemClock()
        while True:
            seen = self._view = await asyncio.to_thread(self._fleet.view)
            if seen is None:
                raise StoreError("the fleet of workers on the Ray cluster was ended by somebody else.")
            if not self._stopping and (seen.least, seen.most) != self._fleet.bounds:
                await asyncio.to_thread(self._fleet.bound)
            for number, text in seen.texts:
                if number > self._told:
                    self._say(text)
                    self._told = number
            self._empty_looks = self._empty_looks + 1 if not seen.actors and not seen.to_do else 0
            if self._stopping and not seen.actors:
                await asyncio.to_thread(self._fleet.end)
                return
            await clock.sleep(FOLLOW_EVERY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayHost:
    """Implements `hosting.WorkerBuilder` for a process of its own, which Ray may end when its cluster is lost."""

    plan: RayPlan
    build: FleetBuilder

    @asynccontextmanager
    async def __call__(self, say: Say) -> AsyncIterator[RayWorkers]:
        with ExitStack() as stack:
            await asyncio.to_thread(lambda: stack.enter_context(joined(self.plan)))
            fleet = RayFleet(self.plan)
            await asyncio.to_thread(fleet.begin, self.build)
            say(f"Workers are actors of the Ray cluster {self.plan.address}, {self.plan.least} to {self.plan.most}.")
            yield RayWorkers(fleet, say)


@contextmanager
def joined(plan: RayPlan) -> Iterator[None]:
    """While it is open this process is a driver of the cluster; `local`: of one that is begun here, in a folder of its
    own, on loopback, and ended. Raises UsageError where Ray is not installed or the cluster cannot be joined."""
    os.environ.update(QUIET_ENVIRONMENT)
    local = plan.address == LOCAL
    if local:
        os.environ.update(
            LOOPBACK_ENVIRONMENT | LOCAL_ENVIRONMENT, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32)
        )
    else:
        _check_head(plan.address)
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "Ray is not installed here: that needs the extra `ray`. In a checkout: uv run --extra ray batchwright ...; "
            'installed: pip install "batchwright[ray]"'
        ) from error
    options: dict[str, Any] = {"namespace": plan.fleet, "log_to_driver": False, "logging_level": logging.ERROR}
    with ExitStack() as stack:
        if local:
            stack.callback(shutil.rmtree, plan.folder, ignore_errors=True)
            options |= {
                "include_dashboard": False,
                "num_cpus": math.ceil(plan.most * plan.cpus) + 1,
                "object_store_memory": OBJECT_STORE_BYTES,
                "_node_ip_address": "127.0.0.1",
                "_temp_dir": plan.folder,
            }
        try:
            ray.init(plan.address, **options)
        except (RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
            raise UsageError(
                f"the Ray cluster {plan.address} cannot be joined: {first_line(error)} Expected a cluster of Ray "
                f"{ray.__version__} that this machine is a node of"
            ) from error
        stack.callback(ray.shutdown)
        yield


def _check_head(address: str) -> None:
    """Ray itself would try for a minute. Raises UsageError where nobody listens."""
    host, _, port = address.rpartition(":")
    if not host:
        _check_auto(address)
        return
    host = host.strip("[]")
    if host == "localhost" or host.startswith("127.") or host == "::1":
        os.environ.update(LOOPBACK_ENVIRONMENT)
    try:
        socket.create_connection((host, int(port)), HEAD_ANSWERS_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"the Ray cluster {address} cannot be joined: {error}. Expected HOST:PORT of its head, as `ray status` and "
            "`ray start` show it"
        ) from error


def _check_auto(address: str) -> None:
    """Whichever cluster Ray finds here is tried by a process of its own, for Ray waits without end before one that does
    not let it in. Raises UsageError then; any other refusal is told when it is joined."""
    try:
        subprocess.run(
            [sys.executable, "-c", JOIN_AND_LEAVE, address], check=False, capture_output=True, timeout=JOINS_S
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"the Ray cluster that this machine is a node of did not let this process join it within {JOINS_S:g} s. "
            "One that `batchwright work --ray` began is that command's alone and ends with it: end that command "
            "instead. Expected a cluster begun with `ray start`: give HOST:PORT of its head, as `ray start` showed it"
        ) from error


def _answer(ref: Any, timeout_s: float) -> Any:
    import ray

    try:
        return ray.get(ref, timeout=timeout_s)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ModuleNotFoundError):
            raise error.cause from error
        raise
    except ray.exceptions.GetTimeoutError as error:
        raise StoreError(
            f"the Ray cluster did not answer within {timeout_s:g} s: has it no node with room for an actor?"
        ) from error
    except ray.exceptions.ActorDiedError as error:
        raise UsageError(f"an actor could not begin: {first_line(error)}") from error
    except ray.exceptions.RayError as error:
        raise StoreError(f"the Ray cluster does not answer: {first_line(error)}") from error
