"""Bodies of `POST /v1/account/keys/*`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from batchwright.core.durations import read_duration
from batchwright.core.money import read_amount
from batchwright.core.tenants import Scope
from batchwright.wire.bad_body import BadBody

MAX_NAME_CHARS = 200
MAX_RPM = 10**9

T = TypeVar("T", bound=msgspec.Struct)


class _Create(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    scopes: list[str] | None = None
    expires: str | float | None = None
    budget_usd: str | float | None = None
    rpm: int | None = None


class _Budget(msgspec.Struct, forbid_unknown_fields=True):
    budget_usd: str | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBody:
    name: str
    scopes: frozenset[Scope]
    expires_s: float
    """0: never."""
    budget_picousd: int
    """-1: no bound."""
    rpm: int
    """0: no bound."""


def read_key_body(body: bytes) -> KeyBody:
    """Raises BadBody."""
    asked = _decode(body, _Create)
    name = asked.name or ""
    if len(name) > MAX_NAME_CHARS:
        raise BadBody(f"name has {len(name)} characters; at most {MAX_NAME_CHARS}", "name")
    rpm = asked.rpm or 0
    if asked.rpm is not None and not 1 <= rpm <= MAX_RPM:
        raise BadBody(f"rpm: expected a whole number of at least 1, found {asked.rpm}", "rpm")
    return KeyBody(
        name=name,
        scopes=_scopes(asked.scopes),
        expires_s=_expires_s(asked.expires),
        budget_picousd=_budget(asked.budget_usd),
        rpm=rpm,
    )


def read_budget_body(body: bytes) -> int:
    """`budget_usd` in 1e-12 USD; -1 for null: no bound. Raises BadBody."""
    return _budget(_decode(body, _Budget).budget_usd)


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$.")
        raise BadBody(f"the body is not as expected: {text}", path.rstrip("`").split(".")[0].split("[")[0]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadBody(f"the body is no JSON: {error}", json=False) from None


def _scopes(names: list[str] | None) -> frozenset[Scope]:
    if names is None:
        return frozenset({Scope.SUBMIT, Scope.READ})
    if not names or any(name not in tuple(Scope) for name in names):
        found = next((name for name in names if name not in tuple(Scope)), "none")
        raise BadBody(f"scopes: expected some of {', '.join(Scope)}, found {found[:40]!r}", "scopes")
    return frozenset(Scope(name) for name in names)


def _expires_s(value: str | float | None) -> float:
    if value is None:
        return 0.0
    try:
        return read_duration(value)
    except ValueError as error:
        raise BadBody(f"expires: {error}", "expires") from None


def _budget(value: str | float | None) -> int:
    if value is None:
        return -1
    try:
        return read_amount(value)
    except ValueError as error:
        raise BadBody(f"budget_usd: {error}", "budget_usd") from None
