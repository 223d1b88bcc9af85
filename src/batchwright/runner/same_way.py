"""Whether the rows of an input still go where they went in an earlier batch of the same identity.

Settings know vendors that no row of an input uses, and these must not make another run of it. Which models its rows
name is known from reading them alone; so they are read, once more, only where an earlier batch was made under other
destinations than there are now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from batchwright.core.routes import Directions, Ways, find_ways, lead_alike
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
    """The first model whose rows go another way, that way, and the one before, as texts; None: all go the same way."""
    for names in models:
        for name in sorted(names):
            was, is_now = find_ways(name, before), find_ways(name, now)
            if was != is_now:
                return name, _to(is_now), _to(was)
    return None


def directions_of(batch: BatchStatus) -> Directions:
    return Directions(batch.spec.destinations, batch.spec.routes)


def _to(ways: Ways | None) -> str:
    return f"to {ways}" if ways is not None else "nowhere"
