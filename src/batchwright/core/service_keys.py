"""Where the key of a batch service stands, if nothing else is said."""

from __future__ import annotations

KEY_VARIABLES = ("BATCHWRIGHT_SERVICE_KEY", "INFRAI_API_KEY")
"""The first that is set."""
