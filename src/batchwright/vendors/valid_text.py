"""Makes a vendor's bytes safe to keep: valid UTF-8, no lone surrogates, text for people without control characters.

A model can stop in the middle of a character and a server can cut text by UTF-16 units; both end in bytes that a
strict reader refuses long after the answer was paid for. What cannot be read becomes U+FFFD; every other byte stays
as it came.
"""

from __future__ import annotations

import re

from batchwright.wire.json_text import BOM, mend_surrogates

_CONTROL = re.compile(r" *[\x00-\x1f\x7f-\x9f\u2028\u2029][ \x00-\x1f]*")


def repair(body: bytes) -> bytes:
    """`body` itself if it can be kept as it is, else a copy with U+FFFD for what is no text; a byte-order mark goes."""
    if not body.isascii():
        body = body.removeprefix(BOM)
        try:
            body.decode()
        except UnicodeDecodeError:
            body = body.decode(errors="replace").encode()
    # One byte is looked for at memory speed, three are not: most answers have no escape, or only line breaks.
    if b"\\" in body and b"\\u" in body and (b"\\ud" in body or b"\\uD" in body):
        body = mend_surrogates(body)
    return body


def one_line(text: str, limit: int) -> str:
    """Text for a person's terminal: control characters and line breaks become a space, cut at `limit` characters."""
    text = _CONTROL.sub(" ", text[: 2 * limit]).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"
