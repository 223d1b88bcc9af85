"""Names of columns as messages list them, and `a,b,c` as a person writes them."""

from __future__ import annotations

from collections.abc import Sequence

LISTED_MAX = 40
"""Columns that a message names."""


def listed(columns: Sequence[str], form: str = "{}") -> str:
    """`form` is what each is written in, for `str.format`."""
    if not columns:
        return "no columns"
    more = f" and {len(columns) - LISTED_MAX} more" if len(columns) > LISTED_MAX else ""
    return ", ".join(form.format(clip(column)) for column in columns[:LISTED_MAX]) + more


def clip(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "..."
