"""Where the rows of a model name go, or why they go nowhere: `core.routes`, looked up once a name."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from batchwright.core.batch_spec import Destination, Routes
from batchwright.core.routes import AUTO, NO_ROUTES, Route, Step, find_route, local_model
from batchwright.wire.problems import Problem

MAX_MODELS = 10_000
"""Remembered; a file with more distinct names only pays for looking again."""

NO_AUTO = (
    "the row names the model 'auto', and nothing says what that means here: give a default model (-m MODEL, or model = "
    '"MODEL" in batchwright.toml) or a route: [routes.auto] with to = ["VENDOR/MODEL"]'
)


class Target(msgspec.Struct, gc=False):
    lane: str
    """The text of a `LaneKey`."""
    model: str
    """As the vendor gets it."""
    prefix: str
    """What was taken off the row's name; empty where nothing was."""
    route: str
    """The row's name, where it is a route's; empty elsewhere."""


class Targets:
    """The destinations of one file's rows. An empty model name is that of rows that name none."""

    def __init__(self, destinations: Sequence[Destination], routes: Routes = NO_ROUTES) -> None:
        self._destinations = destinations
        self._routes = routes
        self._found: dict[str, Target | None] = {}
        self._spread: dict[str, Route] = {}
        """Routes whose rows do not all begin with the same choice."""

    def find(self, model: str, number: int) -> Target | None:
        """The first choice of the row of that name and number. None: no row of this name can be sent; `unroutable`
        says why."""
        try:
            return self._found[model]
        except KeyError:
            pass
        if model in self._spread:
            return _target(self._spread[model].begins_with(number), model, route=model)
        route = find_route(model, self._destinations, self._routes)
        target = None
        if route is not None and not route.problem:
            target = _target(route.begins_with(number), model, route=route.name)
            if sum(step.weight > 0 for step in route.steps) > 1 and route.name:
                self._spread[model] = route
                return target
        if len(self._found) >= MAX_MODELS:
            self._found.clear()
        self._found[model] = target
        return target

    def unroutable(self, model: str) -> Problem:
        destinations = self._destinations
        route = find_route(model, destinations, self._routes)
        if route is not None:
            return Problem("unroutable", _why(route, model), "body.model")
        if model == AUTO:
            return Problem("unroutable", NO_AUTO, "body.model")
        named = f"no configured vendor serves the model '{model[:100]}'" if model else "the row names no model"
        vendors = [
            destination.vendor + (f" ({', '.join(destination.models[:5])})" if destination.models else "")
            for destination in destinations[:20]
        ]
        listed = f"configured: {', '.join(vendors)}" if vendors else "no endpoint can be used"
        return Problem(
            "unroutable",
            # Asked through a service, "local" is where that runs, not where this is read.
            f"{named}; {listed}. The local model is called {local_model(destinations)}",
            "body.model",
        )


def _target(step: Step, model: str, *, route: str) -> Target:
    prefix = "" if route else model[: len(model) - len(step.model)]
    return Target(str(step.lane), step.model, prefix, route)


def _why(route: Route, model: str) -> str:
    """Why a row of this name cannot be sent, although its way is known."""
    if route.name:
        return f"the route '{model[:100]}' leads nowhere: {route.problem}"
    destination = route.steps[0].destination
    if not destination.unusable:
        return route.problem
    rows = f"rows of the model '{model[:100]}'" if model else "rows that name no model"
    return f"{rows} go to '{destination.vendor}', and nothing can be sent there: {destination.unusable}"
