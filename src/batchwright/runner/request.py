"""What `batchwright run` (and `batchwright.run`) was asked to do, settings already resolved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from batchwright.core.doubt import OnUncertain
from batchwright.core.row_options import RowOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    source: str | Path | Iterable[object]
    """A path, "-" for standard input, or rows from the library (dicts, or bytes/str of one JSON object each)."""
    output: Path | None = None
    """None: standard output (as JSONL)."""
    output_format: str = ""
    """`infrai`, `openai` or `csv`; empty: by the output's suffix, `infrai` unless `.csv`."""
    failed_output: Path | None = None
    rows: RowOptions = field(default_factory=RowOptions)
    skip_invalid: bool = False
    fresh: bool = False
    strict: bool = False
    """Flagged rows (truncated, refused, filtered, empty) count as failed for the exit code."""
    concurrency: int = 0
    rpm: int = 0
    tpm: int = 0
    timeout_s: float = 0.0
    max_attempts: int = 5
    max_cost_picousd: int = -1
    allow_unpriced: bool = False
    """With a cap: also rows without a bound or a price; the cap is then soft, and said to be."""
    deadline_s: float = 0.0
    on_uncertain: OnUncertain = OnUncertain.RETRY
    gate: bool = True
    simulate: bool = False
