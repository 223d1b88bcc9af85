"""A few of many by chance, in one pass, by a hash of seed and position: the same seed picks the same."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from hashlib import blake2b
from typing import Generic, TypeVar

T = TypeVar("T")


def chance_of(seed: int, position: int) -> int:
    """A number below 2**64 that looks drawn."""
    key = (seed % 2**64).to_bytes(8)
    return int.from_bytes(blake2b(position.to_bytes(8), key=key, digest_size=8).digest())


class Picking(Generic[T]):
    """Keeps `count` of what it is shown, each set of that size as likely as any other."""

    def __init__(self, count: int, seed: int) -> None:
        self._count, self._seed = count, seed
        self._kept: list[tuple[int, int, T]] = []
        """A heap: (-chance, position, what), the greatest chance on top."""

    def offer(self, position: int, what: T) -> None:
        chance = -chance_of(self._seed, position)
        if len(self._kept) < self._count:
            heapq.heappush(self._kept, (chance, position, what))
        elif chance > self._kept[0][0]:
            heapq.heapreplace(self._kept, (chance, position, what))

    def picked(self) -> list[T]:
        """In the order of their positions."""
        return [what for _, _, what in sorted(self._kept, key=lambda one: one[1])]


def pick_positions(count: int, total: int, seed: int) -> list[int]:
    """What `Picking` would keep of positions below `total`, ascending."""
    positions: Iterable[int] = range(total)
    if count >= total:
        return list(positions)
    return sorted(heapq.nsmallest(count, positions, key=lambda position: chance_of(seed, position)))
