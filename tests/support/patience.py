"""How long a test waits for what must come."""

from __future__ import annotations

PATIENCE_S = 120.0
"""Far longer than it takes on a machine that does much else: what comes late is no fault, what never comes is one."""
