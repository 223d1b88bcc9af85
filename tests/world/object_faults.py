"""What can befall an object store, beside what every world meets, and when it does: chosen by the seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random


class ObjectFault(StrEnum):
    PUT_LATE = "put, answered late"
    PUT_TWICE = "put, arrives again later"
    PUT_REPLY_LOST = "put, reply lost"
    PUT_LANDS_LATER = "put given up, arrives later"
    PUT_AWAY = "put not answered, never arrives"
    CRASH_AFTER_PUT = "crash between a put and the commit that names it"
    GET_LATE = "read, answered late"
    GET_AWAY = "read not answered"
    GET_MISSING = "object not found for a while"
    LIST_LATE = "listing answered late"
    LIST_AWAY = "listing not answered"
    LIST_STALE = "listing lacks what came last and shows what is gone"
    DELETE_LATE = "deleted, answered late"
    DELETE_REPLY_LOST = "deleted, reply lost"
    DELETE_AWAY = "delete not answered"
    OUTAGE = "object store away for a while"


PUTS = (
    ObjectFault.PUT_LATE,
    ObjectFault.PUT_TWICE,
    ObjectFault.PUT_REPLY_LOST,
    ObjectFault.PUT_LANDS_LATER,
    ObjectFault.PUT_AWAY,
    ObjectFault.CRASH_AFTER_PUT,
)
GETS = (ObjectFault.GET_LATE, ObjectFault.GET_AWAY, ObjectFault.GET_MISSING)
LISTS = (ObjectFault.LIST_LATE, ObjectFault.LIST_AWAY, ObjectFault.LIST_STALE)
DELETES = (ObjectFault.DELETE_LATE, ObjectFault.DELETE_REPLY_LOST, ObjectFault.DELETE_AWAY)


@dataclass(frozen=True, kw_only=True)
class ObjectPlan:
    rate: float
    """Chance of a fault at one request."""
    late_s: tuple[float, float]
    """How late an answer or a put is that is late; often past a lease."""
    outages: tuple[tuple[float, float], ...]
    """(when, for how long), in seconds from the begin."""
    bounds: dict[str, int]
    """Bounds of the product, by the names in `object_world.BOUNDS`."""
    keep_superseded_ms: int


def make_object_plan(seed: int, trouble_until_s: float, lease_s: float) -> ObjectPlan:
    chance = Random(seed * 32_452_843 + 11)
    return ObjectPlan(
        rate=chance.choice((0.02, 0.08, 0.2)),
        late_s=(0.2, lease_s * chance.choice((0.3, 1.5, 2.5))),
        outages=tuple(
            (chance.uniform(1.0, trouble_until_s), chance.choice((0.5, 4.0, 20.0)))
            for _ in range(chance.choice((0, 0, 1, 2)))
        ),
        bounds={
            "inline_bytes": chance.choice((1, 400, 64 * 1024)),
            "whole_bytes": chance.choice((1, 1024 * 1024)),
            "cache_bytes": chance.choice((0, 500, 16 * 1024 * 1024)),
            "listed_every_ms": chance.choice((4_000, 20_000)),
        },
        keep_superseded_ms=chance.choice((1_000, 3_600_000)),
    )
