"""Pictures beside a prompt: what a file's first bytes say it is, and how it stands in a body.

A body that is stored holds `{"url":"batchwright-file:<digest>"}` in the place of a file's bytes; as it is sent, a data
URL stands there. No text can be taken for such a place: inside a JSON string its quotes are escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

from batchwright.core.records import RowFile

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
MAGIC_BYTES = 12
"""Of a file's start, so many say what it is."""


def media_type_of(head: bytes) -> str:
    """Of PNG, JPEG, GIF and WebP, which vendors take; empty for anything else."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _MAGIC if head.startswith(magic)), "")


def is_url(text: str) -> bool:
    """A picture that the vendor fetches, or one that stands in the column itself."""
    return text[:8].lower().startswith(("http://", "https://", "data:"))


def fill_in(body: bytes, files: Mapping[str, tuple[RowFile, bytes]]) -> bytes:
    """The body as it is sent. `files`: by digest, each file with its bytes."""
    for file, data in files.values():
        url = b"data:%b;base64,%b" % (file.media_type.encode(), base64.b64encode(data))
        body = body.replace(_place(file.reference.encode()), _place(url))
    return body


def _place(url: bytes) -> bytes:
    return b'{"url":"%b"}' % url
