"""The world whose bodies lie in an object store: simulated, with faults of its own, over either kind of database.

A put or a read that is late takes time in the midst of what a process's writer does: the others go on meanwhile, take
its segments over, and it comes to its commit with what it put long ago. Each process has opened the store by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from random import Random
from types import ModuleType
from typing import Any, TypeVar
from unittest.mock import patch

from batchwright.core.errors import ObjectsAway
from batchwright.ports.blobs import ListedObject
from batchwright.ports.store import Store
from batchwright.store import bodies, objects_sweep
from batchwright.store import open as opening
from batchwright.store.bodies import Bodies
from batchwright.store.sql_store import SqlStore
from world.coverage import Coverage
from world.databases import Database, ServerDatabase, StateFile
from world.fibers import Fiber
from world.laws import Broken, Law
from world.object_faults import DELETES, GETS, LISTS, PUTS, ObjectFault, make_object_plan
from world.plan import START_S
from world.processes import EPOCH_MS, Process
from world.server_world import ServerWorld
from world.world import World

A = TypeVar("A")
T = TypeVar("T")
URL, STATE = "s3://simulated/bodies", "state1"
BOUNDS: dict[str, tuple[ModuleType, str]] = {
    "inline_bytes": (bodies, "INLINE_BYTES"),
    "whole_bytes": (bodies, "WHOLE_BYTES"),
    "cache_bytes": (bodies, "CACHE_BYTES"),
    "listed_every_ms": (objects_sweep, "LISTED_EVERY_MS"),
}
MISSING_S = (0.5, 12.0)
"""So long an object is not found that is there."""
STALE_S = 10.0
RARE_RATE = 0.8
"""Chance of a fault at a request of which a life has only a few."""
LONG_AFTER_MS = 3 * objects_sweep.ORPHAN_MS
SWEEPS_MAX = 50


class ObjectHouse:
    """The store itself: what it holds, and what befalls whoever asks."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = Random(seed * 49_979_687 + 5)
        self.plan = make_object_plan(seed, world.plan.trouble_until_s, world.plan.lease_s)
        self.turn = seed
        self.held: dict[str, bytes] = {}
        self.put_s: dict[str, float] = {}
        self.gone_s: dict[str, float] = {}
        """When an object was deleted."""
        self.missing_until_s: dict[str, float] = {}
        self.fiber: Fiber[Any] | None = None
        """That runs now."""

    def befalls(self, faults: Sequence[ObjectFault]) -> ObjectFault | None:
        """Raises ObjectsAway in an outage. Nothing befalls who asks from outside of a process's writer."""
        if self.fiber is None or not self.world.troubled:
            return None
        now_s = self.world.loop.time() - START_S
        if any(at_s <= now_s < at_s + long_s for at_s, long_s in self.plan.outages):
            raise self.away(ObjectFault.OUTAGE)
        rare = faults not in (PUTS, GETS)
        if self.chance.random() >= (RARE_RATE if rare else self.plan.rate):
            return None
        # What is rare comes in turn, from life to life: chance would leave some of it out.
        self.turn += rare
        fault = faults[self.turn % len(faults)] if rare else self.chance.choice(faults)
        self.world.coverage.hit(fault)
        return fault

    def away(self, why: ObjectFault) -> ObjectsAway:
        if why is ObjectFault.OUTAGE:
            self.world.coverage.hit(why)
        return ObjectsAway(f"The object store {URL} does not answer ({why.value}, simulated).")

    def late_s(self) -> float:
        return self.chance.uniform(*self.plan.late_s)

    def wait(self) -> None:
        """In the midst of a call: the others go on."""
        fiber, actor = self.fiber, self.world.actor
        assert fiber is not None, "faults befall only who can wait"
        self.fiber = self.world.actor = None
        try:
            fiber.wait(self.late_s())
        finally:
            self.fiber, self.world.actor = fiber, actor

    def land(self, name: str, data: bytes) -> None:
        if self.held.get(name, data) != data:
            self.world.fail(Broken(Law.OBJECTS, f"{name} was put twice, with other bytes the second time"))
        self.held[name] = data
        self.put_s[name] = self.world.loop.time()
        self.gone_s.pop(name, None)

    def remove(self, name: str) -> None:
        if self.held.pop(name, None) is None:
            return
        self.gone_s[name] = self.world.loop.time()
        named = "SELECT count(*) FROM blob WHERE object = ? AND substr(key, 1, 5) <> 'gone/' AND superseded_at_ms = 0"
        if self.world.database.execute(named, (name,)).fetchone()[0]:
            self.world.fail(Broken(Law.OBJECTS, f"{name} was deleted although it is named"))

    def modified_ms(self, name: str) -> int:
        return EPOCH_MS + int(self.put_s[name] * 1000)


