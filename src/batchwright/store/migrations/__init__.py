"""Alembic's script folder. `REVISIONS` names all of them, so that a file's age is told without importing Alembic."""

from __future__ import annotations

REVISIONS: tuple[str, ...] = ("0001j",)
"""In order; a test compares them with the scripts."""
HEAD = REVISIONS[-1]
