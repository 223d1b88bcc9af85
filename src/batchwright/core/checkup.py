"""What `batchwright check` says of the things that it looked at, and what is to be said of routes and of the clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from batchwright.core.routes import Directions, find_route, is_pattern

MAX_SKEW_S = 60.0
"""A Date header says seconds, and an answer takes some; a wait "until 12:00:00" or a certificate minds a minute."""
Named = Mapping[str, Sequence[str]]
"""By a vendor's name: the models, as it gets them, that the settings name."""


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """Rows may well go through; something could not be verified, or will be missed later (a price)."""
    ERROR = "error"
    """Rows that go this way fail, or wait for somebody to mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    verdict: Verdict
    subject: str
    """What was looked at: `vendor house`, `route fast`, `state folder`."""
    found: str
    """Of a vendor: with its own words, bounded, and never with a key."""
    expected: str = ""
    remedy: str = ""
    """What to do; may have several lines. Empty where nothing is to be done."""


def passed(subject: str, found: str) -> Checked:
    return Checked(verdict=Verdict.OK, subject=subject, found=found)


def failed(subject: str, found: str, expected: str, *, remedy: str) -> Checked:
    return Checked(verdict=Verdict.ERROR, subject=subject, found=found, expected=expected, remedy=remedy)


def warned(subject: str, found: str, expected: str, *, remedy: str) -> Checked:
    return Checked(verdict=Verdict.WARNING, subject=subject, found=found, expected=expected, remedy=remedy)


def named_models(directions: Directions, model: str) -> Named:
    """Those that routes, the default model (empty: there is none) and the vendors' own lists name."""
    destinations, routes = directions
    named: dict[str, dict[str, None]] = {}
    for name in (*routes, *([model] if model else [])):
        route = find_route(name, destinations, routes)
        for step in route.steps if route is not None and not route.problem else ():
            named.setdefault(step.destination.vendor, {})[step.model] = None
    for place in destinations:
        for name in place.models:
            if not is_pattern(name):
                named.setdefault(place.vendor, {})[name] = None
    return {vendor: tuple(models) for vendor, models in named.items()}


def judge_routes(directions: Directions, model: str) -> list[Checked]:
    """What the routes and the default model (empty: there is none) lead to."""
    findings = [_judge_route(f"route {name}", name, directions) for name in directions.routes]
    if model and model not in directions.routes:
        findings.append(_judge_route("default model", model, directions))
    return findings


def _judge_route(subject: str, name: str, directions: Directions) -> Checked:
    destinations, routes = directions
    route = find_route(name, destinations, routes)
    if route is None:
        known = ", ".join(place.vendor for place in destinations) or "(none)"
        return failed(
            subject,
            f"{name!r} leads nowhere",
            f"a model that one of these takes: {known}",
            remedy="Name it as VENDOR/MODEL, or add it to a vendor's `models`",
        )
    if route.problem:
        found, told = route.problem, ""
        for place in destinations:
            if place.unusable and place.unusable in found:
                told = "See what is said of its vendors"
                cannot = f"{place.vendor} cannot be used"
                found = found.replace(f"{place.vendor}: {place.unusable}", cannot).replace(place.unusable, cannot)
        return failed(subject, f"{name!r} leads nowhere: {found}", "a vendor that can be used", remedy=told)
    found = "leads to " + ", then ".join(f"{step.destination.vendor}/{step.model}" for step in route.steps)
    choices = routes.get(name, ())
    if len(choices) > len(route.steps):
        usable = {(step.destination.vendor, step.model) for step in route.steps}
        left = [f"{each.vendor}/{each.model}" for each in choices if (each.vendor, each.model) not in usable]
        return warned(
            subject,
            f"{found}; {len(left)} of its {len(choices)} choices cannot be used: {', '.join(left)}",
            "every choice to be usable",
            remedy="See what is said of its vendors",
        )
    return passed(subject, found)


def judge_clock(skews_s: Sequence[float]) -> list[Checked]:
    """`skews_s`: by how much this machine's clock is ahead of each vendor's that said the time."""
    if not skews_s:
        return []
    # The vendor that agrees best: one of them may be wrong itself.
    skew_s = min(skews_s, key=abs)
    if abs(skew_s) <= MAX_SKEW_S:
        return [passed("clock", f"agrees with a vendor's within {MAX_SKEW_S:g} s")]
    way = "ahead of" if skew_s > 0 else "behind"
    return [
        warned(
            "clock",
            f"this machine's is {abs(skew_s):,.0f} s {way} the vendors'",
            f"at most {MAX_SKEW_S:g} s",
            remedy="Set the clock (NTP): waits that vendors give as dates, and certificates, go by it",
        )
    ]
