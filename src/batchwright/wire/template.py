"""Prompt templates: `One word sentiment: {text}`, filled from a row's columns by name.

`{name}` is a column; `{{` and `}}` are literal braces. The Jinja spelling `{{ name }}`, with blanks inside the braces,
names a column too: people bring such templates along, and a literal `{ name }` is what nobody means. `{{name}}` without
blanks is the literal text `{name}`; a template that thereby names no column at all is refused, since every row would
get the same prompt. A value is put in as it is and never read again as a template, so braces in it are harmless.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from batchwright.core.column_names import clip, listed
from batchwright.core.errors import UsageError

_TOKEN = re.compile(r"""\{\{[ \t]+(?P<jinja>[^{}:"',]*[^{}:"',\s])[ \t]+\}\}|\{\{|\}\}|\{(?P<name>[^{}]*)\}|[{}]""")


class Template:
    """A template whose columns are known to exist.

    `option` is named in messages. `constant` allows a template without columns (a system message). Raises UsageError
    for a column that is not there (listing those that are), a lone brace, and no column at all.
    """

    def __init__(self, text: str, columns: Sequence[str], *, option: str = "--prompt", constant: bool = False) -> None:
        self._parts: list[tuple[str, str]] = []
        """(literal text, the column that follows it); the last column is empty."""
        literal: list[str] = []
        end = 0
        for match in _TOKEN.finditer(text):
            literal.append(text[end : match.start()])
            end = match.end()
            asked = match["jinja"] if match["jinja"] is not None else match["name"]
            if asked is None:
                literal.append(_literal_brace(match[0], option, match.start()))
                continue
            self._parts.append(("".join(literal), _find_column(asked, columns, option)))
            literal = []
        if not self._parts and not constant:
            raise UsageError(
                f"{option} {_shown(text)} names no column, so every row would get the same prompt; "
                f"write a column's name in single braces: {listed(columns)}"
            )
        self._parts.append(("".join(literal) + text[end:], ""))
        self.columns: tuple[str, ...] = tuple(dict.fromkeys(column for _, column in self._parts if column))

    def fill(self, row: Mapping[str, str]) -> str:
        """Raises KeyError if `row` lacks one of `columns`."""
        return "".join([literal + (row[column] if column else "") for literal, column in self._parts])


def _literal_brace(token: str, option: str, position: int) -> str:
    if len(token) == 2:
        return token[0]
    raise UsageError(
        f"{option} has a lone '{token}' at character {position + 1}; "
        f"a column is written {{name}}, a literal brace is doubled: '{token}{token}'"
    )


def _find_column(asked: str, columns: Sequence[str], option: str) -> str:
    for name in (asked, asked.strip()):
        if name in columns:
            return name
    raise UsageError(
        f"{option} names the column {{{clip(asked)}}}, which the input does not have; it has {_listed(columns)}. "
        "A literal brace is written twice: '{{'"
    )


def _listed(columns: Sequence[str]) -> str:
    return listed(columns, "{{{}}}")


def _shown(text: str) -> str:
    return repr(clip(text))
