"""Progress in a notebook's cell: one line that is written anew in its place, and lines that stay above it.

A cell's output is no terminal, but it takes a carriage return as one: what follows is written over the line. Nothing of
IPython is imported; where it is there already, its kernel is how a notebook is told from a script.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TextIO

from batchwright.runner.figures import count_text, plural
from batchwright.runner.progress_text import plain_line
from batchwright.runner.seams import Snapshot

EVERY_S = 0.5
"""Each line is a message to the browser."""
EVERY_ROWS = 25_000
MAX_CHARS = 150
"""A line that wraps could not be written over as one."""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook (IPython in a terminal is none)."""
    module = sys.modules.get("IPython")
    shell = getattr(module, "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class NotebookProgress:
    """Implements `seams.Display`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""
        """The line that moves, as it stands."""
        self._last_s = -EVERY_S
        self._told_rows = 0

    def say(self, text: str) -> None:
        line = self._shown
        over = f"{self._over('')}\r" if line else ""
        self._write(f"{over}{text}\n")
        self._shown = ""
        if line:
            self._move(line)

    def reading(self, rows: int) -> None:
        self._tell_rows(rows, f"reading: {plural(rows, 'row')} so far")

    def show(self, snapshot: Snapshot) -> None:
        self._told_rows = 0
        ended = not snapshot.status.counts.open
        if snapshot.elapsed_s - self._last_s >= EVERY_S or ended:
            self._last_s = snapshot.elapsed_s
            self._move(plain_line(snapshot))

    def writing(self, done: int, total: int) -> None:
        self._tell_rows(done, f"writing: {count_text(done)} of {plural(total, 'row')}")

    def close(self) -> None:
        """The line stays as it was last: how the run ended."""
        if self._shown:
            self._write("\n")
            self._shown = ""

    def _tell_rows(self, rows: int, text: str) -> None:
        if rows < self._told_rows:
            self._told_rows = 0
        if rows - self._told_rows >= EVERY_ROWS:
            self._told_rows = rows
            self._move(text)

    def _move(self, text: str) -> None:
        line = text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 3] + "..."
        self._write(self._over(line))
        self._shown = line

    def _over(self, line: str) -> str:
        """What puts this line in the place of the one that is shown."""
        return f"\r{line}{' ' * (len(self._shown) - len(line))}" if self._shown else line

    def _write(self, text: str) -> None:
        """A closed or broken stream is no reason to fail a run."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
