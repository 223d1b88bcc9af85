"""Which destination a row's model name goes to. Pure: the same names and destinations always give the same lane.

0. A batch service (protocol `service`) takes every row, under the name it has: it has routes of its own.
1. `NAME/rest`, where NAME is a destination's name, goes there and the vendor gets `rest` as the model: the prefix is
   ours, not the vendor's. (`meta-llama/Llama-3` is left whole unless a destination is called `meta-llama`.)
2. The first destination whose patterns match the whole name.
3. The first destination without patterns that may be chosen by default.
Otherwise the row is unroutable, and so it is where the destination that was found is unusable, and where `local/rest`
names another model than the local server has: it would answer whatever it is called, and a slip of the pen would show
nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import NamedTuple
from urllib.parse import urlsplit

from batchwright.core.batch_spec import Destination, LaneKey

LOCAL = Destination(vendor="local", base_url="", protocol="local")
"""Selected by the prefix `local/` alone, whatever else is configured."""
DEFAULT_MODEL = "smollm2"
"""What the local server's model is called where no file was given."""


@dataclass(frozen=True, slots=True)
class Route:
    destination: Destination
    model: str
    """The model name as the vendor gets it."""
    misnamed: str = ""
    """Why the local server does not take a row of this name; empty: it does, or the row goes elsewhere."""

    @property
    def problem(self) -> str:
        """Why no row may go this way; empty: rows may."""
        return self.destination.unusable or self.misnamed

    @property
    def lane(self) -> LaneKey:
        return LaneKey(self.destination.vendor, self.destination.key_env, self.model)


def find_route(model: str, destinations: Sequence[Destination]) -> Route | None:
    """See the module's docstring. An empty model name takes the default destination."""
    for destination in destinations:
        if destination.protocol == "service":
            return Route(destination, model)
    name, slash, rest = model.partition("/")
    if slash and rest:
        for destination in destinations:
            if destination.vendor == name:
                return _named_route(destination, rest)
        if name == LOCAL.vendor:
            return _named_route(LOCAL, rest)
    for destination in destinations:
        if any(fnmatchcase(model, pattern) for pattern in destination.models):
            return Route(destination, model)
    for destination in destinations:
        if not destination.models and destination.protocol != "local":
            return Route(destination, model)
    return None


def model_of_file(model_file: str) -> str:
    """What the local server's model is called: the file's name without its ending."""
    return PurePath(model_file).stem if model_file else DEFAULT_MODEL


def local_model(destinations: Sequence[Destination]) -> str:
    """The name, prefix and all, by which rows get the local server's model."""
    files = (destination.model_file for destination in destinations if destination.protocol == LOCAL.protocol)
    return f"{LOCAL.vendor}/{model_of_file(next(files, ''))}"


def _named_route(destination: Destination, model: str) -> Route:
    # Rows made for the default model go to the file that somebody names for them: that is what naming one is for.
    if destination.protocol != LOCAL.protocol or model in (model_of_file(destination.model_file), DEFAULT_MODEL):
        return Route(destination, model)
    there = local_model([destination])
    return Route(
        destination,
        model,
        f"the local server has one model, {there}, not '{LOCAL.vendor}/{model[:100]}'; did you mean {there}? "
        "(--gguf FILE serves a model file of your own, under the file's name without its ending)",
    )


class Way(NamedTuple):
    """What of a route makes another run when it changes: who gets the row, where, and as which model. Not whose key."""

    vendor: str
    base_url: str
    protocol: str
    profile: str
    model_file: str
    model: str

    def __str__(self) -> str:
        """For people, without the model."""
        match self.protocol:
            case "simulated":
                return "the simulator"
            case "local":
                return f"the local model {self.model_file}".rstrip()
            case _:
                # An address that was given without a name is called by its host: once is enough.
                named = f"{self.vendor} " if self.vendor != urlsplit(self.base_url).netloc.lower() else ""
                return f"{named}{self.base_url}" + (f" (profile {self.profile})" if self.profile else "")


def find_way(model: str, destinations: Sequence[Destination]) -> Way | None:
    """The way of rows that name this model; None: they cannot be sent."""
    route = find_route(model, destinations)
    if route is None or route.problem:
        return None
    to = route.destination
    return Way(to.vendor, to.base_url, to.protocol, to.profile, to.model_file, route.model)


def lead_alike(before: Sequence[Destination], now: Sequence[Destination]) -> bool:
    """Whether every model's rows surely go the same way under both, as far as can be told without asking for one."""
    return list(map(_without_key, before)) == list(map(_without_key, now))


def _without_key(to: Destination) -> tuple[object, ...]:
    return to.vendor, to.base_url, to.protocol, to.profile, to.model_file, to.models, bool(to.unusable)
