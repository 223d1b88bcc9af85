"""Which way rows go to a vendor: live, one by one, or through its own batch API."""

from __future__ import annotations

from enum import StrEnum


class Via(StrEnum):
    LIVE = "live"
    BATCH = "batch"
    """Through the batch API alone."""
    AUTO = "auto"
    """Through it while there is time, and live what is not back by then or cannot go there."""
