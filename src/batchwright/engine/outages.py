"""What a process tells of a database, an object store or a disk that it cannot use: a line when it begins, one each
half minute, one when it is over. Its worker, sweeper and the like all meet it, again and again, and each has other
words for the same; the first to meet it tells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from batchwright.core.errors import BatchwrightError, StoreAway
from batchwright.core.lane_wait import rough_duration

TELL_EVERY_S = 30.0
STORE = "the store"
"""What fails in any other way than being away."""


class Who(Enum):
    """Of a process, those that meet an outage or get through."""

    HEARTBEAT = auto()
    CHECKPOINT = auto()
    SWEEP = auto()
    INTAKE = auto()
    """Of uploaded files."""
    OUTBOX = auto()
    PAUSES = auto()
    """Whoever tells of what is paused."""


@dataclass(slots=True, kw_only=True)
class _Outage:
    since_s: float
    told_s: float
    met_by: set[Who] = field(default_factory=set)


class Outages:
    """Of one process. Moments are the loop's, in seconds. What each method returns is a line for the log; empty: none
    is due."""

    def __init__(self) -> None:
        self._present: dict[str, _Outage] = {}

    def met(self, who: Who, error: BatchwrightError, text: str, *, now_s: float, always: bool = False) -> str:
        """`text` is what to say of it; `always`: of this one that it says more than the others, once an outage."""
        awaited = error.awaited if isinstance(error, StoreAway) else STORE
        outage = self._present.get(awaited)
        if outage is None:
            self._present[awaited] = _Outage(since_s=now_s, told_s=now_s, met_by={who})
            return text
        new = who not in outage.met_by
        outage.met_by.add(who)
        if new and always:
            return text
        if now_s - outage.told_s < TELL_EVERY_S:
            return ""
        outage.told_s = now_s
        return f"{text} (so for {rough_duration(now_s - outage.since_s)} by now)"

    def passed(self, who: Who, now_s: float) -> str:
        """It got through: whatever it had met is over, for the others too."""
        over = [awaited for awaited, outage in self._present.items() if who in outage.met_by]
        lasted_s = max((now_s - self._present.pop(awaited).since_s for awaited in over), default=0.0)
        return f"{' and '.join(over)} is there again, after {rough_duration(lasted_s)}" if over else ""
