"""A request's body in the one form that all bodies with the same meaning have: what tells two requests apart.

Spaces between tokens, escapes within strings and the order of the outermost fields mean nothing to any vendor. That of
all other fields does: templates print tools as they come, and a schema's fields are answered in their order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

_NOT_JSON = b"\0"
"""No JSON text begins so: a body that is taken as it came never equals one that was read."""


def canonical_body(body: bytes, *, without_model: bool = False) -> bytes:
    """Equal for two bodies exactly if they ask for the same. `without_model`: whatever model they name.

    A body that is no object of plain JSON (a field twice, a number beyond all bounds) stands for itself alone.
    """
    try:
        fields = json.loads(body, object_pairs_hook=_once, parse_constant=_refuse)
        if not isinstance(fields, dict):
            return _NOT_JSON + body
        ordered = {name: fields[name] for name in sorted(fields) if not (without_model and name == "model")}
        return json.dumps(ordered, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError):
        return _NOT_JSON + body


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError for a name that stands twice: which of the two counts is the vendor's choice."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field stands twice")
    return fields


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
