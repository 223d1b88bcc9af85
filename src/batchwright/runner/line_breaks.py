"""Texts for a terminal, broken at blanks: by itself it would break within a word. What is to be copied stays whole."""

from __future__ import annotations

import os
import re
import textwrap
from typing import TextIO

_COMMANDS = re.compile(r"`[^`]*`|\(batchwright [^)]*\)|(?<=: )batchwright .*")
"""A command within a sentence, or the one that ends it: copied with a line break in it, it would be two."""
_HELD = "\0"
"""Stands for a blank that no line is broken at."""


def columns_of(stream: TextIO) -> int:
    """Of the terminal that it leads to; 0: it leads to none."""
    try:
        if not stream.isatty():
            return 0
        given = os.environ.get("COLUMNS", "")
        return int(given) if given.isdigit() and int(given) else os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def fitted(text: str, columns: int, *, hang: int = 0) -> str:
    """With lines of at most so many columns, as far as words allow; 0: as it is. What goes on is set in as far as its
    line was, twice, and by `hang`."""
    if not columns:
        return text
    return "\n".join(broken for line in text.split("\n") for broken in _broken(line, columns, hang))


def _broken(line: str, columns: int, hang: int) -> list[str]:
    if len(line) <= columns:
        return [line]
    body = line.lstrip(" ")
    indent = " " * (len(line) - len(body))
    held = _COMMANDS.sub(lambda found: found[0].replace(" ", _HELD), body)
    lines = textwrap.wrap(
        held,
        columns,
        initial_indent=indent,
        subsequent_indent=indent * 2 + " " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [each.replace(_HELD, " ") for each in lines] or [line]
