"""What a 200 of each endpoint is read by: one entry an endpoint (`READERS`). Nothing here raises but the decoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from batchwright.core.endpoints import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from batchwright.core.failures import FailureKind, Flag
from batchwright.vendors import chat_answers, embeddings_answers, responses_answers
from batchwright.vendors.profiles import Profile
from batchwright.vendors.usage import Charge, Spent, Usage, charge_from, read_spent, usage_from


class Parsed(Protocol):
    """What is read of every answer, whatever else an endpoint's has."""

    usage: Usage | None
    error: Any
    object: str | None
    type: str | None
    infrai: Charge | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReader:
    """How answers of one endpoint are read. What `decode` and `loose` return is what the others take."""

    decode: Callable[[bytes], Any]
    """Typed, of the few fields needed. Raises msgspec.DecodeError for what is of other types, too."""
    loose: Callable[[dict[str, object]], Any]
    """Of an object whose fields are not of the types they should be: what fits is taken."""
    is_plain: Callable[[Any], bool]
    """What nearly every answer is, told without asking the profile."""
    ending: Callable[[Any, Profile], tuple[Flag | FailureKind, str]]
    """How any other ended that has no error object, and for a failure a sentence."""
    inner_error: Callable[[Any], object]
    """An error object further inside; None where there is none."""
    spent: Callable[[Usage | None], Spent] = read_spent
    takes_any: bool = False
    """JSON that is no object is an answer too."""


class OtherAnswer(msgspec.Struct, gc=False):
    """What is read of an endpoint whose answers we do not know."""

    usage: Usage | None = None
    error: Any = None
    object: str | None = None
    type: str | None = None
    infrai: Charge | None = None


def _loose_other(value: dict[str, object]) -> OtherAnswer:
    return OtherAnswer(
        usage=usage_from(value.get("usage")), error=value.get("error"), infrai=charge_from(value.get("infrai"))
    )


def _no_error(_: object) -> object:
    return None


OTHER = AnswerReader(
    decode=msgspec.json.Decoder(OtherAnswer).decode,
    loose=_loose_other,
    is_plain=lambda _: True,
    ending=lambda _, __: (Flag.PLAIN, ""),
    inner_error=_no_error,
    takes_any=True,
)
"""Of an endpoint that has no entry: any JSON without an error object is a success."""
_CHAT = AnswerReader(
    decode=chat_answers.CHAT_DECODER.decode,
    loose=chat_answers.loose_chat,
    is_plain=chat_answers.is_ordinary,
    ending=chat_answers.ending,
    inner_error=chat_answers.first_error,
)
READERS: dict[str, AnswerReader] = {
    CHAT: _CHAT,
    COMPLETIONS: _CHAT,
    RESPONSES: AnswerReader(
        decode=responses_answers.RESPONSES_DECODER.decode,
        loose=responses_answers.loose_responses,
        is_plain=lambda _: False,
        ending=lambda answer, _: responses_answers.ending(answer),
        inner_error=_no_error,
    ),
    EMBEDDINGS: AnswerReader(
        decode=embeddings_answers.EMBEDDINGS_DECODER.decode,
        loose=embeddings_answers.loose_embeddings,
        is_plain=embeddings_answers.is_plain,
        ending=lambda answer, _: embeddings_answers.ending(answer),
        inner_error=_no_error,
        spent=embeddings_answers.read_input_spent,
    ),
}
