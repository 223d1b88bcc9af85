"""The commands on the store as a whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

from batchwright.assemble.home import STORE_FILE, store_place
from batchwright.assemble.machine import open_machine
from batchwright.core.errors import UsageError
from batchwright.settings import Settings
from batchwright.store.backup import back_up
from batchwright.store.open import look_at_database, look_at_state, shown_url, upgrade_store


async def backup(settings: Settings, target: Path) -> int:
    """`batchwright backup`: returns the copy's size in bytes. Raises UsageError, StoreError."""
    if settings.database:
        raise UsageError(
            f"the batches are in {shown_url(settings.database)}: a server's databases are backed up with its own "
            "tools, pg_dump or pg_basebackup. This command copies the file of a state folder"
        )
    source = settings.state_dir / STORE_FILE
    if not source.exists():
        raise UsageError(f"there is no state to back up: {source} does not exist")
    async with open_machine(settings):
        return await asyncio.to_thread(back_up, source, target)


def check_database(settings: Settings) -> str:
    """`batchwright db check`: what was found, as a sentence. Raises StoreError for a schema that is not this one."""
    if settings.database:
        found = f"{shown_url(settings.database)} {look_at_database(settings.database)}"
    else:
        path = settings.state_dir / STORE_FILE
        found = f"{path} {look_at_state(path)}"
    return f"This version can work on it: {found}."


def upgrade_database(settings: Settings) -> str:
    """`batchwright db upgrade`: what was done, as a sentence. Raises StoreError."""
    name = shown_url(settings.database) if settings.database else str(settings.state_dir / STORE_FILE)
    changed = upgrade_store(store_place(settings))
    return (
        f"{name} has the tables of this version now."
        if changed
        else f"{name} has the tables of this version already; nothing was done."
    )
