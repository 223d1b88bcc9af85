"""What a worker is told: times, windows and bounds, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1024 * 1024

RESERVE_MIN = 32
"""Rows reserved ahead of a lane that is slow or new; twice its limit where that is less. After a crash every one of
them is in doubt."""
RESERVE_MAX_PER_SEGMENT = 256
"""At one checkpoint, for one lane. A whole segment reserved at once over-reports doubt after a crash; below 64 sending
starves between checkpoints. Rows that are out already do not count: with them a fast lane would need a segment for each
256."""
CHECKPOINT_RECORD_BYTES = 8 * MIB
"""Answers in one transaction; a single larger answer goes alone."""
OPEN_SEGMENTS_MAX = 384
"""Segments held at once; beyond it those whose rows all wait are parked."""
CLAIM_MIN = 2
CLAIM_MAX = 16
"""Segments that one checkpoint asks for, as many as the rows fill that its desks could use. More would make others wait
for the transaction; two are enough where checkpoints come quickly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """Limits of a lane as somebody set them; 0 everywhere: not set."""

    concurrency: int = 0
    rpm: float = 0.0
    tpm: float = 0.0
    timeout_s: float = 0.0

    def over(self, other: LaneLimits) -> LaneLimits:
        """What is set here, and `other`'s where it is not."""
        return LaneLimits(
            concurrency=self.concurrency or other.concurrency,
            rpm=self.rpm or other.rpm,
            tpm=self.tpm or other.tpm,
            timeout_s=self.timeout_s or other.timeout_s,
        )

    def beside(self, other: LaneLimits, *, concurrency: int) -> LaneLimits:
        """What keeps to both; `concurrency` stands for one that is not set. An attempt has the longer of both times."""
        unset = not (self.concurrency or other.concurrency)
        return LaneLimits(
            concurrency=0 if unset else min(self.concurrency or concurrency, other.concurrency or concurrency),
            rpm=min(self.rpm or other.rpm, other.rpm or self.rpm),
            tpm=min(self.tpm or other.tpm, other.tpm or self.tpm),
            timeout_s=max(self.timeout_s, other.timeout_s) if self.timeout_s and other.timeout_s else 0.0,
        )


NO_LIMITS = LaneLimits()
ANY_VENDOR = ""
"""Among limits by vendor: those of lanes for which nothing else sets one."""


def limits_of(vendor: str, by_vendor: Mapping[str, LaneLimits]) -> LaneLimits:
    """What the settings say of a vendor's lanes."""
    return by_vendor.get(vendor, NO_LIMITS).over(by_vendor.get(ANY_VENDOR, NO_LIMITS))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    lease_s: float = 30.0
    heartbeat_s: float = 5.0
    grace_s: float = 30.0
    """After a stop or a cancel: how long rows in flight may finish (they are paid for)."""
    deadline_grace_s: float = 5.0
    checkpoint_s: float = 0.02
    """Least time between two checkpoints; three times the last commit's duration where that is longer."""
    idle_poll_s: float = 1.0
    """How often an idle worker looks for claimable segments when no other process wakes it."""
    wake_poll_s: float = 0.05
    """How often an idle worker looks whether another process has committed something."""
    lane_probe_s: float = 300.0
    """How often one row probes a lane that is paused for good (`work` only)."""
    concurrency_start: int = 16
    concurrency: int = 256
    """Ceiling of rows in flight a lane, unless something below asks for another."""
    asked: LaneLimits = LaneLimits()
    """What this process was told (`run --rpm`); goes before what a batch was submitted with."""
    vendor_limits: Mapping[str, LaneLimits] = field(default_factory=dict)
    """By vendor and for ANY_VENDOR, from the settings; what a batch was submitted with goes before it."""
    input_bytes_max: int = 144 * MIB
    """Bodies of open segments, as they are held: 96 MiB for one vendor alone, 64 for one lane (`engine.room`)."""
    flight_bytes_max: int = 96 * MIB
    """Bodies at vendors; two thirds of it for one lane alone."""
    answer_bytes_max: int = 64 * MIB
    """Answers that are not yet durable."""
