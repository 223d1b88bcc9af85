"""Run by Alembic for each command; the connection is handed in, never made here."""

from __future__ import annotations

from alembic import context

from batchwright.store.schema import metadata

# SQLite cannot alter most things in place: batch mode copies the table.
context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
