"""Which way a row's model name goes. Pure: the same names, destinations and routes always give the same lanes.

0. A batch service (protocol `service`) takes every row, under the name it has: it has routes of its own.
1. The name of a route: the choices it stands for, in their order (`Route.steps`). A row begins with one of them and
   goes on to the others where that one cannot take it (`engine.failover`).
2. `NAME/rest`, where NAME is a destination's name, goes there and the vendor gets `rest` as the model: the prefix is
   ours, not the vendor's. (`meta-llama/Llama-3` is left whole unless a destination is called `meta-llama`.)
3. The first destination whose patterns match the whole name.
4. The first destination without patterns that may be chosen by default; but not for `auto`, which is nobody's model:
   it means what a route of that name says.
Where the destination that was found has a batch API (protocol `batch`) among them, rows begin there, and go on to the
vendor itself only where that was asked for (`live_too`): then the model's name is the name of a route, with these two
choices. A row that names no model goes to the vendor itself, since a file of such rows belongs nowhere.
Otherwise the row is unroutable, and so it is where the destination that was found is unusable, and where `local/rest`
names another model than the local server has: it would answer whatever it is called, and a slip of the pen would show
nowhere. A choice of a route that is unusable is left out; whoever wrote the others down has agreed to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import NamedTuple, assert_never
from urllib.parse import urlsplit

from batchwright.core.batch_spec import Destination, LaneKey, Routes, RouteStep, VendorProtocol

LOCAL = Destination(vendor="local", base_url="", protocol=VendorProtocol.LOCAL)
"""Selected by the prefix `local/` alone, whatever else is configured."""
DEFAULT_MODEL = "smollm2"
"""What the local server's model is called where no file was given."""
AUTO = "auto"
"""The model name that says: whatever is configured for it."""
NO_ROUTES: Routes = {}
_PATTERN_SIGNS = frozenset("*?[")
"""Of `fnmatchcase`, by which a model is held against an entry."""

GOLDEN = 0x9E3779B97F4A7C15
"""2**64 by the golden ratio: multiples of it lie evenly spread, whatever the weights."""
SPREAD_BITS = 64


@dataclass(frozen=True, slots=True)
class Step:
    """One place where rows of a name can go."""

    destination: Destination
    model: str
    """The model name as the vendor gets it."""
    misnamed: str = ""
    """Why the local server does not take a row of this name; empty: it does, or the row goes elsewhere."""
    weight: int = 1

    @property
    def problem(self) -> str:
        """Why no row may go this way; empty: rows may."""
        return self.destination.unusable or self.misnamed

    @property
    def lane(self) -> LaneKey:
        return LaneKey(self.destination.vendor, self.destination.key_env, self.model)


@dataclass(frozen=True, slots=True)
class Route:
    steps: tuple[Step, ...]
    """In the order in which they are tried; all of them can be used, unless there is a `problem`."""
    name: str = ""
    """As it is configured; empty: the model's own name led here."""
    problem: str = ""
    """Why no row may go this way; empty: rows may."""

    def begins_with(self, number: int) -> Step:
        """The first choice of the row with this number: always the same one, and over many rows each by its weight."""
        steps = self.steps
        total = sum(step.weight for step in steps)
        if len(steps) == 1 or not total:
            return steps[0]
        point = ((number * GOLDEN) % (1 << SPREAD_BITS)) * total >> SPREAD_BITS
        for step in steps:
            point -= step.weight
            if point < 0:
                return step
        raise AssertionError("a point beyond the sum of the weights")


def find_route(model: str, destinations: Sequence[Destination], routes: Routes = NO_ROUTES) -> Route | None:
    """See the module's docstring. An empty model name takes the default destination."""
    for destination in destinations:
        if destination.protocol is VendorProtocol.SERVICE:
            step = Step(destination, model)
            return Route(steps=(step,), problem=step.problem)
    if model in routes:
        return _through_batches(_configured(model, routes[model], destinations), model, destinations)
    found = _find_step(model, destinations)
    if found is None:
        return None
    return _through_batches(Route(steps=(found,), problem=found.problem), model, destinations)


class RouteLanes:
    """The lanes of each route that has more than one, as texts, in order."""

    def __init__(self, routes: Routes, destinations: Sequence[Destination]) -> None:
        self._routes, self._destinations = routes, destinations
        self._every_name = any(each.protocol is VendorProtocol.BATCH and each.live_too for each in destinations)
        """Any model's name may be that of a route."""
        self._found: dict[str, tuple[str, ...] | None] = {}
        for name in routes:
            self.get(name)

    def __bool__(self) -> bool:
        return self._every_name or any(self._found.values())

    def get(self, name: str) -> tuple[str, ...] | None:
        """None: rows of this name can go nowhere else."""
        if name not in self._found and (name in self._routes or (name and self._every_name)):
            route = find_route(name, self._destinations, self._routes)
            lanes = tuple(dict.fromkeys(str(step.lane) for step in route.steps)) if route is not None else ()
            self._found[name] = lanes if len(lanes) > 1 else None
        return self._found.get(name)

    def known(self) -> list[tuple[str, ...]]:
        """Those that were asked for so far."""
        return [lanes for lanes in self._found.values() if lanes]


