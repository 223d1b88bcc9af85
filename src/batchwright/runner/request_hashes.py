"""The hash by which a row's request is told from others: of what a vendor gets, and which vendor that is."""

from __future__ import annotations

import msgspec

from batchwright.core.identity import request_hash
from batchwright.core.records import InputRow
from batchwright.core.routes import Directions, find_ways
from batchwright.wire.canonical_body import canonical_body


class Hasher:
    """The hashes of rows that go by these directions: of an input, or of one batch."""

    def __init__(self, directions: Directions) -> None:
        self._directions = directions
        self._ways: dict[str, bytes] = {}

    def __call__(self, row: InputRow) -> bytes:
        name = row.named_model
        way = self._ways.get(name)
        if way is None:
            found = find_ways(name, self._directions)
            way = self._ways[name] = msgspec.json.encode(found.choices if found is not None else None)
        # Of a route the body names the choice that the row begins with, which its place in the file decides.
        return request_hash(row.endpoint, way, canonical_body(row.body, without_model=bool(row.route)))
