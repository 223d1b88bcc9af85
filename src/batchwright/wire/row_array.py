"""The rows of a submit's array in which some are no JSON, cut apart unread: by strings, brackets and commas alone.

The careful way, for a body that a JSON reader refused: a row that cannot be read is to fail by itself, so only where it
ends is looked for. Whatever makes that a guess (a string without end, a bracket closed by another, nothing between two
commas, a comment, which may hold commas and brackets) is no array of rows. A run of brackets or of anything else
between them is one step, so that a body made to be slow costs seconds at the ceiling, not minutes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BLANKS = b" \t\r\n"
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_find_brackets = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+([\[{]++|[\]}]++)", re.DOTALL).match
find_row_end = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb")*+([,\[\]{}])", re.DOTALL).match
_begin_comment = re.compile(rb'(?:[^"/]++|' + _STRING + rb"|/(?![/*]))*+/[/*]", re.DOTALL).match
_begin_object = re.compile(rb"[ \t\r\n]*+\{").match
_find_name = re.compile(rb'(?<!\\)"requests"[ \t\r\n]*+:[ \t\r\n]*+\Z').search
_CLOSERS = bytes.maketrans(b"[{", b"]}")


class RowsApart(NamedTuple):
    rows: list[bytes]
    """Each as it stands in the array, whatever it is."""
    rest: bytes
    """The body with `0` in the array's place."""


def cut_apart(body: bytes, most_rows: int) -> RowsApart | None:
    """The array `requests` of an object; None where there is none, it has more rows, or they cannot be told apart."""
    start = _find_array(body)
    if start < 0 or _begin_comment(body, start) is not None:
        return None
    rows: list[bytes] = []
    begin = at = start + 1
    while (found := find_row_end(body, at)) is not None:
        sign, at = found[1], found.end()
        if sign in b",]":
            rows.append(body[begin : at - 1].strip(_BLANKS))
            begin = at
            if not rows[-1] or len(rows) > most_rows:
                return None
            if sign == b"]":
                return RowsApart(rows, body[:start] + b"0" + body[at:])
        elif sign == b"}" or (at := end_of_value(body, at - 1)) < 0:
            return None
    return None


def _find_array(body: bytes) -> int:
    """Where the bracket of `requests` stands; -1: nowhere."""
    begun = _begin_object(body)
    at = begun.end() if begun is not None else len(body)
    while (found := _find_brackets(body, at)) is not None:
        bracket = found.start(1)
        if body[bracket : bracket + 1] == b"[" and _find_name(body, at, bracket) is not None:
            return bracket
        at = end_of_value(body, bracket)
        if at < 0:
            return -1
    return -1


def end_of_value(body: bytes, at: int) -> int:
    """Behind the array or object that begins here; -1: it is not closed as it was opened."""
    expected = bytearray()
    while (found := _find_brackets(body, at)) is not None:
        run, at = found[1], found.end()
        if run[:1] in b"[{":
            expected += run.translate(_CLOSERS)
            continue
        closing = run[: len(expected)]
        if not closing or expected[: -len(closing) - 1 : -1] != closing:
            return -1
        del expected[-len(closing) :]
        if not expected:
            return at - len(run) + len(closing)
    return -1
