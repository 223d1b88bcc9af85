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
    from batchwright.library.result import Result, RowError, Usage
    from batchwright.library.results import Results
    from batchwright.library.run import RowsFailed, run, run_async
    from batchwright.runner.report import Report

_HOMES = {
    "BatchPaused": "core.errors",
    "BatchwrightError": "core.errors",
    "CallerError": "core.errors",
    "FailureKind": "core.failures",
    "Flag": "core.failures",
    "InputRefused": "core.errors",
    "NotNow": "core.errors",
    "Report": "runner.report",
    "Result": "library.result",
    "Results": "library.results",
    "RowError": "library.result",
    "RowsFailed": "library.run",
    "StoreError": "core.errors",
    "Usage": "library.result",
    "UsageError": "core.errors",
    "run": "library.run",
    "run_async": "library.run",
}

__all__ = [
    "BatchPaused",
    "BatchwrightError",
    "CallerError",
    "FailureKind",
    "Flag",
    "InputRefused",
    "NotNow",
    "Report",
    "Result",
    "Results",
    "RowError",
    "RowsFailed",
    "StoreError",
    "Usage",
    "UsageError",
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
