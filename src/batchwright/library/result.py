"""One row's end, as a caller of the library gets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from batchwright.core import row_map
from batchwright.core.answer_schema import MATCHED_BYTES
from batchwright.core.failures import KINDS, FailureKind, Flag
from batchwright.core.money import PICO
from batchwright.core.records import UNKNOWN, Record, known_picousd
from batchwright.core.rows import RowView
from batchwright.wire.answer_values import mismatch_of, parsed_text
from batchwright.wire.json_text import read_value
from batchwright.wire.reply import read_reply
from batchwright.wire.results import failure_message, kind_of_end


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of the last answer; None where the vendor sent no figure."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowError:
    """Why a row has no success. `str` gives a sentence."""

    kind: FailureKind
    code: str
    """The vendor's own code, else that of the kind; never empty."""
    param: str
    """The parameter the vendor named; empty where it named none."""
    message: str
    http_status: int
    """The vendor's; 0 where no answer came."""
    retryable: bool
    """May the same row succeed another time, unchanged?"""

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one row."""

    index: int
    """Position in the input, 0-based."""
    custom_id: str | None
    ok: bool
    content: Any
    """The answer's text (a list of parts where the vendor sent one); None without success or without text."""
    flag: Flag
    """PLAIN, or what is remarkable about a success."""
    parsed: Any
    """Under a schema, the value that the answer's JSON is (of a Pydantic class an instance); None where it has none
    that matches, and without a schema."""
    mismatch: str
    """Why it has none, where there is an answer; empty elsewhere."""
    error: RowError | None
    """None exactly when `ok`."""
    usage: Usage
    cost_usd: Decimal | None
    """Over all attempts. None where nothing is known of it: never 0 for not known."""
    attempts: int
    raw_response: bytes
    """The vendor's whole last answer, as it came; empty where none came."""

    @property
    def response(self) -> Any:
        """The vendor's answer, decoded; None where none came, its text where it is no JSON."""
        if not self.raw_response:
            return None
        return read_value(read_reply(self.raw_response).whole)


@dataclass(frozen=True, slots=True)
class Parsed:
    value: Any = None
    mismatch: str = ""


UNCHECKED = Parsed()


def result_of(view: RowView, *, checked: bool = False, model: Callable[[bytes], Any] | None = None) -> Result:
    """`view` has ended. `checked`: its batch has a schema; `model` makes an instance of a value that matches, given as
    JSON."""
    record, ok = view.record, row_map.is_success(view.byte)
    body = record.body if record is not None else b""
    parsed = _parsed(view, model) if checked else UNCHECKED
    return Result(
        index=view.request_index,
        custom_id=view.input.custom_id,
        ok=ok,
        content=read_value(read_reply(body).content) if ok else None,
        flag=row_map.BYTE_FLAGS.get(view.byte, Flag.PLAIN),
        parsed=parsed.value,
        mismatch=parsed.mismatch,
        error=None if ok else _error_of(view),
        usage=Usage(
            prompt_tokens=_known(record.prompt_tokens if record is not None else UNKNOWN),
            completion_tokens=_known(record.completion_tokens if record is not None else UNKNOWN),
            cached_tokens=_known(record.cached_tokens if record is not None else UNKNOWN),
        ),
        cost_usd=_cost_of(record),
        attempts=view.attempts,
        raw_response=body,
    )


def _parsed(view: RowView, model: Callable[[bytes], Any] | None) -> Parsed:
    """A class may ask for more than its JSON schema says: then the value is none, and `mismatch` says why."""
    if view.byte not in MATCHED_BYTES:
        return Parsed(mismatch=mismatch_of(view))
    text = parsed_text(view)
    if model is None:
        return Parsed(json.loads(text))
    try:
        return Parsed(model(text))
    except ValueError as error:  # as pydantic's own are
        return Parsed(mismatch=str(error))


def _error_of(view: RowView) -> RowError:
    kind = kind_of_end(view)
    # What a closed row's record says is how an earlier attempt ended, not why the row did.
    cause = view.record if kind not in row_map.CLOSING_KINDS else None
    return RowError(
        kind=kind,
        code=(cause.code if cause is not None else "") or KINDS[kind].code,
        param=cause.param if cause is not None else "",
        message=failure_message(view, kind),
        http_status=cause.http_status if cause is not None else 0,
        retryable=KINDS[kind].retryable,
    )


def _known(count: int) -> int | None:
    return None if count == UNKNOWN else count


def _cost_of(record: Record | None) -> Decimal | None:
    picousd = known_picousd(record)
    return None if picousd is None else Decimal(picousd) / PICO
