"""The head of an answer that llhttp refused, without what it stumbled over and nobody here needs.

    name: no token (not ASCII, a blank in it, none)        the line is dropped
    lines ended by a line feed alone                       ended as they should be
    content-length: the same number again, or `2, 2`       said once
    content-length: beside a transfer-encoding             dropped: the chunks frame the body (RFC 9112, 6.3)

Everything else stays as it came, so that what is really wrong is refused a second time.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] \d{3}[ \r\n]")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LINE_END = re.compile(rb"\r?\n")
_LENGTH = b"content-length"


def may_be_mended(raw: bytes | bytearray) -> bool:
    """Whether what came so far begins like an answer, so that its head is worth waiting for."""
    return _STATUS_LINE.match(raw.lstrip(b"\r\n")) is not None


def mended(raw: bytes) -> bytes | None:
    """An answer's head and what followed it, as llhttp may be asked again; None as long as the head is not whole."""
    raw = raw.lstrip(b"\r\n")
    end = _HEAD_END.search(raw)
    if end is None:
        return None
    status_line, *lines = _LINE_END.split(raw[: end.start()])
    headers: list[tuple[bytes, bytes]] = []
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.rstrip(b" \t")
        if line[:1] in (b" ", b"\t") and headers:  # the old way to go on with the value of the line before
            headers[-1] = headers[-1][0], headers[-1][1] + b" " + line.strip()
        elif colon and _TOKEN.fullmatch(name):
            headers.append((name, value))
    kept = [name + b":" + value for name, value in _framed_once(headers)]
    return b"\r\n".join([status_line, *kept, b"", raw[end.end() :]])


def _framed_once(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    if any(name.lower() == b"transfer-encoding" for name, _ in headers):
        return [header for header in headers if header[0].lower() != _LENGTH]
    said = [part.strip() for name, value in headers if name.lower() == _LENGTH for part in value.split(b",")]
    if len(said) < 2 or len(set(said)) > 1:
        return headers
    return [*(header for header in headers if header[0].lower() != _LENGTH), (_LENGTH, b" " + said[0])]
