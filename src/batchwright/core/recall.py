"""When a batch stops waiting for a vendor's batch API, where its rows may go to the vendor itself too."""

from __future__ import annotations

SHARE = 3
"""A third of the time that a batch has is kept for sending live what is not back by then."""
MOST_MS = 2 * 3_600_000
"""But no more than this: at some thousands of rows a second it is enough for any batch that has hours."""


def recall_ms(begun_ms: int, deadline_ms: int) -> int:
    """Milliseconds since the epoch, as both arguments; 0: it has no deadline, and waits for the API's own end."""
    if not deadline_ms:
        return 0
    return deadline_ms - min(max(0, deadline_ms - begun_ms) // SHARE, MOST_MS)