class HouseObjects:
    """The store as processes reach it: implements `ports.blobs.Objects`."""

    url = URL

    def __init__(self, house: ObjectHouse) -> None:
        self._house = house

    def probe(self, name: str) -> None:
        """It is there; what goes wrong later is what is looked at here."""

    def put(self, name: str, data: bytes) -> None:
        house = self._house
        fault = house.befalls(PUTS)
        later = house.world.loop.call_later
        if fault is ObjectFault.PUT_AWAY:
            raise house.away(fault)
        if fault is ObjectFault.PUT_LANDS_LATER:
            later(house.late_s(), house.land, name, data)
            raise house.away(fault)
        house.land(name, data)
        if fault is ObjectFault.PUT_REPLY_LOST:
            raise house.away(fault)
        if fault is ObjectFault.PUT_TWICE:
            later(house.late_s(), house.land, name, data)
        elif fault is ObjectFault.CRASH_AFTER_PUT and house.fiber is not None:
            house.fiber.process.crash()
        elif fault is ObjectFault.PUT_LATE:
            house.wait()

    def get(self, name: str) -> bytes:
        house = self._house
        fault = house.befalls(GETS)
        if fault is ObjectFault.GET_LATE:
            house.wait()
        elif fault is ObjectFault.GET_AWAY:
            raise house.away(fault)
        elif fault is ObjectFault.GET_MISSING:
            house.missing_until_s[name] = house.world.loop.time() + house.chance.uniform(*MISSING_S)
        if house.missing_until_s.get(name, 0.0) > house.world.loop.time():
            raise KeyError(name)
        return house.held[name]

    def get_ranges(self, name: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        whole = self.get(name)
        return [whole[offset : offset + length] for offset, length in spans]

    def delete(self, names: Sequence[str]) -> None:
        house = self._house
        fault = house.befalls(DELETES)
        if fault is ObjectFault.DELETE_AWAY:
            raise house.away(fault)
        for name in names:
            house.remove(name)
        if fault is ObjectFault.DELETE_REPLY_LOST:
            raise house.away(fault)
        if fault is ObjectFault.DELETE_LATE:
            house.wait()

    def listed(self, under: str, after: str, limit: int) -> list[ListedObject]:
        house = self._house
        fault = house.befalls(LISTS)
        if fault is ObjectFault.LIST_LATE:
            house.wait()
        elif fault is ObjectFault.LIST_AWAY:
            raise house.away(fault)
        names = set(house.held)
        if fault is ObjectFault.LIST_STALE:
            since_s = house.world.loop.time() - STALE_S
            names = {name for name in names if house.put_s[name] < since_s}
            names |= {name for name, at_s in house.gone_s.items() if at_s >= since_s}
        found = sorted(name for name in names if name.startswith(f"{under}/") and name > after)
        return [ListedObject(name, house.modified_ms(name)) for name in found[:limit]]


class WithObjects(World):
    """To be mixed into a kind of world."""

    def __init__(self, seed: int, *more: Any) -> None:
        self._seed = seed
        self._opened: dict[Process, Store] = {}
        super().__init__(seed, *more)

    def live(self) -> None:
        plan = self.house.plan
        with ExitStack() as stack:
            for name, value in plan.bounds.items():
                stack.enter_context(patch.object(*BOUNDS[name], value))
            stack.enter_context(patch.object(Bodies, "_each", _one_after_another))
            defaults = (plan.keep_superseded_ms, *(SqlStore.sweep_step.__defaults__ or ())[1:])
            stack.enter_context(patch.object(SqlStore.sweep_step, "__defaults__", defaults))
            super().live()

    def _database(self) -> Database:
        self.house = ObjectHouse(self, self._seed)
        return self._database_with(self.house.held)

    def _database_with(self, held: dict[str, bytes]) -> Database:
        return StateFile(self._connections._driver().cursor(), held)

    def store_of(self, process: Process) -> Store:
        found = self._opened.get(process)
        if found is None:
            found = self._opened[process] = self._with_objects(str(process.identity).replace("/", "-"))
        return found

    def _with_objects(self, writer: str) -> SqlStore:
        outlying = opening.Outlying(objects=HouseObjects(self.house), writer=writer, state=STATE)
        return SqlStore(self._connections, opening._bodies(self._connections, outlying))

    async def work(self, process: Process, work: Callable[[], T]) -> T:
        house = self.house

        def within() -> T:
            house.fiber = fiber
            try:
                return work()
            finally:
                house.fiber = None

        fiber = Fiber(process, within)
        return await fiber.result()

    def _run(self) -> None:
        # Whoever looks from outside of every process, as the janitor does, has opened it too.
        self.store = self._with_objects("onlooker")
        super()._run()
        self._sweep_to_the_end()

    def _sweep_to_the_end(self) -> None:
        """Days later: what is named is there, and nothing else."""
        now_ms = EPOCH_MS + int(self.loop.time() * 1000) + LONG_AFTER_MS
        store = self._with_objects("sweeper")
        for _ in range(SWEEPS_MAX):
            if not store.sweep_step(now_ms) + store.sweep_orphans(now_ms):
                break
            now_ms += objects_sweep.LISTED_EVERY_MS
        named = {row[0] for row in self.database.execute("SELECT object FROM blob WHERE object <> ''").fetchall()}
        if left := set(self.house.held) - named:
            raise Broken(Law.OBJECTS, f"nobody names {sorted(left)[:3]} and it does not go")
        if lost := named - set(self.house.held):
            raise Broken(Law.OBJECTS, f"{sorted(lost)[:3]} is named and not there")


class ObjectWorld(WithObjects):
    """Over a state file."""


class ObjectServerWorld(WithObjects, ServerWorld):
    """Over a database of a server."""

    def __init__(self, seed: int, url: str, coverage: Coverage | None = None) -> None:
        super().__init__(seed, url, coverage)

    def _database_with(self, held: dict[str, bytes]) -> Database:
        database = ServerDatabase(self.url, held)
        self._stack.callback(database.connection.close)
        return database


def _one_after_another(_: Bodies, work: Callable[[A], T], items: Sequence[A]) -> list[T]:
    """In place of `Bodies._each`, whose threads would come in any order."""
    results: list[T] = []
    errors: list[Exception] = []
    for item in items:
        try:
            results.append(work(item))
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return results
