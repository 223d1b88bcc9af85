"""The files a command names: as paths, and looked at before anything is read or sent. Writes nothing.

What an output may not be for any caller (a folder, the input itself) is checked by `runner.deliver`; here is what only
a person at a command line gets wrong.
"""

from __future__ import annotations

import os
from pathlib import Path

from batchwright.core.errors import UsageError

STREAM = "-"


def check_source(source: str) -> None:
    """Raises UsageError for an input that is not there, is a folder, or may not be read."""
    if source == STREAM:
        return
    path = Path(source)
    if path.is_dir():
        raise UsageError(f"{source} is a folder; expected a file of rows")
    if not path.exists():
        raise UsageError(f"{source}: there is no such file{_alike(path)}")
    if not os.access(path, os.R_OK):
        raise UsageError(f"{source}: you may not read this file")


def output_paths(output: str | None, failed: str | None) -> tuple[Path | None, Path | None]:
    """(output, failed output); None is standard output, or no file of failed rows. Raises UsageError."""
    if failed == STREAM:
        raise UsageError("--failed: expected a file, found '-': standard output is for the answers")
    out = None if output is None or output == STREAM else Path(output)
    failed_out = None if failed is None else Path(failed)
    for option, path in (("-o", out), ("--failed", failed_out)):
        if path is not None and path.parent.is_dir() and not os.access(path.parent, os.W_OK):
            raise UsageError(f"{option} {path}: you may not write into the folder {path.parent}; name another place")
    return out, failed_out


def _alike(path: Path) -> str:
    from difflib import get_close_matches

    if not path.parent.is_dir():
        return f", nor a folder {path.parent}"
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    close = get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.with_name(close[0])}?" if close else ""
