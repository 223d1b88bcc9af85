"""Data on stdout, in one of three forms.

- On a terminal: a table with headings, fitted to the terminal's width (`cli.table`), numbers as people write them.
- In a pipe: one line a row, tabs between fields, no headings, raw numbers, whole texts; what is not known is empty.
- `--json`: one JSON object a line (one object alone for a single thing); what is not known is null.

A stranger's text never moves the cursor: control characters are replaced in tables and tab-separated lines.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from batchwright.cli.exits import say
from batchwright.cli.table import GAP, Cell, Column, fit, wrap
from batchwright.core.fair_share import WEIGHT_ONE
from batchwright.core.money import usd_text
from batchwright.ports.stored import Share

NARROWEST_VALUE = 20
"""A fact's value is broken no narrower than this."""
SHORT_ID_DIGITS = 8
"""Of a batch's id where room is short: a prefix that names one batch among hundreds of millions."""


def text_cell(text: str) -> Cell:
    plain = safe_text(text)
    return Cell(plain, plain)


def model_cell(name: str) -> Cell:
    plain = safe_text(name)
    return Cell(plain or "(none named)", plain)


def batch_cell(batch_id: str) -> Cell:
    return Cell(batch_id, batch_id, short=batch_id.removeprefix("batch_")[:SHORT_ID_DIGITS])


def count_cell(number: int) -> Cell:
    return Cell(f"{number:,}", str(number), right=True)


def cost_cell(picousd: int, *, complete: bool) -> Cell:
    """What is known of a cost; `complete` False: something beside it has no price or no usage."""
    from batchwright.runner.figures import money_text

    if not complete and not picousd:
        return Cell("?", "", right=True)
    return Cell(money_text(picousd) + ("" if complete else "+"), usd_text(picousd), right=True)


def weight_cell(share: Share) -> Cell:
    """Empty in a pipe where it is everybody's."""
    weight = f"{share.weight / WEIGHT_ONE:g}"
    return Cell(weight, weight if share.weight != WEIGHT_ONE else "", right=True)


def moment_cell(moment_ms: int) -> Cell:
    text = moment_text(moment_ms) or ""
    shown = text.replace("T", " ").replace("Z", "")
    return Cell(shown, text, short=shown[:-3])


def moment_text(moment_ms: int) -> str | None:
    """UTC, to the second, `2026-03-01T12:00:00Z`; None for 0."""
    if not moment_ms:
        return None
    return datetime.fromtimestamp(moment_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def safe_text(text: str) -> str:
    """One line without control characters; tabs and line breaks become blanks."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else " " if character.isspace() else "\ufffd" for character in text
    )


def is_table() -> bool:
    """Whether rows are shown as a table (a terminal), not as tab-separated lines."""
    return sys.stdout.isatty()


def print_rows(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
    """All rows of a table (bounded by the caller), or tab-separated lines. Of none there is no heading either."""
    if not is_table():
        for row in rows:
            # Not click.echo, which flushes each line: there may be a million.
            sys.stdout.write("\t".join(cell.raw for cell in row) + "\n")
        return
    cells = list(rows)
    if not cells:
        return
    fitted = fit(columns, cells, _room())
    for line in fitted.lines:
        click.echo(line)
    if fitted.left_out:
        say(f"No room for {', '.join(fitted.left_out)}; --json shows all.")


def print_facts(facts: Iterable[tuple[str, Cell]]) -> None:
    """Name and value, a line each; on a terminal a long value goes on below its beginning."""
    known = list(facts)
    if not is_table():
        for name, cell in known:
            click.echo(f"{name}\t{cell.raw}")
        return
    width = max(len(name) for name, _ in known) + len(GAP)
    for name, cell in known:
        first, *more = wrap(cell.shown, max(_room() - width, NARROWEST_VALUE))
        click.echo(f"{name.replace('_', ' '):<{width}}{first}".rstrip())
        for line in more:
            click.echo(" " * width + line)


def _room() -> int:
    return shutil.get_terminal_size().columns


def print_json(value: Any) -> None:
    """One line."""
    click.echo(msgspec.json.encode(value))
