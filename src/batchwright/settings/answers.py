"""What a run asks of its answers, from what was typed or handed over: a schema's file, a dict, a Pydantic class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, assert_never

import msgspec

from batchwright.core.answer_schema import MAX_REPAIRS, AnswerSchema, OnMismatch
from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.durations import shown
from batchwright.core.errors import UsageError
from batchwright.core.routes import LOCAL
from batchwright.vendors.profiles import find_profile


def read_answers(schema: Any, on_mismatch: str | None, repair: int | None) -> AnswerSchema | None:
    """None: no schema was given. Raises UsageError for what is none, and for options that need one."""
    if schema is None:
        for name, given in (("on_mismatch", on_mismatch), ("repair", repair)):
            if given is not None:
                raise UsageError(f"{name} says what becomes of answers that do not match a schema: give a schema too")
        return None
    if on_mismatch is not None and on_mismatch not in tuple(OnMismatch):
        raise UsageError(f"on_mismatch: expected {' or '.join(OnMismatch)}, found {shown(on_mismatch)}")
    repairs = repair or 0
    if not 0 <= repairs <= MAX_REPAIRS:
        raise UsageError(f"repair: expected a number from 0 to {MAX_REPAIRS}, found {repairs}")
    text, name = _text_of(schema)
    from batchwright.wire.schema_check import SchemaCheck

    SchemaCheck(text, name=name)
    return AnswerSchema(text=_compact(text), on_mismatch=OnMismatch(on_mismatch or OnMismatch.FLAG), repairs=repairs)


def _text_of(schema: Any) -> tuple[str, str]:
    """Its JSON, and what it is called in messages."""
    if isinstance(schema, str | Path):
        try:
            return Path(schema).read_text(encoding="utf-8-sig"), f"the schema {schema}"
        except (OSError, UnicodeDecodeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"the schema {schema} cannot be read: {reason}") from None
    if (make := getattr(schema, "model_json_schema", None)) is not None:
        schema, name = make(), f"the schema of {schema.__name__}"
    else:
        name = "the schema"
    if not isinstance(schema, Mapping):
        raise UsageError(f"schema: expected a dict, a path or a Pydantic class, found {shown(schema)}")
    try:
        return msgspec.json.encode(schema).decode(), name
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{name} cannot be written as JSON: {error}") from None


def _compact(text: str) -> str:
    return msgspec.json.format(text, indent=-1)


def schema_vendors(destinations: Iterable[Destination]) -> frozenset[str]:
    """Those that take a schema with a request. A batch service does not say what stands behind it, and into Anthropic's
    own words none is translated. The local model is there whatever is configured."""
    return frozenset(place.vendor for place in (*destinations, LOCAL) if _takes_schema(place))


def _takes_schema(place: Destination) -> bool:
    match place.protocol:
        case VendorProtocol.LOCAL:
            return find_profile("llamacpp", "").takes_schema
        case VendorProtocol.SIMULATED:
            return find_profile("simulated", "").takes_schema
        case VendorProtocol.OPENAI:
            return find_profile(place.profile, place.base_url).takes_schema
        case VendorProtocol.BATCH:
            return place.live is VendorProtocol.OPENAI and find_profile(place.profile, place.base_url).takes_schema
        case VendorProtocol.ANTHROPIC | VendorProtocol.SERVICE:
            return False
        case _:
            assert_never(place.protocol)
