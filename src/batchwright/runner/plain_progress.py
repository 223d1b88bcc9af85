"""Progress as plain lines: for pipes, log files and terminals that cannot move the cursor. And none at all."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TextIO

from batchwright.core.batch_state import BatchState
from batchwright.runner.figures import count_text, plural
from batchwright.runner.line_breaks import columns_of, fitted
from batchwright.runner.progress_text import plain_line, waiting_texts
from batchwright.runner.seams import Snapshot

FIRST_LINE_S = 2.0
"""A run that is over sooner says nothing on the way."""
EVERY_S = 5.0
LATER_EVERY_S = 60.0
LATER_S = 120.0
"""After so long the lines come rarely: a night's run leaves hundreds of lines, not thousands."""
REASON_EVERY_S = 1.0
"""A new reason for waiting is told at once, but no more often than this."""
EVERY_ROWS = 250_000
"""While the input is read or the output written, one line in so many rows."""


class PlainProgress:
    """Implements `seams.Display`: a line now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last_s = 0.0
        self._waited = False
        self._heard = False
        self._told_rows = 0

    def say(self, text: str) -> None:
        _print(self._stream, text)

    def reading(self, rows: int) -> None:
        self._tell_rows(rows, f"reading: {plural(rows, 'row')} so far")

    def show(self, snapshot: Snapshot) -> None:
        self._told_rows = 0
        since_s = snapshot.elapsed_s - self._last_s
        waits = bool(waiting_texts(snapshot))
        if snapshot.elapsed_s < FIRST_LINE_S or since_s < EVERY_S:
            due = waits and not self._waited and since_s >= REASON_EVERY_S
        else:
            due = since_s >= (LATER_EVERY_S if snapshot.elapsed_s > LATER_S else EVERY_S)
        # Whoever pressed Ctrl-C sees at once that it was heard. That it is over needs no line: the report comes. And a
        # pause is a reason as others are, told once.
        heard = bool(snapshot.stopping) and snapshot.status.state is not BatchState.PAUSED
        if not due and (not heard or self._heard):
            return
        self._last_s, self._waited, self._heard = snapshot.elapsed_s, waits, self._heard or heard
        moment = datetime.fromtimestamp(snapshot.now_ms / 1000).strftime("%H:%M:%S")
        _print(self._stream, f"{moment} {plain_line(snapshot)}")

    def writing(self, done: int, total: int) -> None:
        self._tell_rows(done, f"writing: {count_text(done)} of {plural(total, 'row')}")

    def close(self) -> None:
        pass

    def _tell_rows(self, rows: int, text: str) -> None:
        if rows < self._told_rows:
            self._told_rows = 0
        if rows - self._told_rows >= EVERY_ROWS:
            self._told_rows = rows
            _print(self._stream, text)


class NoProgress:
    """Implements `seams.Display`: only what is said, and not even that where there is no stream."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def say(self, text: str) -> None:
        if self._stream is not None:
            _print(self._stream, text)

    def reading(self, rows: int) -> None:
        pass

    def show(self, snapshot: Snapshot) -> None:
        pass

    def writing(self, done: int, total: int) -> None:
        pass

    def close(self) -> None:
        pass


def _print(stream: TextIO, text: str) -> None:
    """A closed or broken stderr is no reason to fail a run."""
    with suppress(OSError, ValueError):
        print(fitted(text, columns_of(stream)), file=stream, flush=True)
