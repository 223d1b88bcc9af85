"""Whether the rows of an input still go where they went in an earlier batch of the same identity.

Settings know vendors that no row of an input uses, and these must not make another run of it. Which models its rows
name is known from reading them alone; so they are read, once more, only where an earlier batch was made under other
destinations than there are now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from batchwright.core.batch_spec import Destination
from batchwright.core.routes import Way, find_way, lead_alike
from batchwright.ports.batches import BatchStatus
from batchwright.runner.interrupts import Interrupted
from batchwright.runner.source import Source

Stopped = Callable[[], bool]


def going_the_same_way(
    earlier: Sequence[BatchStatus], now: Sequence[Destination], source: Source, stopped: Stopped
) -> list[BatchStatus]:
    """Those of the earlier batches, in their order. Blocks while it reads. Raises InputRefused where the input cannot
    be read, and Interrupted."""
    others = {batch.batch_id: batch for batch in earlier if not lead_alike(batch.spec.destinations, now)}
    left = dict(others)
    for names in source.models() if left else ():
        if stopped():
            raise Interrupted
        for batch_id, batch in list(left.items()):
            if first_difference([names], batch.spec.destinations, now):
                del left[batch_id]
        if not left:
            break
    return [batch for batch in earlier if batch.batch_id not in others or batch.batch_id in left]


def first_difference(
    models: Iterable[set[str]], before: Sequence[Destination], now: Sequence[Destination]
) -> tuple[str, str, str] | None:
    """The first model whose rows go another way, that way, and the one before, as texts; None: all go the same way."""
    for names in models:
        for name in sorted(names):
            was, is_now = find_way(name, before), find_way(name, now)
            if was != is_now:
                return name, _to(is_now), _to(was)
    return None


def _to(way: Way | None) -> str:
    return f"to {way}" if way is not None else "nowhere"
