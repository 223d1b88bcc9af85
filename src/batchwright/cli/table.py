"""A table fitted to a terminal's width. Pure: columns, cells and a width in, lines out.

Where it is too wide, in this order, and no further than is needed:

    texts are cut (an ellipsis says so), the widest first
    ids, moments and headings take their short forms, and texts are cut
    columns leave, those that matter least first
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

GAP = "  "
ELLIPSIS = "…"


class Cell(NamedTuple):
    shown: str
    """For people, in a table."""
    raw: str
    """In a pipe."""
    right: bool = False
    """Aligned to the right (numbers)."""
    short: str = ""
    """What stands for `shown` where room is short; empty: nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    heading: str
    short: str = ""
    """The heading where room is short; empty: the same."""
    cut_to: int = 0
    """So narrow it may be cut, in terminal columns; 0: its cells are never cut."""
    leaves: int = 0
    """Columns above 0 may be left out, the highest first."""
    pipe_only: bool = False
    """Not in a table, where another column says it."""


class Fitted(NamedTuple):
    lines: list[str]
    left_out: tuple[str, ...]
    """Headings of the columns that had no room."""


def fit(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], room: int) -> Fitted:
    """The headings and the rows as lines of at most `room` terminal columns."""
    kept = [place for place, column in enumerate(columns) if not column.pipe_only]
    left_out: list[str] = []
    widths = _widths(columns, rows, kept)
    short = False
    while not (fitted := _cut_widths([columns[place] for place in kept], widths, room)):
        if not short:
            short = True
        else:
            leaving = max(kept, key=lambda place: columns[place].leaves)
            if not columns[leaving].leaves:
                fitted = widths
                break
            kept.remove(leaving)
            left_out.append(columns[leaving].heading)
        widths = _widths(columns, rows, kept, short=short)
    right = [bool(rows) and rows[0][place].right for place in kept]
    texts = [[_heading(columns[place], short=short) for place in kept]]
    texts += [[_shown(row[place], short=short) for place in kept] for row in rows]
    return Fitted([_line(cells, fitted, right, room) for cells in texts], tuple(left_out))


def width_of(text: str) -> int:
    """Terminal columns: two for a wide character (Chinese, Korean ...), none for one that joins the one before it."""
    if text.isascii():
        return len(text)
    return sum(_width_of_character(character) for character in text)


def cut(text: str, width: int) -> str:
    """At most `width` terminal columns of it; an ellipsis says that it goes on."""
    if width_of(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += _width_of_character(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` terminal columns, broken at blanks where there are any. At least one line."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if width_of(joined) <= width:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        for character in word:
            if width_of(lines[-1] + character) > width and lines[-1]:
                lines.append("")
            lines[-1] += character
    return lines


def _width_of_character(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _heading(column: Column, *, short: bool) -> str:
    return column.short if short and column.short else column.heading


def _shown(cell: Cell, *, short: bool) -> str:
    return cell.short if short and cell.short else cell.shown


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], kept: Sequence[int], *, short: bool = False
) -> list[int]:
    widths = []
    for place in kept:
        texts = [_heading(columns[place], short=short), *(_shown(row[place], short=short) for row in rows)]
        widths.append(max(map(width_of, texts)))
    return widths


def _cut_widths(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Widths that fit, texts cut where they must be; empty where that is not enough."""
    fitted = list(widths)
    over = sum(fitted) + len(GAP) * (len(fitted) - 1) - room
    while over > 0:
        longest = max(range(len(fitted)), key=lambda place: fitted[place] if columns[place].cut_to else 0)
        if not columns[longest].cut_to or fitted[longest] <= columns[longest].cut_to:
            cuttable = [place for place, width in enumerate(fitted) if 0 < columns[place].cut_to < width]
            if not cuttable:
                return []
            longest = cuttable[0]
        fitted[longest] -= 1
        over -= 1
    return fitted


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool], room: int) -> str:
    cells = []
    for text, width, to_right in zip(texts, widths, right, strict=True):
        shown = cut(text, width)
        blanks = " " * (width - width_of(shown))
        cells.append(blanks + shown if to_right else shown + blanks)
    return cut(GAP.join(cells).rstrip(), room)
