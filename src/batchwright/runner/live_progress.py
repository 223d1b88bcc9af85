"""Progress as a panel that moves: for a terminal. rich is imported here and only when there is one.

tickets.jsonl
━━━━━━━━━━━━━━━━━━━━━━╸─────────────────  62%  3,100 of 5,000
3,088 ok (4 truncated)   12 failed   $0.86 of $5.00
3.8 s   812 rows/s   2.3 s left   64 of 64 in flight
waiting  rate limit, 3 s
"""

from __future__ import annotations

from contextlib import suppress
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from batchwright.runner.figures import count_text, duration_text, plural, rate_text, shown_text
from batchwright.runner.line_breaks import fitted
from batchwright.runner.progress_text import (
    MAX_LANES,
    cost_text,
    ends_texts,
    lane_text,
    percent_text,
    waiting_texts,
)
from batchwright.runner.seams import Snapshot
from batchwright.runner.standing import flags_of, flags_text

REFRESH_MS = 200
"""Five pictures a second: steady to the eye, about 1% of a core."""
BAR_COLUMNS = 48
FIGURES_COLUMNS = 32
"""What stands beside the bar, of a batch of ten million rows."""
READING_ROWS = 5_000
"""While rows are read or written there is no clock at hand: a new picture in so many rows."""


class LiveProgress:
    """Implements `seams.Display`."""

    def __init__(self, stream: TextIO) -> None:
        # rich looks at NO_COLOR and TERM itself.
        self._console = Console(file=stream, highlight=False, soft_wrap=False)
        self._live: Live | None = None
        self._shown_ms = 0
        self._shown_rows = 0

    def say(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that is gone is no reason to fail a run
            self._console.print(Text(fitted(text, self._console.width)), soft_wrap=True)

    def reading(self, rows: int) -> None:
        if self._rows_due(rows):
            self._draw(Text(f"reading  {plural(rows, 'row')}", style="dim"))

    def show(self, snapshot: Snapshot) -> None:
        # The last figures are always drawn: they stay on the screen when the run ends.
        if snapshot.now_ms - self._shown_ms < REFRESH_MS and not snapshot.status.terminal:
            return
        self._shown_ms, self._shown_rows = snapshot.now_ms, 0
        self._draw(panel(snapshot, self._console.width))

    def writing(self, done: int, total: int) -> None:
        if self._rows_due(done):
            self._draw(Text(f"writing  {count_text(done)} of {plural(total, 'row')}", style="dim"))

    def close(self) -> None:
        if self._live is not None:
            with suppress(OSError, ValueError):
                self._live.stop()
            self._live = None

    def _rows_due(self, rows: int) -> bool:
        if rows < self._shown_rows:
            self._shown_rows = 0
        if rows - self._shown_rows < READING_ROWS:
            return False
        self._shown_rows = rows
        return True

    def _draw(self, picture: Group | Text) -> None:
        with suppress(OSError, ValueError):
            self._draw_now(picture)

    def _draw_now(self, picture: Group | Text) -> None:
        if self._live is None:
            # No thread of its own, and what is not drawn at the end (transient) leaves the report alone on the screen.
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(picture, refresh=True)


def panel(snapshot: Snapshot, columns: int = 100) -> Group:
    """The picture of one moment, in so many columns: a line that is longer ends with its last whole word that fits."""
    status = snapshot.status
    done = status.total - status.counts.open
    reasons = waiting_texts(snapshot)
    bar = Table.grid(padding=(0, 2))
    bar.add_row(
        ProgressBar(
            total=max(status.total, 1),
            completed=done,
            width=max(8, min(BAR_COLUMNS, columns - FIGURES_COLUMNS)),
            style="bright_black",
            complete_style="yellow" if reasons else "cyan",
            finished_style="green",
        ),
        Text(percent_text(done, status.total), style="bold"),
        Text(f"{count_text(done)} of {count_text(status.total)}"),
    )
    name = Text(shown_text(status.spec.name, 80), style="bold")
    figures = [_ends_line(snapshot), _pace_line(snapshot), *_lane_lines(snapshot)]
    if reasons:
        figures.append(Text(f"waiting  {'; '.join(reasons)}", style="yellow"))
    return Group(_fit(name, columns), bar, *(_fit(line, columns) for line in figures))


def _fit(line: Text, columns: int) -> Text:
    """As much of a line as has room, cut at a word."""
    if line.cell_len <= columns:
        return line
    end = len(line.plain)
    while end > 0 and line[:end].cell_len >= columns:
        end = line.plain.rfind(" ", 0, end)
    if end <= 0:  # one word that is longer than the line
        line.truncate(columns, overflow="ellipsis")
        return line
    cut = line[:end]
    cut.rstrip()
    return cut.append("…")


def _ends_line(snapshot: Snapshot) -> Text:
    counts = snapshot.status.counts
    line = Text(f"{count_text(counts.succeeded)} ok", style="green")
    flags = flags_text(flags_of(snapshot.status))
    if flags:
        line.append(f" ({flags})", style="yellow")
    for ended in ends_texts(snapshot):
        line.append(f"   {ended}", style="red")
    cost = cost_text(snapshot)
    if cost:
        line.append(f"   {cost}", style="default")
    return line


def _pace_line(snapshot: Snapshot) -> Text:
    parts = [duration_text(snapshot.elapsed_s)]
    if snapshot.rows_per_s:
        parts.append(rate_text(snapshot.rows_per_s))
    if snapshot.eta_s >= 0 and snapshot.status.counts.open:
        parts.append(f"{duration_text(snapshot.eta_s)} left")
    view = snapshot.view
    if view is not None:
        limit = sum(lane.limit for lane in view.lanes)
        parts.append(f"{count_text(view.in_flight)} of {count_text(limit)} in flight" if limit else "none in flight")
        if view.retries_waiting:
            parts.append(f"{plural(view.retries_waiting, 'retry', 'retries')} waiting")
    return Text("   ".join(parts), style="dim")


def _lane_lines(snapshot: Snapshot) -> list[Text]:
    """Only where there is more than one: a single lane's figures stand in the line above."""
    view = snapshot.view
    if view is None or len(view.lanes) < 2:
        return []
    lanes = sorted(view.lanes, key=lambda lane: lane.lane)  # each keeps its place from picture to picture
    lines = [
        Text(f"  {lane_text(lane.lane)}  {count_text(lane.in_flight)} of {count_text(lane.limit)}", style="dim")
        for lane in lanes[:MAX_LANES]
    ]
    if len(lanes) > MAX_LANES:
        lines.append(Text(f"  and {len(lanes) - MAX_LANES} more lanes", style="dim"))
    return lines
