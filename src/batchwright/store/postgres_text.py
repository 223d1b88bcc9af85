"""Every text comes back as it was, on a server whose texts cannot hold the character NUL.

A model's name may hold one, or whatever else somebody sent; it is stored as two characters that no other text is stored
as. Registered on each connection, so that no statement has to think of it.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.types.string import StrDumperUnknown, TextLoader

NUL, ESCAPE = "\x00", "\x01"
ESCAPED_NUL, ESCAPED_ESCAPE = "\x01\x03", "\x01\x02"


def stored(text: str) -> str:
    if NUL not in text and ESCAPE not in text:
        return text
    return text.replace(ESCAPE, ESCAPED_ESCAPE).replace(NUL, ESCAPED_NUL)


def read(text: str) -> str:
    return text.replace(ESCAPED_NUL, NUL).replace(ESCAPED_ESCAPE, ESCAPE) if ESCAPE in text else text


class _Dumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(stored(obj))


class _Loader(TextLoader):
    def load(self, data: Buffer) -> bytes | str:
        found = super().load(data)
        return read(found) if isinstance(found, str) else found


def register(connection: psycopg.Connection[Any]) -> None:
    connection.adapters.register_dumper(str, _Dumper)
    connection.adapters.register_loader("text", _Loader)
