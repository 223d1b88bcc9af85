"""`--where` and `--select` as they are asked for: looked at before anything is read."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from batchwright.core.errors import UsageError
from batchwright.core.where import Where


def checked_where(text: str | None) -> str:
    """Empty where none is asked for. Raises UsageError for what is no condition."""
    if text is None:
        return ""
    Where(text)
    return text.strip()


def checked_select(names: Sequence[str] | None) -> tuple[str, ...]:
    """Names, or one text of them with commas between (a name that holds one in double quotes). Raises UsageError."""
    if names is None:
        return ()
    found = _split(names) if isinstance(names, str) else list(names)
    for name in found:
        if not name:
            raise UsageError(f"--select: expected names of columns with commas between, found {names!r}")
        if found.count(name) > 1:
            raise UsageError(f"--select: the column {name!r} is named twice")
    if not found:
        raise UsageError("--select: expected the name of at least one column")
    return tuple(found)


def checked_images(names: Sequence[str]) -> tuple[str, ...]:
    """The columns of --image: one, or several. Raises UsageError."""
    found = (names,) if isinstance(names, str) else tuple(names)
    for name in found:
        if not name or found.count(name) > 1:
            raise UsageError(f"--image: expected the name of a column, each once, found {name!r}")
    return found


def _split(text: str) -> list[str]:
    try:
        fields = next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise UsageError(f'--select: {text!r} cannot be read: {error}; a name with a comma is "written so"') from None
    return [name.strip() for name in fields]
