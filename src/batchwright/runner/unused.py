"""Where rows do not go although somebody expects it: an endpoint that was asked for by name, a choice of a route."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from batchwright.core.batch_spec import Destination
from batchwright.core.routes import Directions
from batchwright.runner.figures import count_text, plural

SHOWN = 3


def vendor_of(lane: str) -> str:
    """Of the text of a lane; empty for a row that goes nowhere."""
    return lane.partition("|")[0]


def unused_texts(rows_by_lane: Mapping[str, int], destinations: Sequence[Destination], asked_for: str) -> list[str]:
    """One text, or none where some row goes there or nothing was asked for. `asked_for`: the vendor's name. Keys of
    `rows_by_lane` may be lanes or vendors."""
    apis = {each.vendor: each.batch_of for each in destinations if each.batch_of}
    rows: Counter[str] = Counter()
    for lane, count in rows_by_lane.items():
        rows[apis.get(vendor_of(lane), vendor_of(lane))] += count
    sent = sum(count for vendor, count in rows.items() if vendor)
    if not asked_for or rows[asked_for] or not sent:
        return []
    address = next((each.base_url for each in destinations if each.vendor == asked_for), "") or asked_for
    others = [(vendor, count) for vendor, count in rows.most_common() if vendor]
    there = ", ".join(f"{count_text(count)} to {vendor}" for vendor, count in others[:SHOWN])
    more = f" and {plural(len(others) - SHOWN, 'more vendor')}" if len(others) > SHOWN else ""
    go = "goes" if sent == 1 else "go"
    return [
        f"0 of {plural(sent, 'row')} {go} to {address}: their models name where they go ({there}{more}). To send them "
        f"there all the same, name them {asked_for}/MODEL."
    ]


def short_routes_texts(rows_by_lane: Mapping[str, int], directions: Directions) -> list[str]:
    """A text for each route that rows may have taken and that lacks a choice: they go to the others. Keys of
    `rows_by_lane` may be lanes or vendors."""
    apis = {place.vendor: place.batch_of for place in directions.destinations if place.batch_of}
    vendors = {apis.get(vendor_of(lane), vendor_of(lane)) for lane in rows_by_lane}
    unusable = {place.vendor: place.unusable for place in directions.destinations if place.unusable}
    texts = []
    for name, steps in directions.routes.items():
        lacking = [step for step in steps if step.vendor in unusable]
        if lacking and any(step.vendor in vendors for step in steps if step not in lacking):
            left = "; ".join(f"{step.vendor}/{step.model}: {unusable[step.vendor]}" for step in lacking)
            of = f"{len(lacking)} of its {len(steps)} choices"
            texts.append(f"The route {name} goes without {of}: {left}.")
    return texts
