"""The body of OpenAI's `POST /v1/batches`: bytes -> what was asked."""

from __future__ import annotations

import msgspec

from batchwright.core.durations import read_duration
from batchwright.core.endpoints import BadEndpoint, normal_endpoint, wire_url
from batchwright.wire.bad_body import BadBody
from batchwright.wire.json_text import BOM

MAX_METADATA = 16
MAX_METADATA_NAME = 64
MAX_METADATA_CHARS = 512
MAX_WINDOW_S = 30 * 86_400.0
MIN_EXPIRES_S = 3_600
MAX_EXPIRES_S = 2_592_000


class CreateBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, checked."""

    input_file_id: str
    endpoint: str
    """`/v1/chat/completions`."""
    completion_window: str
    """As it came."""
    window_s: float
    metadata: dict[str, str]
    output_expires_s: int
    """0: never."""


class _Expires(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    anchor: str
    seconds: int


class _Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: _Expires | None = None


_decode = msgspec.json.Decoder(_Body).decode


def read_create(body: bytes) -> CreateBatch:
    """Raises BadBody."""
    try:
        found = _decode(body.removeprefix(BOM))
    except msgspec.ValidationError as error:
        raise BadBody(_sentence(error), _param_of(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadBody(f"We could not parse the JSON body of your request: {error}", json=False) from None
    return CreateBatch(
        input_file_id=found.input_file_id,
        endpoint=_endpoint(found.endpoint),
        completion_window=found.completion_window,
        window_s=_window_s(found.completion_window),
        metadata=_metadata(found.metadata or {}),
        output_expires_s=_expires_s(found.output_expires_after),
    )


def _endpoint(text: str) -> str:
    try:
        return wire_url(normal_endpoint(text))
    except BadEndpoint as error:
        raise BadBody(f"Invalid value for 'endpoint': {error}", "endpoint") from None


def _window_s(text: str) -> float:
    try:
        return read_duration(text, MAX_WINDOW_S)
    except ValueError as error:
        raise BadBody(f"Invalid value for 'completion_window': {error}", "completion_window") from None


def _metadata(given: dict[str, str]) -> dict[str, str]:
    if len(given) > MAX_METADATA:
        raise BadBody(f"Invalid 'metadata': {len(given)} entries, at most {MAX_METADATA}.", "metadata")
    for name, value in given.items():
        if len(name) > MAX_METADATA_NAME or len(value) > MAX_METADATA_CHARS:
            raise BadBody(
                f"Invalid 'metadata': {name[:80]!r}: a name has at most {MAX_METADATA_NAME} characters and a value at "
                f"most {MAX_METADATA_CHARS}.",
                "metadata",
            )
    return given


def _expires_s(given: _Expires | None) -> int:
    if given is None:
        return 0
    if given.anchor != "created_at":
        raise BadBody(
            f"Invalid value for 'output_expires_after.anchor': expected 'created_at', found {given.anchor[:40]!r}",
            "output_expires_after",
        )
    if not MIN_EXPIRES_S <= given.seconds <= MAX_EXPIRES_S:
        raise BadBody(
            f"Invalid value for 'output_expires_after.seconds': expected {MIN_EXPIRES_S} to {MAX_EXPIRES_S}, "
            f"found {given.seconds}",
            "output_expires_after",
        )
    return given.seconds


def _param_of(error: msgspec.ValidationError) -> str:
    text = str(error)
    for mark in ("unknown field `", "missing required field `"):
        if mark in text:
            return text.split(mark, 1)[1].split("`", 1)[0]
    _, found, path = text.rpartition("`$.")
    return path.rstrip("`").split(".")[0].split("[")[0] if found else ""


def _sentence(error: msgspec.ValidationError) -> str:
    text, param = str(error), _param_of(error)
    if "unknown field" in text:
        return f"Unknown parameter: '{param[:80]}'."
    if "missing required field" in text:
        return f"Missing required parameter: '{param}'."
    said = text.split(" - at", maxsplit=1)[0]
    return f"Invalid type for '{param}': {said[:1].lower()}{said[1:]}." if param else f"{said}."
