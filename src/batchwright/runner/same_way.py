"""Whether the rows of an input still go where they went in an earlier batch of the same identity.

Settings know vendors that no row of an input uses, and these must not make another run of it. Which models its rows
name is known from reading them alone; so they are read, once more, only where an earlier batch was made under other
destinations than there are now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

from batchwright.core.routes import Directions, Way, Ways, find_ways, lead_alike
from batchwright.ports.batches import BatchStatus
from batchwright.runner.interrupts import Interrupted
from batchwright.runner.source import Source

Stopped = Callable[[], bool]


def going_the_same_way(
    earlier: Sequence[BatchStatus], now: Directions, source: Source, stopped: Stopped
) -> list[BatchStatus]:
    """Those of the earlier batches, in their order. Blocks while it reads. Raises InputRefused where the input cannot
    be read, and Interrupted."""
    others = {batch.batch_id: batch for batch in earlier if not lead_alike(directions_of(batch), now)}
    left = dict(others)
    for names in source.models() if left else ():
        if stopped():
            raise Interrupted
        for batch_id, batch in list(left.items()):
            if first_difference([names], directions_of(batch), now):
                del left[batch_id]
        if not left:
            break
    return [batch for batch in earlier if batch.batch_id not in others or batch.batch_id in left]


def first_difference(models: Iterable[set[str]], before: Directions, now: Directions) -> tuple[str, str, str] | None:
    """The first model whose rows go another way, and that way and the one before, of which what differs is told, as
    texts (empty: there is none); None: all go the same way."""
    for names in models:
        for name in sorted(names):
            was, is_now = find_ways(name, before), find_ways(name, now)
            if was != is_now:
                return name, *_what_differs(is_now, was)
    return None


def directions_of(batch: BatchStatus) -> Directions:
    return Directions(batch.spec.destinations, batch.spec.routes)


def _what_differs(now: Ways | None, was: Ways | None) -> tuple[str, str]:
    """Never the same text twice. Choices of a route are told by their numbers, those that are as they were left out."""
    if now is None or was is None or (len(now.choices) == len(was.choices) == 1 and str(now) != str(was)):
        return _to(now), _to(was)
    pairs = list(zip_longest(now.choices, was.choices))
    changed = [number for number, (one, other) in enumerate(pairs) if one != other]
    is_route = len(pairs) > 1
    weighted = any(one and other and one[0] == other[0] for one, other in (pairs[number] for number in changed))
    texts = [
        " and ".join(
            _choice_text(pairs[number][side], number + 1 if is_route else 0, weighted=weighted) for number in changed
        )
        for side in (0, 1)
    ]
    return f"to {texts[0]}", f"to {texts[1]}"


def _choice_text(choice: tuple[Way, int] | None, number: int, *, weighted: bool) -> str:
    """`number`: which choice of its route it is; 0: it is the only one."""
    if choice is None:
        return f"no choice {number}"
    way, weight = choice
    text = f"{way.model} at {way}" + (f" with weight {weight}" if weighted else "")
    return f"{text} as choice {number}" if number else text


def _to(ways: Ways | None) -> str:
    return f"to {ways}" if ways is not None else ""
