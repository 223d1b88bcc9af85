"""What `batchwright run` (and `batchwright.run`) was asked to do, settings already resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from batchwright.core.doubt import OnUncertain
from batchwright.core.failure_limit import FailureLimit
from batchwright.core.gate import OnGate
from batchwright.core.object_urls import ObjectURL
from batchwright.core.row_options import RowOptions
from batchwright.runner.object_inputs import OpenObjects


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast this process may go. No part of a batch's identity: the same command may come back with another.

    0 everywhere: as the batch was submitted, else the default.
    """

    concurrency: int = 0
    rpm: int = 0
    tpm: int = 0
    timeout_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Where the answers of a batch go, and how its end is judged."""

    output: Path | ObjectURL | None = None
    """None: standard output (as JSONL)."""
    output_format: str = ""
    """`infrai`, `openai`, `csv`, `parquet`, `arrow` or `feather`; empty: by the output's suffix, else `infrai`."""
    failed_output: Path | ObjectURL | None = None
    """Where the rows without success go, as valid input; None: nowhere."""
    strict: bool = False
    """Flagged rows (truncated, refused, ...) count as failed for the exit code."""
    nothing: bool = False
    """Write no rows at all (`watch`, and the library, which reads them from the store)."""
    force: bool = False
    """Also over a file that holds anything else than answers."""
    command: tuple[str, ...] = ()
    """The command as it was typed, for 'go on with: ...'; empty for the library."""


class Dedup(StrEnum):
    """Whether rows with the request of an earlier row share its answer."""

    OFF = "off"
    SURE = "sure"
    """Those at temperature 0; others are refused."""
    SAMPLES = "samples"
    """All of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Whose answers a batch takes over when it begins, for rows with the same request."""

    of_file: bool = False
    """Those of earlier batches of the same file; """
    batch: str = ""
    """with an id, or a prefix of one, those of this batch alone."""
    cache: bool = False
    """Also those of all other batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    source: str | Path | Iterable[object]
    """A path, "-" for standard input, or rows from the library (dicts, or bytes/str of one JSON object each)."""
    objects: OpenObjects | None = None
    """What reads a source that is an object of a store, `s3://...`."""
    delivery: Delivery = Delivery()
    pace: Pace = Pace()
    rows: RowOptions = field(default_factory=RowOptions)
    asked_for: str = ""
    """The vendor that the command names for its rows; a person is told if none of them goes there."""
    unset_keys: Mapping[str, str] = field(default_factory=dict)
    """By vendor, the variable of a key that is not set here."""
    skip_invalid: bool = False
    """Rows that cannot be sent end as failed; else one of them refuses the whole input."""
    group_prefix: bool | None = None
    """Rows whose prompts begin alike are sent one after another; None: where the vendor gains by it."""
    fresh: bool = False
    """A new batch, even if this very run exists."""
    reuse: Reuse = Reuse()
    dedup: Dedup = Dedup.OFF
    max_attempts: int = 5
    max_cost_picousd: int = -1
    """-1: no cap."""
    allow_unpriced: bool = False
    """With a cap: also rows without a bound or a price; the cap is then soft, and said to be."""
    deadline_s: float = 0.0
    """From the submit; 0: none."""
    on_uncertain: OnUncertain = OnUncertain.RETRY
    gate: bool = True
    on_gate: OnGate = OnGate.PAUSE
    stop_after: FailureLimit | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    """The caller's own words about the batch, kept with it and shown by `status`."""
