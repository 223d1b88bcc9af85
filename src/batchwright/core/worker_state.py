"""How a worker is, as it tells with its heartbeat to whoever looks on."""

from __future__ import annotations

import msgspec


class WorkerState(msgspec.Struct, frozen=True, array_like=True):
    """Moments are milliseconds since the epoch."""

    in_flight: int = 0
    """Rows at vendors."""
    rows_per_minute: float = 0.0
    """Answers, durable or not, over the last seconds."""
    checkpoint_ms: int = 0
    """When its last checkpoint landed; 0: none did yet."""
    checkpoint_duration_s: float = 0.0
    only_batch: str = ""
    """The one batch it works on (`run`); empty: on all."""
    claims: bool = True
    """False: it takes no rows of batches on (`serve --no-work`)."""
    stopping: bool = False
    """It sends nothing more, and ends once what is out has come back."""
    drained: bool = False
    """It has ended as it was asked to, and stands by where its process would only begin it again."""


NOTHING_TOLD = WorkerState()
