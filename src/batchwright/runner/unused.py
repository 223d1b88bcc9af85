"""An endpoint that was asked for by name and that no row goes to: told, since whoever named it expects otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from batchwright.core.batch_spec import Destination
from batchwright.runner.figures import count_text, plural

SHOWN = 3


def vendor_of(lane: str) -> str:
    """Of the text of a lane; empty for a row that goes nowhere."""
    return lane.partition("|")[0]


def unused_texts(rows_by_lane: Mapping[str, int], destinations: Sequence[Destination], asked_for: str) -> list[str]:
    """One text, or none where some row goes there or nothing was asked for. `asked_for`: the vendor's name. Keys of
    `rows_by_lane` may be lanes or vendors."""
    rows: Counter[str] = Counter()
    for lane, count in rows_by_lane.items():
        rows[vendor_of(lane)] += count
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
