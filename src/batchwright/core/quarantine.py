"""A lane that a person has closed: nothing is sent there, by any worker and for no probe, until a person opens it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from batchwright.core.batch_spec import LaneKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    vendor: str
    model: str
    """As the vendor gets it; empty: all of its models."""
    reason: str
    """A person's; may be empty."""
    since_ms: int

    @property
    def name(self) -> str:
        """As a person writes it."""
        return f"{self.vendor}/{self.model}" if self.model else self.vendor

    @property
    def sentence(self) -> str:
        because = f": {self.reason}" if self.reason else ""
        return f"quarantined{because}; `batchwright lanes resume {self.name}` lifts it"

    def covers(self, key: LaneKey) -> bool:
        return self.vendor == key.vendor and self.model in ("", key.model)


def covering(quarantines: Iterable[Quarantine], key: LaneKey) -> Quarantine | None:
    """The first that closes this lane."""
    return next((quarantine for quarantine in quarantines if quarantine.covers(key)), None)
