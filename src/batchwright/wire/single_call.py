"""What has to be read of a single call's body; everything else of it goes to the vendor as it came."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec import Raw

from batchwright.wire.endpoint_bodies import NULL
from batchwright.wire.json_text import kind_of
from batchwright.wire.row_checks import explain_body, read_body
from batchwright.wire.row_shapes import encode, read_fields


class BadCall(ValueError):
    """The body is none that could be sent anywhere. Its text says what was found and what was expected."""

    def __init__(self, message: str, *, code: str, param: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    model: str
    """Empty: names none."""
    stream: bool
    output_tokens: int
    """As `InputRow.output_tokens`."""


class _Top(msgspec.Struct, gc=False):
    model: Raw = NULL
    stream: Raw = NULL


_read_top = msgspec.json.Decoder(_Top).decode
_read_text = msgspec.json.Decoder(str).decode


def read_call(body: bytes, endpoint: str) -> CallFacts:
    """Raises BadCall for what is no JSON object in UTF-8, and for a model that is no string."""
    try:
        body.decode("utf-8")
        top = _read_top(body)
        kind = kind_of(bytes(top.model))
        model = _read_text(top.model) if kind == "string" else ""
    except msgspec.ValidationError:
        raise BadCall(f"The body must be a JSON object, got {kind_of(body.strip())}.", code="invalid_json") from None
    except RecursionError:
        raise BadCall("Brackets are nested too deeply to be read.", code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadCall(f"The body is not valid JSON in UTF-8: {error}.", code="invalid_json") from None
    if kind not in ("string", "null"):
        raise BadCall(f"model must be a string, got {kind}.", code="invalid_type", param="model")
    facts = read_body(body, endpoint) or explain_body(body, endpoint)[0]
    return CallFacts(model=model, stream=bytes(top.stream) == b"true", output_tokens=facts.output_tokens)


def with_model(body: bytes, model: str) -> bytes:
    """The body with this model; every other field has the bytes it had."""
    return encode(read_fields(body) | {"model": Raw(encode(model))})
