"""The small bodies of Infrai's face: what a retry, a pause, a resume asks. No body at all is an empty object, and a
field that is null is one that was left out."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import msgspec

from batchwright.core.durations import shown
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.fair_share import PRIORITY_MAX
from batchwright.wire.bad_body import BadBody
from batchwright.wire.infrai_submit import (
    MAX_KEY_CHARS,
    param_of,
    read_choice,
    read_max_cost,
    read_timeout,
    sentence_of,
)
from batchwright.wire.json_text import BOM, mend_surrogates

MAX_REASON_CHARS = 500
PAUSED_BY_USER = "paused by its user"
MAX_ROUND = 2**31


class RetryAs(StrEnum):
    ROUND = "round"
    """In place: the same batch, a new round."""
    NEW = "new"
    """The same rows as a batch of their own."""


class RetryCall(msgspec.Struct, kw_only=True, frozen=True):
    how: RetryAs
    kinds: frozenset[FailureKind]
    flags: frozenset[Flag]
    """Both empty: every row without success."""
    timeout_s: float
    """0: not said."""
    max_cost_picousd: int
    """-1: not said."""
    gate: bool
    """Whether rows that all fail alike stop it."""
    round: int
    """The round whose rows are meant; -1: whichever it is."""
    idempotency_key: str


class _Empty(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class _Pause(_Empty, forbid_unknown_fields=True, kw_only=True):
    reason: str | None = None


class _Resume(_Empty, forbid_unknown_fields=True, kw_only=True):
    max_cost_usd: str | int | float | None = None


class _Priority(_Empty, forbid_unknown_fields=True, kw_only=True):
    priority: int | float


class _Retry(_Empty, forbid_unknown_fields=True, kw_only=True, rename={"how": "as"}):
    how: str | None = None
    kinds: list[str] | None = None
    flags: list[str] | None = None
    batch_timeout: str | int | float | None = None
    max_cost_usd: str | int | float | None = None
    gate: bool | None = None
    round: int | float | None = None
    idempotency_key: str | None = None


_T = TypeVar("_T", bound=_Empty)


def read_nothing(body: bytes) -> None:
    """Raises BadBody, as all here, for a body that says more than the call can do."""
    _decode(body, _Empty)


def read_pause(body: bytes) -> str:
    """The reason."""
    given = _decode(body, _Pause).reason
    reason = PAUSED_BY_USER if given is None else given.strip()
    if not 0 < len(reason) <= MAX_REASON_CHARS:
        raise BadBody(f"reason: expected 1 to {MAX_REASON_CHARS} characters, found {len(reason)}", "reason")
    return reason


def read_resume(body: bytes) -> int:
    """The new cap in 1e-12 USD; -1: the cap stays."""
    return read_max_cost(_decode(body, _Resume).max_cost_usd)


def read_priority(body: bytes) -> int:
    """From -PRIORITY_MAX to PRIORITY_MAX."""
    priority = _decode(body, _Priority).priority
    if not (-PRIORITY_MAX <= priority <= PRIORITY_MAX and priority == int(priority)):
        raise BadBody(
            f"priority: expected a whole number from {-PRIORITY_MAX} to {PRIORITY_MAX}, found {shown(priority)}",
            "priority",
        )
    return int(priority)


def read_retry(body: bytes) -> RetryCall:
    found = _decode(body, _Retry)
    how = RetryAs(read_choice("as", RetryAs.ROUND if found.how is None else found.how, tuple(RetryAs)))
    key = found.idempotency_key or ""
    if len(key) > MAX_KEY_CHARS:
        raise BadBody(f"idempotency_key has {len(key)} characters; at most {MAX_KEY_CHARS}", "idempotency_key")
    if found.round is not None and not (0 <= found.round <= MAX_ROUND and found.round == int(found.round)):
        raise BadBody(f"round: expected a whole number from 0, found {shown(found.round)}", "round")
    if how is RetryAs.ROUND:
        _refuse_in_place(found)
    return RetryCall(
        how=how,
        kinds=frozenset(FailureKind(read_choice("kinds", kind, tuple(FailureKind))) for kind in found.kinds or ()),
        flags=frozenset(Flag(read_choice("flags", flag, tuple(Flag))) for flag in found.flags or ()),
        timeout_s=read_timeout(found.batch_timeout),
        max_cost_picousd=read_max_cost(found.max_cost_usd),
        gate=found.gate is not False,
        round=-1 if found.round is None else int(found.round),
        idempotency_key=key,
    )


def _refuse_in_place(found: _Retry) -> None:
    """What a new round could not keep to is no option of it."""
    if found.max_cost_usd is not None:
        raise BadBody("max_cost_usd: a new round keeps the batch's cap; `as` new takes another", "max_cost_usd")
    if found.idempotency_key:
        raise BadBody(
            "idempotency_key: a new round takes `round`, the round whose rows are meant; `as` new takes a key",
            "idempotency_key",
        )


def _decode(body: bytes, form: type[_T]) -> _T:
    body = body.removeprefix(BOM)
    try:
        return msgspec.json.decode(body.strip() or b"{}", type=form)
    except msgspec.ValidationError as error:
        raise BadBody(sentence_of(error, form.__struct_encode_fields__), param_of(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        mended = mend_surrogates(body)
        if mended != body:
            return _decode(mended, form)
        raise BadBody(f"the body is not JSON: {error}", json=False) from None
