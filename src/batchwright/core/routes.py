"""Which way a row's model name goes. Pure: the same names, destinations and routes always give the same lanes.

0. A batch service (protocol `service`) takes every row, under the name it has: it has routes of its own.
1. The name of a route: the choices it stands for, in their order (`Route.steps`). A row begins with one of them and
   goes on to the others where that one cannot take it (`engine.failover`).
2. `NAME/rest`, where NAME is a destination's name, goes there and the vendor gets `rest` as the model: the prefix is
   ours, not the vendor's. (`meta-llama/Llama-3` is left whole unless a destination is called `meta-llama`.)
3. The first destination whose patterns match the whole name.
4. The first destination without patterns that may be chosen by default; but not for `auto`, which is nobody's model:
   it means what a route of that name says.
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
        return _configured(model, routes[model], destinations)
    found = _find_step(model, destinations)
    return None if found is None else Route(steps=(found,), problem=found.problem)


def lanes_of_routes(routes: Routes, destinations: Sequence[Destination]) -> dict[str, tuple[str, ...]]:
    """By route: the texts of its lanes, in order. Routes with one lane are left out: their rows can go nowhere else."""
    lanes: dict[str, tuple[str, ...]] = {}
    for name, steps in routes.items():
        found = tuple(dict.fromkeys(str(step.lane) for step in _configured(name, steps, destinations).steps))
        if len(found) > 1:
            lanes[name] = found
    return lanes


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
        if not destination.models and destination.protocol is not VendorProtocol.LOCAL:
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
            case VendorProtocol.OPENAI | VendorProtocol.ANTHROPIC | VendorProtocol.SERVICE:
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
