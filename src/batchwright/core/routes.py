"""Which destination a row's model name goes to. Pure: the same names and destinations always give the same lane.

1. `NAME/rest`, where NAME is a destination's name, goes there and the vendor gets `rest` as the model: the prefix is
   ours, not the vendor's. (`meta-llama/Llama-3` is left whole unless a destination is called `meta-llama`.)
2. The first destination whose patterns match the whole name.
3. The first destination without patterns that may be chosen by default.
Otherwise the row is unroutable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from batchwright.core.batch_spec import Destination, LaneKey

LOCAL = Destination(vendor="local", base_url="", protocol="local")
"""Selected by the prefix `local/` alone, whatever else is configured."""


@dataclass(frozen=True, slots=True)
class Route:
    destination: Destination
    model: str
    """The model name as the vendor gets it."""

    @property
    def lane(self) -> LaneKey:
        return LaneKey(self.destination.vendor, self.destination.key_env, self.model)


def find_route(model: str, destinations: Sequence[Destination]) -> Route | None:
    """See the module's docstring. An empty model name takes the default destination."""
    name, slash, rest = model.partition("/")
    if slash and rest:
        for destination in destinations:
            if destination.vendor == name:
                return Route(destination, rest)
        if name == LOCAL.vendor:
            return Route(LOCAL, rest)
    for destination in destinations:
        if any(fnmatchcase(model, pattern) for pattern in destination.models):
            return Route(destination, model)
    for destination in destinations:
        if not destination.models and destination.protocol != "local":
            return Route(destination, model)
    return None
