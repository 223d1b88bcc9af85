"""The JSON value that an answer's text holds, and how it reads in outputs. No schema is asked here.

    the whole text is JSON                     that value, of any type
    one fenced block (```json or ```) is       that value, whatever stands around it
    the text holds one object                  that object, whatever stands around it
    it holds no object and one array           that array
    anything else                              no value: a text with two objects does not say which is meant

A number, a text or a word alone counts only where it is the whole text or block: prose is full of them.
"""

from __future__ import annotations

import json
import re

import msgspec
from msgspec import Raw

from batchwright.core.answer_schema import MATCHED_BYTES
from batchwright.core.rows import RowView
from batchwright.wire.json_text import mend_surrogates, one_line, read_value
from batchwright.wire.reply import NULL, Reply, read_reply

MAX_LOOKED_AT = 1_000
"""Brackets of a text at which a value is looked for: one that is full of broken ones is no answer."""

_FENCE = re.compile(r"```[ \t]*([A-Za-z0-9_+-]*)[ \t]*\r?\n(.*?)```", re.DOTALL)
_OPENING = re.compile(r"[\[{]")


class NoValue(Exception):
    """The text holds no JSON value, or more than one. The message says which."""


class Found(msgspec.Struct, gc=False):
    value: object
    text: str
    """The value as it stands in the answer."""


def text_of(content: Raw) -> str:
    """The text of an answer's content: a text, or a list of parts with texts. Empty: it has none."""
    value = read_value(content)
    if isinstance(value, list):
        return "".join(str(part.get("text") or "") for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


def find_value(text: str) -> Found:
    """Raises NoValue."""
    text = text.strip().removeprefix("\ufeff").strip()
    if not text:
        raise NoValue("the answer has no text")
    whole = _read(text)
    if whole is not None:
        return whole
    fenced = [found for kind, inside in _FENCE.findall(text) if _is_json(kind) for found in _all_of(inside)]
    if len(fenced) == 1:
        return fenced[0]
    if fenced:
        raise NoValue(f"the answer has {len(fenced)} blocks of JSON; expected one")
    inside = _inside(text)
    chosen = [one for one in inside if isinstance(one.value, dict)] or inside
    if len(chosen) == 1:
        return chosen[0]
    if not chosen:
        raise NoValue("the answer is no JSON, and holds none")
    raise NoValue(f"the answer holds {len(chosen)} JSON values; expected one")


def _is_json(kind: str) -> bool:
    return kind.lower() in ("", "json")


def _all_of(text: str) -> list[Found]:
    """The one value that a text is; nothing where it is none."""
    found = _read(text.strip())
    return [] if found is None else [found]


def _read(text: str) -> Found | None:
    try:
        return Found(_DECODER.decode(text), text)
    except (ValueError, RecursionError):
        return None


def _inside(text: str) -> list[Found]:
    """Objects and arrays that stand in a text, none of them inside another."""
    found: list[Found] = []
    at = 0
    for _ in range(MAX_LOOKED_AT):
        opening = _OPENING.search(text, at)
        if opening is None:
            break
        start = opening.start()
        try:
            value, at = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            at = start + 1
        else:
            found.append(Found(value, text[start:at]))
    return found


def _no_constant(name: str) -> object:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def parsed_text(view: RowView, reply: Reply | None = None) -> bytes:
    """Of a row of a batch with a schema: its value as JSON in one line; `null` where it has none that matches."""
    record = view.record
    if record is None or view.byte not in MATCHED_BYTES:
        return NULL
    content = (reply or read_reply(record.body)).content
    try:
        found = find_value(text_of(content))
    except NoValue:
        return NULL
    return one_line(mend_surrogates(found.text.encode("utf-8", "replace")))


def mismatch_of(view: RowView) -> str:
    """Why its answer has no value that matches; empty where it has, or where the row has no answer."""
    record = view.record
    return record.message if record is not None and view.byte not in MATCHED_BYTES else ""
