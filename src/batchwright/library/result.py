"""One row's end, as a caller of the library gets it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from batchwright.core import row_map
from batchwright.core.failures import KINDS, FailureKind, Flag
from batchwright.core.money import PICO
from batchwright.core.records import UNKNOWN, Record, known_picousd
from batchwright.core.rows import RowView
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


def result_of(view: RowView) -> Result:
    """`view` has ended."""
    record, ok = view.record, row_map.is_success(view.byte)
    body = record.body if record is not None else b""
    return Result(
        index=view.request_index,
        custom_id=view.input.custom_id,
        ok=ok,
        content=read_value(read_reply(body).content) if ok else None,
        flag=row_map.BYTE_FLAGS.get(view.byte, Flag.PLAIN),
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
