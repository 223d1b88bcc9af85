"""Data on stdout, in one of three forms.

- On a terminal: a table with headings, the last column cut to the terminal's width, numbers as people write them.
- In a pipe: one line a row, tabs between fields, no headings, raw numbers, whole texts; what is not known is empty.
- `--json`: one JSON object a line (one object alone for a single thing); what is not known is null.

A stranger's text never moves the cursor: control characters are replaced in tables and tab-separated lines.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click
import msgspec

from batchwright.core.money import usd_text


class Cell(NamedTuple):
    shown: str
    """For people, in a table."""
    raw: str
    """In a pipe."""
    right: bool = False
    """Aligned to the right (numbers)."""


def text_cell(text: str) -> Cell:
    plain = safe_text(text)
    return Cell(plain, plain)


def count_cell(number: int) -> Cell:
    return Cell(f"{number:,}", str(number), right=True)


def cost_cell(picousd: int, *, complete: bool) -> Cell:
    """What is known of a cost; `complete` False: something beside it has no price or no usage."""
    from batchwright.runner.figures import money_text

    if not complete and not picousd:
        return Cell("?", "", right=True)
    return Cell(money_text(picousd) + ("" if complete else "+"), usd_text(picousd), right=True)


def moment_cell(moment_ms: int) -> Cell:
    text = moment_text(moment_ms) or ""
    return Cell(text.replace("T", " ").replace("Z", ""), text)


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


def print_rows(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """All rows of a table (bounded by the caller), or tab-separated lines."""
    if not is_table():
        for row in rows:
            # Not click.echo, which flushes each line: there may be a million.
            sys.stdout.write("\t".join(cell.raw for cell in row) + "\n")
        return
    table = list(rows)
    widths = [
        max([len(heading), *(len(row[column].shown) for row in table)]) for column, heading in enumerate(headings)
    ]
    first = table[0] if table else ()
    titles = [Cell(heading, "", column < len(first) and first[column].right) for column, heading in enumerate(headings)]
    room = shutil.get_terminal_size().columns
    for row in (titles, *table):
        line = "  ".join(
            cell.shown.rjust(width) if cell.right else cell.shown.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        click.echo(line if len(line) <= room else line[: room - 1] + "…")


def print_facts(facts: Iterable[tuple[str, Cell]]) -> None:
    """Name and value, a line each."""
    known = list(facts)
    if not is_table():
        for name, cell in known:
            click.echo(f"{name}\t{cell.raw}")
        return
    width = max(len(name) for name, _ in known)
    for name, cell in known:
        click.echo(f"{name.replace('_', ' '):<{width}}  {cell.shown}")


def print_json(value: Any) -> None:
    """One line."""
    click.echo(msgspec.json.encode(value))


def usd_json(picousd: int, *, complete: bool = True) -> msgspec.Raw | None:
    """A number with at most 12 decimals; null where nothing is known."""
    return None if not complete and not picousd else msgspec.Raw(usd_text(picousd).encode())
