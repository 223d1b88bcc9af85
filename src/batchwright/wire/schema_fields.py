"""A batch's schema in the bodies of its rows: where a vendor takes one with a request, and a row states none itself."""

from __future__ import annotations

from msgspec import Raw

from batchwright.core.batch_spec import LaneKey
from batchwright.core.routes import find_route
from batchwright.core.row_options import RowOptions
from batchwright.wire.problems import Problem
from batchwright.wire.repair_bodies import TEXT_ENDPOINTS
from batchwright.wire.row_shapes import encode, read_fields
from batchwright.wire.row_targets import Target
from batchwright.wire.schema_shape import format_fields


class SchemaFields:
    """Of one file's rows; `options.answers` is set."""

    def __init__(self, options: RowOptions) -> None:
        assert options.answers is not None
        text = options.answers.text
        self._vendors = options.schema_vendors
        self._directions = options.directions
        self._spread: dict[str, bool] = {}
        """By a route's name, whether all its places take it."""
        self._fields: dict[str, dict[str, Raw]] = {at: format_fields(text, at) for at in TEXT_ENDPOINTS}

    def add(self, body: bytes, endpoint: str, target: Target) -> tuple[bytes, list[Problem]]:
        """The body with the schema, if its row goes where that is understood; what is wrong, else."""
        missing = self._fields.get(endpoint)
        if missing is None:
            message = f"answers of {endpoint} are no texts that could match a schema; leave out --schema"
            return body, [Problem("schema_not_applicable", message, "url")]
        if not missing or not self._takes(target):
            return body, []
        fields = read_fields(body)
        return (body, []) if missing.keys() & fields.keys() else (encode(fields | missing), [])

    def _takes(self, target: Target) -> bool:
        """Every place the row may go to has to take it: the body is the same everywhere."""
        if target.route:
            if target.route not in self._spread:
                route = find_route(target.route, *self._directions)
                steps = route.steps if route is not None else ()
                self._spread[target.route] = all(step.destination.vendor in self._vendors for step in steps)
            return self._spread[target.route]
        return LaneKey.parse(target.lane).vendor in self._vendors
