"""Which store the batches of this process are in."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

from batchwright.core.errors import BatchwrightError
from batchwright.settings import Settings
from batchwright.store.open import holds_batch

STORE_FILE = "batchwright.sqlite"


def store_place(settings: Settings) -> Path | str:
    """As `open_store` takes it."""
    return settings.database or settings.state_dir / STORE_FILE


def store_mark(settings: Settings) -> str:
    """Sixteen hex digits: the same for every process on the same store, and nothing can be read from them."""
    host = "" if settings.database else socket.gethostname()
    place = settings.database or str((settings.state_dir / STORE_FILE).resolve())
    return hashlib.blake2s(f"{host}\n{place}".encode(), digest_size=8).hexdigest()


def has_batch(settings: Settings, batch_id: str) -> bool:
    """Reads the store on a connection of its own; blocks."""
    try:
        return holds_batch(store_place(settings), batch_id)
    except BatchwrightError:
        return False  # it cannot be asked now: usage counted twice is better than usage that nobody counts
