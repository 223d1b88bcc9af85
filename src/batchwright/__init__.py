"""Batchwright: thousands to millions of LLM requests as one job, with nothing lost.

    import batchwright

    for result in batchwright.run("tickets.jsonl", model="gpt-4o-mini"):
        print(result.index, result.content if result.ok else result.error)

Names are imported when they are first used: the command's `--help` needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchwright.client.errors import (
        BadReply,
        BadRequest,
        BatchRejected,
        BusyThere,
        CreditSpent,
        IdempotencyConflict,
        KeyRefused,
        NoAnswer,
        NoSuchBatchThere,
        RateLimited,
        ServiceError,
        ServiceUnavailable,
        StateConflict,
    )
    from batchwright.client.values import (
        AccountShare,
        Batch,
        BatchPage,
        PauseFact,
        ResultsPage,
        RowFailure,
        RowResult,
        SubmittedBatch,
        TokenUsage,
        WaitingLane,
    )
    from batchwright.core.errors import (
        BatchPaused,
        BatchwrightError,
        CallerError,
        InputRefused,
        NotNow,
        StoreError,
        UsageError,
    )
    from batchwright.core.failures import FailureKind, Flag
    from batchwright.library.clients import AsyncClient, Client
    from batchwright.library.result import Result, RowError, Usage
    from batchwright.library.results import Results
    from batchwright.library.run import RowsFailed, run, run_async
    from batchwright.runner.report import Report

_HOMES = {
    "AsyncClient": "library.clients",
    "BadReply": "client.errors",
    "BadRequest": "client.errors",
    "Batch": "client.values",
    "BatchPage": "client.values",
    "BatchPaused": "core.errors",
    "BatchRejected": "client.errors",
    "BatchwrightError": "core.errors",
    "BusyThere": "client.errors",
    "CallerError": "core.errors",
    "Client": "library.clients",
    "CreditSpent": "client.errors",
    "FailureKind": "core.failures",
    "Flag": "core.failures",
    "IdempotencyConflict": "client.errors",
    "InputRefused": "core.errors",
    "KeyRefused": "client.errors",
    "NoAnswer": "client.errors",
    "NoSuchBatchThere": "client.errors",
    "NotNow": "core.errors",
    "RateLimited": "client.errors",
    "Report": "runner.report",
    "Result": "library.result",
    "Results": "library.results",
    "ResultsPage": "client.values",
    "RowError": "library.result",
    "RowFailure": "client.values",
    "RowResult": "client.values",
    "RowsFailed": "library.run",
    "ServiceError": "client.errors",
    "ServiceUnavailable": "client.errors",
    "StateConflict": "client.errors",
    "StoreError": "core.errors",
    "SubmittedBatch": "client.values",
    "TokenUsage": "client.values",
    "Usage": "library.result",
    "UsageError": "core.errors",
    "PauseFact": "client.values",
    "AccountShare": "client.values",
    "WaitingLane": "client.values",
    "run": "library.run",
    "run_async": "library.run",
}

__all__ = [
    "AccountShare",
    "AsyncClient",
    "BadReply",
    "BadRequest",
    "Batch",
    "BatchPage",
    "BatchPaused",
    "BatchRejected",
    "BatchwrightError",
    "BusyThere",
    "CallerError",
    "Client",
    "CreditSpent",
    "FailureKind",
    "Flag",
    "IdempotencyConflict",
    "InputRefused",
    "KeyRefused",
    "NoAnswer",
    "NoSuchBatchThere",
    "NotNow",
    "PauseFact",
    "RateLimited",
    "Report",
    "Result",
    "Results",
    "ResultsPage",
    "RowError",
    "RowFailure",
    "RowResult",
    "RowsFailed",
    "ServiceError",
    "ServiceUnavailable",
    "StateConflict",
    "StoreError",
    "SubmittedBatch",
    "TokenUsage",
    "Usage",
    "UsageError",
    "WaitingLane",
    "run",
    "run_async",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'batchwright' has no attribute '{name}'")
    value = getattr(import_module(f"batchwright.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
