"""Which display a run has: a panel on a terminal, a line that moves in a notebook, plain lines in a pipe, or none."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import TextIO

from batchwright.runner.notebook_progress import NotebookProgress, in_notebook
from batchwright.runner.plain_progress import NoProgress, PlainProgress
from batchwright.runner.seams import Display


class ProgressKind(StrEnum):
    AUTO = "auto"
    """A panel where stderr is a terminal that can draw one, in a notebook a line that moves, else plain lines."""
    RICH = "rich"
    PLAIN = "plain"
    NONE = "none"


def open_display(kind: str = ProgressKind.AUTO, stream: TextIO | None = None) -> Display:
    """Draws on `stream` (default: stderr; data has stdout for itself). Raises ValueError for no `ProgressKind`."""
    out = stream if stream is not None else sys.stderr
    wanted = ProgressKind(kind)
    if wanted is ProgressKind.NONE:
        return NoProgress(out)
    if wanted is ProgressKind.AUTO and in_notebook():
        return NotebookProgress(out)
    if wanted is ProgressKind.PLAIN or (wanted is ProgressKind.AUTO and not _can_draw(out)):
        return PlainProgress(out)
    from batchwright.runner.live_progress import LiveProgress

    return LiveProgress(out)


def _can_draw(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "") not in {"dumb", "unknown"}
