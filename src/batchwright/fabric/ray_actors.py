"""The actors of a fleet on a Ray cluster, and what they tell.

    keeper     one, detached: begins and drains workers, between two bounds, by how much there is to do
    worker-N   detached, each with one worker on a loop in a thread of its own

Both outlive whoever began them, and Ray begins them again where their process, or their node, has died. Neither holds
anything that cannot be lost: the truth is in SQL, and so a cluster that is gone is replaced by another, or by workers
of any other kind. What an actor is handed is a `hosting.FleetBuilder`, which has no secret in it: keys come from the
environment of the actor's own node.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import socket
import threading
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import ray

from batchwright.core.errors import BatchwrightError, UsageError
from batchwright.fabric.code_version import code_version
from batchwright.fabric.fleet import ActorView, FleetView, RayPlan, first_line, other_code_text
from batchwright.fabric.hosting import FleetBuilder, RunningWorker, WorkerBuilder
from batchwright.fabric.own_process import own_loop, tune_own_process
from batchwright.ports.observer import WorkerView

KEEPER, WORKER = "keeper", "worker-"
SEGMENTS_A_WORKER = 8
"""Some 4,000 rows: with less for each, another worker takes longer to begin than it helps."""
LOOK_EVERY_S, DRAINING_LOOK_EVERY_S = 2.0, 0.5
SPARE_LOOKS = 15
"""So often in a row there were more workers than there is work for, until one of them that is idle is drained."""
HOLD_LOOKS_MAX = 32
"""After actors that could not begin, so many looks begin none."""
HOLD_S = 1.8
"""How long an actor holds its report: it is there at the next look, and orders wait no longer."""
ANSWER_S = 2.0
"""An actor that has not answered by then is on its way, or its node is gone."""
SILENT_MAX, NEVER_HEARD_MAX = 10, 2
"""Looks without an answer until one that is to end is killed: it may only be slow, unless it never was there."""
AGAIN_MIN_S, AGAIN_MAX_S = 1.0, 30.0
TEXTS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    host: str
    pid: int
    draining: bool
    ended: bool
    view: WorkerView | None
    texts: list[str]
    """Told since the last report."""


class WorkerActor:
    """A worker actor. Its worker begins again, after a growing wait, when it ended otherwise than by an order."""

    def __init__(self, code: str, build: WorkerBuilder) -> None:
        refuse_other_code(code)
        tune_own_process()
        self._build = build
        self._texts: deque[str] = deque(maxlen=TEXTS_MAX)
        self._worker: RunningWorker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()
        threading.Thread(target=self._host, name="worker", daemon=True).start()

    def report(self, hold_s: float) -> _Report:
        """After `hold_s`, or once the worker has ended. Held as it is, this thread is not in Ray's own loop, which
        wakes a hundred times a second and wants the interpreter from the worker each time."""
        self._ended.wait(hold_s)
        texts = [self._texts.popleft() for _ in range(len(self._texts))]
        worker = self._worker
        view = worker.view() if worker is not None else None
        return _Report(
            host=socket.gethostname(),
            pid=os.getpid(),
            draining=self._stopping.is_set(),
            ended=self._ended.is_set(),
            view=view,
            texts=texts,
        )

    def stop(self, grace: bool) -> None:
        self._stopping.set()
        worker, loop = self._worker, self._loop
        if worker is not None and loop is not None:
            with suppress(RuntimeError):  # it has ended meanwhile
                asyncio.run_coroutine_threadsafe(worker.stop(grace=grace), loop)

    def _host(self) -> None:
        wait_s = AGAIN_MIN_S
        while not self._stopping.is_set():
            try:
                with own_loop() as runner:
                    runner.run(self._work())
            except Exception as error:
                self._texts.append(f"A worker ended: {error} It begins again in {wait_s:g} s.")
                self._stopping.wait(wait_s)
                wait_s = min(2 * wait_s, AGAIN_MAX_S)
        self._ended.set()

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._build(self._texts.append) as worker:
            self._worker = worker
            try:
                if not self._stopping.is_set():
                    await worker.wait()
            finally:
                self._worker = None


class KeeperActor:
    """The keeper actor. Whatever it knows it finds again by the names of the actors."""

    def __init__(self, code: str, build: FleetBuilder, plan: RayPlan) -> None:
        refuse_other_code(code)
        self._code, self._build, self._plan = code, build, plan
        self._view = FleetView(code=code, least=plan.least, most=plan.most, to_do=-1, answered=0, actors=(), texts=())
        self._texts: deque[tuple[int, str]] = deque(maxlen=TEXTS_MAX)
        self._told = self._spare_looks = self._failures = self._hold_looks = 0
        self._asked: dict[str, Any] = {}
        """Reports that are on their way: one that was told and not read would be lost."""
        self._answered: dict[tuple[str, int], int] = {}
        """By the actor's name and process."""
        self._heard: set[str] = set()
        self._silent: Counter[str] = Counter()
        """In how many looks in a row an actor has not answered."""
        self._drained: bool | None = None
        """Whether all are to end, and whether with grace."""
        self._wake = threading.Event()
        threading.Thread(target=self._keep, name="keeper", daemon=True).start()

    def view(self) -> FleetView:
        return self._view

    def change(self, plan: RayPlan) -> None:
        self._plan, self._drained = plan, None
        self._view = replace(self._view, least=plan.least, most=plan.most)
        self._wake.set()

    def drain(self, grace: bool) -> None:
        self._drained = grace
        self._wake.set()

    def _keep(self) -> None:
        while True:
            try:
                with self._build.open_load() as load:
                    while True:
                        self._look(load())
                        self._wait()
            except BatchwrightError as error:
                self._tell(str(error))
                self._look_without_store()
            except ray.exceptions.RayError as error:
                self._tell(f"the cluster does not answer its keeper: {first_line(error)}")
            self._wait()

    def _look_without_store(self) -> None:
        """Workers are not to be without their keeper because that has no store."""
        with suppress(ray.exceptions.RayError):
            self._look(-1)

    def _wait(self) -> None:
        self._wake.wait(LOOK_EVERY_S if self._drained is None else DRAINING_LOOK_EVERY_S)
        self._wake.clear()

    def _tell(self, text: str) -> None:
        self._told += 1
        self._texts.append((self._told, text))

    def _look(self, to_do: int) -> None:
        handles = workers_here()
        actors = self._ask(handles)
        if self._drained is not None:
            for actor in actors:
                if self._silent[actor.name] < (SILENT_MAX if actor.name in self._heard else NEVER_HEARD_MAX):
                    handles[actor.name].stop.remote(self._drained)
                else:
                    ray.kill(handles[actor.name])  # what it held, if it held any, is free when its lease is over
        else:
            self._scale(handles, [actor for actor in actors if not actor.draining], to_do)
        self._view = FleetView(
            code=self._code,
            least=self._plan.least,
            most=self._plan.most,
            to_do=to_do,
            answered=sum(self._answered.values()),
            actors=tuple(actors),
            texts=tuple(self._texts),
        )

    def _scale(self, handles: dict[str, Any], staying: list[ActorView], to_do: int) -> None:
        plan = self._plan
        wanted = plan.least if to_do < 0 else math.ceil(to_do / SEGMENTS_A_WORKER)
        wanted = min(max(wanted, plan.least), plan.most)
        names = (f"{WORKER}{number}" for number in itertools.count(1))
        free = (name for name in names if name not in handles)
        self._hold_looks = max(0, self._hold_looks - 1)
        for _ in range(0 if self._hold_looks else wanted - len(staying)):
            options = {"name": next(free), "lifetime": "detached", "max_restarts": -1, "num_cpus": plan.cpus}
            ray.remote(WorkerActor).options(**options).remote(self._code, self._build)
        self._spare_looks = self._spare_looks + 1 if len(staying) > wanted and to_do >= 0 else 0
        at_work = [actor for actor in staying if actor.view is not None]
        idle = [actor for actor in at_work if actor.view is not None and actor.view.idle_looks]
        beyond = len(staying) > plan.most  # the bound was lowered
        if (idle and self._spare_looks >= SPARE_LOOKS) or (at_work and beyond):
            self._spare_looks = 0
            handles[(idle or at_work)[-1].name].stop.remote(True)

    def _ask(self, handles: dict[str, Any]) -> list[ActorView]:
        """What each is and does; those that have ended are no more after it."""
        for name in handles.keys() - self._asked.keys():
            self._asked[name] = handles[name].report.remote(0)
        ready, _ = ray.wait(list(self._asked.values()), num_returns=len(self._asked) or 1, timeout=ANSWER_S)
        found = []
        for name, handle in handles.items():
            actor: ActorView | None = ActorView(name=name, host="", pid=0, draining=False, view=None)
            if self._asked[name] in ready:
                with suppress(ray.exceptions.ActorUnavailableError):
                    actor = self._hear(name, handle, self._asked.pop(name))
            if actor is not None:
                self._silent[name] = 0 if actor.pid else self._silent[name] + 1
                found.append(actor)
        for name in self._asked.keys() - handles.keys():
            del self._asked[name]
        return found

    def _hear(self, name: str, handle: Any, answer: Any) -> ActorView | None:
        try:
            report = ray.get(answer)
        except ray.exceptions.ActorUnavailableError:
            raise
        except ray.exceptions.RayError as error:
            self._failures += 1
            self._hold_looks = min(2**self._failures, HOLD_LOOKS_MAX)
            self._tell(f"{name} could not begin: {first_line(error)}")
            return None
        for text in report.texts:
            self._tell(f"{name}: {text}")
        self._heard.add(name)
        if report.view is not None:
            self._failures = 0
            self._answered[(name, report.pid)] = report.view.answered
        if report.ended:
            ray.kill(handle)
            return None
        self._asked[name] = handle.report.remote(HOLD_S if self._drained is None else 0)
        return ActorView(name=name, host=report.host, pid=report.pid, draining=report.draining, view=report.view)


def begin_keeper(code: str, build: FleetBuilder, plan: RayPlan) -> Any:
    """The handle of the fleet's keeper: a new one, or the one that is there."""
    options: dict[str, Any] = {"name": KEEPER, "lifetime": "detached", "max_restarts": -1, "num_cpus": 0}
    return ray.remote(KeeperActor).options(**options, get_if_exists=True).remote(code, build, plan)


def end_all() -> None:
    """The keeper first, which would begin workers anew."""
    for name in (KEEPER, *workers_here()):
        if (handle := find_actor(name)) is not None:
            ray.kill(handle)


def workers_here() -> dict[str, Any]:
    """The worker actors of this fleet that are there or on their way, by name."""
    names = [name for name in ray.util.list_named_actors() if name.startswith(WORKER)]
    found = {name: find_actor(name) for name in sorted(names, key=lambda name: (len(name), name))}
    return {name: handle for name, handle in found.items() if handle is not None}


def find_actor(name: str) -> Any:
    try:
        return ray.get_actor(name)
    except ValueError:
        return None


def refuse_other_code(code: str) -> None:
    if code != (here := code_version()):
        raise UsageError(other_code_text(here, code))
