"""JSON as bytes: what must be mended in text that is otherwise passed through, with nothing rebuilt.

msgspec refuses control characters, bad escapes, bad numbers and half surrogate pairs, also in what it only skips; so
pairs are mended only after a refusal, and an ordinary row pays nothing for them (looking for `\\ud` first would cost as
much as decoding the row). What it does not refuse is invalid UTF-8 in what it skips: that is looked at here.
"""

from __future__ import annotations

import json
import re

import msgspec

BOM = b"\xef\xbb\xbf"

_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""One JSON escape: a surrogate pair, a lone surrogate (the group), or anything else. Escapes must be walked one after
another, since `\\\\ud83d` (an escaped backslash before plain text) looks like a surrogate from the middle."""
_SEPARATORS = (
    (b"\xe2\x80\xa8", rb"\u2028"),
    (b"\xe2\x80\xa9", rb"\u2029"),
    (b"\xc2\x85", rb"\u0085"),
)
_LINE_FEED, _CARRIAGE_RETURN = b"\n\r"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def mend_surrogates(text: bytes) -> bytes:
    r"""Halves of a surrogate pair (`\ud83d` alone) become U+FFFD; pairs and everything else stay as they are."""
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], text)


def one_line(text: bytes) -> bytes:
    r"""Valid JSON as one line that no reader splits: line breaks between tokens become blanks, U+2028, U+2029 and
    U+0085 inside strings are escaped, and what is not UTF-8 becomes U+FFFD.

    In valid JSON a raw line break is only ever white space, so replacing one changes no value.
    """
    # Numbers, not texts: only the search for a byte by its number is a single scan of memory.
    if _LINE_FEED in text or _CARRIAGE_RETURN in text:
        text = text.replace(b"\n", b" ").replace(b"\r", b" ")
    if not text.isascii():
        text = escape_separators(_valid_utf8(text))
    return text


def escape_separators(text: bytes) -> bytes:
    """UTF-8 JSON in which no character is a line end for `str.splitlines`. Only strings can hold these three."""
    for raw, escaped in _SEPARATORS:
        if raw in text:
            text = text.replace(raw, escaped)
    return text


def string(text: str) -> bytes:
    """A JSON string, in one line, valid UTF-8 whatever `text` holds."""
    if text.isascii():
        return _encode(text)
    return escape_separators(_encode(whole_characters(text)))


def whole_characters(text: str) -> str:
    """`text` with half surrogates replaced, so that it can be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def kind_of(value: bytes) -> str:
    """What a JSON value is, in words for people: `object`, `array`, `string`, `number`, `true`, `false`, `null`."""
    first = value.lstrip()[:1]
    if first in _KINDS:
        return _KINDS[first]
    return "number"


def read_value(text: bytes | msgspec.Raw) -> object:
    """Valid JSON, decoded. A number that is out of range for msgspec (1e999, an integer of thousands of digits) becomes
    infinite, as Python's own reader has it. Raises DecodeError for what is no JSON, RecursionError for too deep a one.
    """
    try:
        return _decode(text)
    except msgspec.ValidationError:
        return json.loads(bytes(text), parse_int=_integer)


def shown(value: bytes | msgspec.Raw, chars: int = 40) -> str:
    """The start of a JSON value, for people: a string's text, anything else as it is written."""
    text = bytes(value).strip()
    return (str(_decode(text)) if kind_of(text) == "string" else text.decode("utf-8", "replace"))[:chars]


def _integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # more digits than Python reads
        return float(digits)


_KINDS = {b"{": "object", b"[": "array", b'"': "string", b"t": "true", b"f": "false", b"n": "null"}


def _valid_utf8(text: bytes) -> bytes:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace").encode("utf-8")
    return text
