"""Routes of the settings files: `[routes.NAME]`, a model name of ours and the choices it stands for.

    [routes.fast]
    to = ["groq/llama-3.1-8b", "openai/gpt-4o-mini"]     # vendor/model, in the order in which they are tried
    weights = [3, 1]                                     # optional: the shares of rows that begin with each

`auto` is a route like any other; where none is configured, it means the default model.

Where the command line, or `vendor`, sends every row to one place, a route keeps only its choices there, and one without
any is no route: its name is a model's name like others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from batchwright.core.batch_spec import Destination, Routes, RouteStep
from batchwright.core.errors import UsageError
from batchwright.core.routes import AUTO, find_route
from batchwright.settings.values import VENDOR_NAME

ROUTE_SETTINGS = ("to", "weights")
"""What a table `[routes.NAME]` may hold. `to` must be there."""
MAX_CHOICES = 32
MAX_WEIGHT = 1_000_000
MAX_NAME_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEntry:
    """One table `[routes.NAME]`, checked but for the vendors' names. The project file's hides the user file's."""

    where: str
    """The file and the table, for people."""
    steps: tuple[RouteStep, ...]


def read_route(name: str, table: object, where: str) -> RouteEntry:
    """Raises ValueError with a sentence that begins in the middle."""
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise ValueError(f"expected a model name of 1 to {MAX_NAME_CHARS} characters as the route's name")
    if not isinstance(table, dict):
        raise ValueError(f'expected a table with to = ["VENDOR/MODEL"], found {table!r}')
    for key in table:
        if key not in ROUTE_SETTINGS:
            raise ValueError(f"{key} is no setting of a route; there are: {', '.join(ROUTE_SETTINGS)}")
    choices = _read_choices(table.get("to"))
    weights = _read_weights(table["weights"], len(choices)) if "weights" in table else [1] + [0] * (len(choices) - 1)
    steps = tuple(
        RouteStep(vendor=vendor, model=model, weight=weight)
        for (vendor, model), weight in zip(choices, weights, strict=True)
    )
    return RouteEntry(where=where, steps=steps)


def _read_choices(value: object) -> list[tuple[str, str]]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_CHOICES:
        raise ValueError(f'to: expected a list of 1 to {MAX_CHOICES} "VENDOR/MODEL", found {value!r}')
    choices = []
    for text in value:
        vendor, slash, model = text.partition("/") if isinstance(text, str) else ("", "", "")
        if not (slash and model and VENDOR_NAME.fullmatch(vendor.replace(":", "-"))) or "\n" in model:
            raise ValueError(f'to: expected "VENDOR/MODEL" such as "groq/llama-3.1-8b-instant", found {text!r}')
        if (vendor, model) in choices:
            raise ValueError(f"to: {text!r} stands there twice")
        choices.append((vendor, model))
    return choices


def _read_weights(value: object, count: int) -> list[int]:
    if (
        not isinstance(value, list)
        or len(value) != count
        or not all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= MAX_WEIGHT for each in value)
        or not any(value)
    ):
        raise ValueError(
            f"weights: expected {count} whole numbers, one for each choice and not all of them 0, found {value!r}"
        )
    return list(value)


def named_routes(of_layers: Iterable[Mapping[str, RouteEntry]]) -> dict[str, RouteEntry]:
    """By name, the project file's before the user file's."""
    found: dict[str, RouteEntry] = {}
    for routes in of_layers:
        for name, entry in routes.items():
            found.setdefault(name, entry)
    return found


def check_vendors(entries: Mapping[str, RouteEntry], known: Collection[str]) -> None:
    """`known`: every vendor that rows could go to here. Raises UsageError for a slip of the pen, whatever rows name."""
    for entry in entries.values():
        for step in entry.steps:
            if step.vendor not in known:
                raise UsageError(
                    f"{entry.where}: there is no vendor {step.vendor!r}; there are: {', '.join(sorted(known))}"
                )


def routes_here(entries: Mapping[str, RouteEntry], *, only: Collection[str]) -> Routes:
    """`only`: the one place (its names) that every row is sent to; empty: rows go where they say."""
    if not only:
        return {name: entry.steps for name, entry in entries.items()}
    kept = {name: tuple(step for step in entry.steps if step.vendor in only) for name, entry in entries.items()}
    return {name: steps for name, steps in kept.items() if steps}


def with_auto(routes: Routes, model: str, destinations: Sequence[Destination]) -> Routes:
    """With `auto` as another name of the default model, unless it is configured, or there is none."""
    if AUTO in routes or not model or model == AUTO:
        return routes
    if model in routes:
        return {**routes, AUTO: routes[model]}
    route = find_route(model, destinations)
    if route is None:
        return routes
    step = route.steps[0]
    return {**routes, AUTO: (RouteStep(vendor=step.destination.vendor, model=step.model, weight=1),)}
