"""Where the rows of a model name go, or why they go nowhere: `core.routes`, looked up once a name."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from batchwright.core.batch_spec import Destination
from batchwright.core.routes import find_route, local_model
from batchwright.wire.row_checks import Problem

MAX_MODELS = 10_000
"""Remembered; a file with more distinct names only pays for looking again."""


class Target(msgspec.Struct, gc=False):
    lane: str
    """The text of a `LaneKey`."""
    model: str
    """As the vendor gets it."""
    prefix: str
    """What was taken off the row's name; empty where nothing was."""


class Targets:
    """The destinations of one file's rows. An empty model name is that of rows that name none."""

    def __init__(self, destinations: Sequence[Destination]) -> None:
        self._destinations = destinations
        self._found: dict[str, Target | None] = {}

    def find(self, model: str) -> Target | None:
        """None: no row of this name can be sent; `unroutable` says why."""
        try:
            return self._found[model]
        except KeyError:
            pass
        route = find_route(model, self._destinations)
        target = None
        if route is not None and not route.problem:
            target = Target(str(route.lane), route.model, model[: len(model) - len(route.model)])
        if len(self._found) >= MAX_MODELS:
            self._found.clear()
        self._found[model] = target
        return target

    def unroutable(self, model: str) -> Problem:
        destinations = self._destinations
        route = find_route(model, destinations)
        if route is not None and not route.destination.unusable:
            return Problem("unroutable", route.problem, "body.model")
        if route is not None:
            rows = f"rows of the model '{model[:100]}'" if model else "rows that name no model"
            text = f"{rows} go to '{route.destination.vendor}', and nothing can be sent there: "
            return Problem("unroutable", text + route.destination.unusable, "body.model")
        named = f"no configured vendor serves the model '{model[:100]}'" if model else "the row names no model"
        vendors = [
            destination.vendor + (f" ({', '.join(destination.models[:5])})" if destination.models else "")
            for destination in destinations[:20]
        ]
        listed = f"configured: {', '.join(vendors)}" if vendors else "no endpoint can be used"
        return Problem(
            "unroutable", f"{named}; {listed}. The local server's model is {local_model(destinations)}", "body.model"
        )
