"""What an answer says was used and charged. Shared by all readers of answers; every field may be missing."""

from __future__ import annotations

import msgspec

from batchwright.core.money import picousd_from_usd
from batchwright.core.pricing import MAX_ANSWER_PICOUSD
from batchwright.core.records import UNKNOWN

NULL = msgspec.Raw(b"null")
"""The default of a field kept raw. (`Raw | None` would mean null only, and refuse everything else.)"""
MAX_TOKENS = 10**9
"""More for one row is a slip, and counts as not known."""


class CachedTokens(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: CachedTokens | None = None
    prompt_cache_hit_tokens: int | None = None
    """DeepSeek's name for cached tokens."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: CachedTokens | None = None
    """These three are the names of /responses."""
    cost: msgspec.Raw = NULL


class Charge(msgspec.Struct, gc=False):
    """The `infrai` object beside an answer."""

    cost_usd: msgspec.Raw = NULL


class Spent(msgspec.Struct, frozen=True, gc=False):
    prompt_tokens: int = UNKNOWN
    completion_tokens: int = UNKNOWN
    cached_tokens: int = UNKNOWN


NOTHING_SAID = Spent()


def read_spent(usage: Usage | None) -> Spent:
    """Token counts in our words; UNKNOWN, never 0, for what was not said."""
    if usage is None:
        return NOTHING_SAID
    prompt = usage.prompt_tokens if usage.prompt_tokens is not None else usage.input_tokens
    completion = usage.completion_tokens if usage.completion_tokens is not None else usage.output_tokens
    if completion is None and prompt is not None and usage.total_tokens is not None:
        completion = usage.total_tokens - prompt  # /embeddings sends no count of output, but a total
    details = usage.prompt_tokens_details or usage.input_tokens_details
    cached = details.cached_tokens if details is not None else None
    if cached is None:
        cached = usage.prompt_cache_hit_tokens
    return Spent(_count(prompt), _count(completion), _count(cached))


def _count(value: int | None) -> int:
    return value if value is not None and 0 <= value < MAX_TOKENS else UNKNOWN


def read_cost(amount: msgspec.Raw | str) -> int:
    """An amount of USD, a JSON number or a string of one, as picousd; UNKNOWN for anything else."""
    text = amount if isinstance(amount, str) else bytes(amount).decode("utf-8", "replace")
    try:
        picousd = picousd_from_usd(text.strip().strip('"'))
    except (ValueError, ArithmeticError):
        return UNKNOWN
    return picousd if 0 <= picousd <= MAX_ANSWER_PICOUSD else UNKNOWN


def usage_from(value: object) -> Usage | None:
    """A usage object whose fields are not of the types they should be: what can be read counts (whole floats too)."""
    if not isinstance(value, dict):
        return None
    whole = {key: int(n) for key, n in value.items() if isinstance(n, (int, float)) and _is_whole(n)}
    usage = Usage()
    for name in _COUNTS:
        setattr(usage, name, whole.get(name))
    for name in ("prompt_tokens_details", "input_tokens_details"):
        inner = value.get(name)
        cached = inner.get("cached_tokens") if isinstance(inner, dict) else None
        if isinstance(cached, (int, float)) and _is_whole(cached):
            setattr(usage, name, CachedTokens(int(cached)))
    cost = value.get("cost")
    if isinstance(cost, (int, float, str)):
        usage.cost = msgspec.Raw(str(cost).encode())
    return usage


def charge_from(value: object) -> Charge | None:
    """The `infrai` object of a body that had to be read without types."""
    cost = value.get("cost_usd") if isinstance(value, dict) else None
    return Charge(msgspec.Raw(str(cost).encode())) if isinstance(cost, (int, float, str)) else None


_COUNTS = (
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "prompt_cache_hit_tokens",
    "input_tokens",
    "output_tokens",
)


def _is_whole(number: float) -> bool:
    return not isinstance(number, bool) and abs(number) < MAX_TOKENS and number == int(number)
