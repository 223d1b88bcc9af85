"""Rows that go to an endpoint without the name of a model (most endpoints refuse those, servers of one model do not),
or without its key, for which they would wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from batchwright.core.batch_spec import Destination, LaneKey
from batchwright.runner.figures import plural


def names_no_model(lane: str) -> bool:
    """Of the text of a lane, which ends with the model's name; empty for a row that goes nowhere."""
    return lane.endswith("|")


def no_model_texts(rows_by_lane: Mapping[str, int], destinations: Sequence[Destination]) -> list[str]:
    """What to tell before the first request, a text an endpoint. The local model and the simulator need no name."""
    addresses = {each.vendor: each.base_url for each in destinations}
    texts = []
    for lane, rows in rows_by_lane.items():
        address = addresses.get(LaneKey.parse(lane).vendor) if names_no_model(lane) else ""
        if address:
            verb = "names" if rows == 1 else "name"
            texts.append(
                f"{plural(rows, 'row')} {verb} no model and -m gives none; {address} gets none and may refuse that."
            )
    return texts


def no_key_texts(rows_by_lane: Mapping[str, int], key: Callable[[str], str]) -> list[str]:
    """Of a file that is only looked at, a text a variable. `key`: its value, empty where it is not set."""
    waiting: Counter[tuple[str, str]] = Counter()
    for lane, rows in rows_by_lane.items():
        account = LaneKey.parse(lane).account if "|" in lane else ""
        if account and not key(account):
            waiting[LaneKey.parse(lane).vendor, account] += rows
    return [
        f"The variable {account} with the key for {vendor} is not set here: {plural(rows, 'row')} would wait for it."
        for (vendor, account), rows in waiting.items()
    ]
