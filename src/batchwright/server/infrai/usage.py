"""`GET /v1/account/usage`: what the account used in the last days, summed in several ways.

All sums are of the same lines, so each list adds up to `total`; and what came by batches is the sum of what the rows'
items say, over all batches of those days, deleted ones included. The rest are single calls. A day is UTC's, and that
of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from batchwright.core.records import UsageKey, UsageSum
from batchwright.server.asking import Ask
from batchwright.server.capabilities import COUNT, TEXT, Schema, shape
from batchwright.server.envelope import known_usd

DAYS = 30
MAX_DAYS = 400
BATCHES = "ai.batch.submit"
"""The capability that rows of batches came by."""

_SUM: dict[str, Schema] = {
    "answers": COUNT,
    "prompt_tokens": COUNT,
    "completion_tokens": COUNT,
    "cached_tokens": COUNT,
    "total_tokens": COUNT,
    "cost_usd": {"type": "number"},
    "unpriced_count": COUNT,
}
USAGE = shape(
    {
        "since": TEXT,
        "until": TEXT,
        "days": COUNT,
        "currency": TEXT,
        "total": shape(_SUM),
        "by_capability": {"type": "array", "items": shape({"capability": TEXT, **_SUM})},
        "by_model": {"type": "array", "items": shape({"model": TEXT, **_SUM})},
        "by_vendor": {"type": "array", "items": shape({"vendor": TEXT, **_SUM})},
        "by_key": {"type": "array", "items": shape({"key_id": TEXT, "name": TEXT, **_SUM})},
        "by_day": {"type": "array", "items": shape({"day": TEXT, **_SUM})},
        "lines": {
            "type": "array",
            "items": shape({"day": TEXT, "model": TEXT, "vendor": TEXT, "key_id": TEXT, **_SUM}),
        },
    }
)

Lines = list[tuple[UsageKey, UsageSum]]


async def usage(ask: Ask) -> Response:
    days = ask.number("days", DAYS, least=1, most=MAX_DAYS)
    today = datetime.fromtimestamp(ask.service.clock.now_ms() / 1000, UTC).date()
    since = (today - timedelta(days=days - 1)).isoformat()
    lines = await ask.batches.usage(since_day=since)
    keys = await asyncio.to_thread(ask.service.keys.list_keys, ask.tenant.account)
    names = {key.key_id: key.name for key in keys}
    return ask.answer(
        {
            "since": since,
            "until": today.isoformat(),
            "days": days,
            "currency": "USD",
            "total": _numbers(_sum(lines)),
            "by_capability": _by(lines, "capability", _capability),
            "by_model": _by(lines, "model", lambda key: key.model),
            "by_vendor": _by(lines, "vendor", lambda key: key.vendor),
            "by_key": [
                {"key_id": found["key_id"], "name": names.get(str(found["key_id"]), ""), **found}
                for found in _by(lines, "key_id", lambda key: key.key_id)
            ],
            "by_day": _by(lines, "day", lambda key: key.day),
            "lines": _lines(lines),
        }
    )


def _capability(key: UsageKey) -> str:
    """`chat.completions`, `embeddings`, ... of single calls."""
    return key.endpoint.strip("/").replace("/", ".") or BATCHES


def _sum(lines: Lines) -> UsageSum:
    total = UsageSum()
    for _, used in lines:
        total.add(used)
    return total


def _by(lines: Lines, name: str, of: Callable[[UsageKey], str]) -> list[dict[str, object]]:
    groups: dict[str, Lines] = {}
    for line in lines:
        groups.setdefault(of(line[0]), []).append(line)
    return [{name: value, **_numbers(_sum(groups[value]))} for value in sorted(groups)]


def _lines(lines: Lines) -> list[dict[str, object]]:
    """By all of them at once, for whoever sums otherwise."""
    groups: dict[tuple[str, str, str, str], Lines] = {}
    for line in lines:
        key = line[0]
        groups.setdefault((key.day, key.model, key.vendor, key.key_id), []).append(line)
    return [
        {
            "day": day,
            "model": model,
            "vendor": vendor,
            "key_id": key_id,
            **_numbers(_sum(groups[day, model, vendor, key_id])),
        }
        for day, model, vendor, key_id in sorted(groups)
    ]


def _numbers(used: UsageSum) -> dict[str, object]:
    return {
        "answers": used.answers,
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.completion_tokens,
        "cached_tokens": used.cached_tokens,
        "total_tokens": used.prompt_tokens + used.completion_tokens,
        "cost_usd": known_usd(used.cost_picousd, unknown=used.unpriced + used.no_usage),
        "unpriced_count": used.unpriced + used.no_usage,
    }
