"""Reads a 200 of /embeddings: vectors, no text; a list that lacks them is an empty answer."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from batchwright.core.failures import FailureKind, Flag
from batchwright.vendors.usage import NULL, Charge, Spent, Usage, charge_from, read_spent, usage_from


class Vector(msgspec.Struct, gc=False):
    embedding: Raw = NULL
    """A list of numbers, or base64; it is not decoded here."""


class EmbeddingsAnswer(msgspec.Struct, gc=False):
    data: list[Vector] | UnsetType | None = UNSET
    usage: Usage | None = None
    error: Any = None
    object: str | None = None
    type: str | None = None
    infrai: Charge | None = None


EMBEDDINGS_DECODER = msgspec.json.Decoder(EmbeddingsAnswer)
_EMPTY = (b"", b"null", b"[]", b'""')


def is_plain(answer: EmbeddingsAnswer) -> bool:
    data = answer.data
    if not data:
        return False
    return all(bytes(vector.embedding) not in _EMPTY for vector in data)


def ending(answer: EmbeddingsAnswer) -> tuple[Flag | FailureKind, str]:
    """How a 200 without an error object ended that is not plain, and for a failure a sentence."""
    if answer.data is UNSET:
        return FailureKind.BAD_RESPONSE, "the answer has no data; is the base URL that of an OpenAI-shaped API?"
    return Flag.EMPTY, ""


def read_input_spent(usage: Usage | None) -> Spent:
    """All that is counted is input, and some vendors send a total alone."""
    if usage is not None and usage.prompt_tokens is None and usage.input_tokens is None:
        usage.prompt_tokens = usage.total_tokens
    return read_spent(usage)


def loose_embeddings(value: dict[str, object]) -> EmbeddingsAnswer:
    """An answer whose fields are not of the types they should be: what fits is taken, the rest counts as absent."""
    data = value.get("data", UNSET)
    found: list[Vector] | UnsetType | None = None if data is None else UNSET
    if isinstance(data, list):
        found = [Vector(_shown(item.get("embedding"))) for item in data if isinstance(item, dict)]
    return EmbeddingsAnswer(
        data=found,
        usage=usage_from(value.get("usage")),
        error=value.get("error"),
        infrai=charge_from(value.get("infrai")),
    )


def _shown(embedding: object) -> Raw:
    """Whether there is one; what is in it is of no interest here."""
    return Raw(b"[0]") if isinstance(embedding, (list, str)) and embedding else NULL