def _through_batches(route: Route, model: str, destinations: Sequence[Destination]) -> Route:
    """With the batch API of each of its vendors that has one here in front of it, or in its place."""
    apis = {each.batch_of: each for each in destinations if each.protocol is VendorProtocol.BATCH}
    if not apis or route.problem or not model:
        return route
    steps: list[Step] = []
    for step in route.steps:
        api = apis.get(step.destination.vendor)
        if api is not None:
            steps.append(Step(api, step.model, weight=step.weight))
        if api is None or api.live_too:
            steps.append(step if api is None else Step(step.destination, step.model, weight=0))
    name = route.name or (model if len(steps) > 1 else "")
    return Route(steps=tuple(steps), name=name, problem=next((step.problem for step in steps if step.problem), ""))


def _configured(name: str, choices: Sequence[RouteStep], destinations: Sequence[Destination]) -> Route:
    usable: list[Step] = []
    problems: list[str] = []
    for choice in choices:
        step = _step_at(choice.vendor, choice.model, destinations, weight=choice.weight)
        if step is None:
            problems.append(f"there is no vendor '{choice.vendor}' here")
        elif step.problem:
            problems.append(f"{choice.vendor}: {step.problem}")
        else:
            usable.append(step)
    return Route(steps=tuple(usable), name=name, problem="" if usable else "; ".join(dict.fromkeys(problems)))


def _find_step(model: str, destinations: Sequence[Destination]) -> Step | None:
    name, slash, rest = model.partition("/")
    if slash and rest:
        step = _step_at(name, rest, destinations)
        if step is not None:
            return step
    for destination in destinations:
        if any(fnmatchcase(model, pattern) for pattern in destination.models):
            return Step(destination, model)
    for destination in destinations:
        if not destination.models and destination.protocol not in (VendorProtocol.LOCAL, VendorProtocol.BATCH):
            return (
                Step(destination, model) if model != AUTO or destination.protocol is VendorProtocol.SIMULATED else None
            )
    return None


def _step_at(vendor: str, model: str, destinations: Sequence[Destination], *, weight: int = 1) -> Step | None:
    """This model at the vendor of this name; None: there is no such vendor."""
    for destination in destinations:
        if destination.vendor == vendor:
            return _named_step(destination, model, weight)
    return _named_step(LOCAL, model, weight) if vendor == LOCAL.vendor else None


def is_pattern(name: str) -> bool:
    """Whether this entry of a destination's `models` stands for several names, and so is none itself."""
    return not _PATTERN_SIGNS.isdisjoint(name)


def model_of_file(model_file: str) -> str:
    """What the local server's model is called: the file's name without its ending."""
    return PurePath(model_file).stem if model_file else DEFAULT_MODEL


def local_model(destinations: Sequence[Destination]) -> str:
    """The name, prefix and all, by which rows get the local server's model."""
    files = (destination.model_file for destination in destinations if destination.protocol is VendorProtocol.LOCAL)
    return f"{LOCAL.vendor}/{model_of_file(next(files, ''))}"


def _named_step(destination: Destination, model: str, weight: int) -> Step:
    # Rows made for the default model go to the file that somebody names for them: that is what naming one is for.
    if destination.protocol is not VendorProtocol.LOCAL or model in (
        model_of_file(destination.model_file),
        DEFAULT_MODEL,
    ):
        return Step(destination, model, weight=weight)
    there = local_model([destination])
    return Step(
        destination,
        model,
        weight=weight,
        misnamed=f"the local server has one model, {there}, not '{LOCAL.vendor}/{model[:100]}'; did you mean {there}? "
        "(--gguf FILE serves a model file of your own, under the file's name without its ending)",
    )


class Way(NamedTuple):
    """What of a route makes another run when it changes: who gets the row, where, and as which model. Not whose key."""

    vendor: str
    base_url: str
    protocol: VendorProtocol
    profile: str
    model_file: str
    model: str

    def __str__(self) -> str:
        """For people, without the model."""
        match self.protocol:
            case VendorProtocol.SIMULATED:
                return "the simulator"
            case VendorProtocol.LOCAL:
                return f"the local model {self.model_file}".rstrip()
            case VendorProtocol.OPENAI | VendorProtocol.ANTHROPIC | VendorProtocol.SERVICE | VendorProtocol.BATCH:
                # An address that was given without a name is called by its host: once is enough.
                named = f"{self.vendor} " if self.vendor != urlsplit(self.base_url).netloc.lower() else ""
                return f"{named}{self.base_url}" + (f" (profile {self.profile})" if self.profile else "")
            case _:
                assert_never(self.protocol)


class Directions(NamedTuple):
    """What decides which way rows go."""

    destinations: Sequence[Destination]
    routes: Routes


class Ways(NamedTuple):
    """Every way that rows of one model name may go."""

    choices: tuple[tuple[Way, int], ...]
    """In order, each with its weight."""

    def __str__(self) -> str:
        return " or ".join(dict.fromkeys(str(way) for way, _ in self.choices))


def find_ways(model: str, directions: Directions) -> Ways | None:
    """The ways of rows that name this model; None: they cannot be sent."""
    route = find_route(model, *directions)
    if route is None or route.problem:
        return None
    return Ways(tuple((_way(step), step.weight) for step in route.steps))


def _way(step: Step) -> Way:
    to = step.destination
    return Way(to.vendor, to.base_url, to.protocol, to.profile, to.model_file, step.model)


def lead_alike(before: Directions, now: Directions) -> bool:
    """Whether every model's rows surely go the same way under both, as far as can be told without asking for one."""
    alike = list(map(_without_key, before.destinations)) == list(map(_without_key, now.destinations))
    return alike and before.routes == now.routes


def _without_key(to: Destination) -> tuple[object, ...]:
    return to.vendor, to.base_url, to.protocol, to.profile, to.model_file, to.models, bool(to.unusable)
