"""The report of a batch: pure, from its status and what a pass over its rows gathered. `report_text` says it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from batchwright.core import row_map
from batchwright.core.batch_spec import VendorProtocol
from batchwright.core.batch_state import BatchState
from batchwright.core.failures import KINDS, FailureKind, Flag
from batchwright.core.object_urls import ObjectURL
from batchwright.ports.batches import BatchStatus
from batchwright.runner.gather import AnsweredBy, Gathered, Sample
from batchwright.runner.law import InputCount, Law, check
from batchwright.runner.standing import flags_of

EXIT_OK = 0
EXIT_OUR_FAULT = 1
EXIT_REFUSED = 2
EXIT_SOME_FAILED = 3
EXIT_NONE_SUCCEEDED = 4
EXIT_PAUSED = 5
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Rows that ended alike. `sample` None: only counted (the rows were not read)."""

    kind: FailureKind
    code: str
    param: str
    count: int
    sample: Sample | None

    @property
    def retryable(self) -> bool:
        """May the same rows succeed in another round, unchanged?"""
        return KINDS[self.kind].retryable


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long this command worked on the batch. `NOTHING_DONE`: it found the batch ended."""

    wall_s: float
    rows_ended: int
    """Since this command began to work on it."""
    part: str = ""
    """What figures of this command's own are called, where a part of the batch was done before it or is done by others:
    `this command`, `while it was watched`. Empty: all of it is of this command."""
    by_others: bool = False
    """What this command opened had ended, at other workers, before it could begin to work on it."""


NOTHING_DONE = Timing(wall_s=0.0, rows_ended=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """Of answers that did not match the batch's schema, over all rounds."""

    asked: int
    """Requests that asked for an answer again; retries of them are not counted."""
    rows: int
    mended: int
    """Of these rows, those whose answer matches now."""
    mismatch: Sample | None
    """A row whose answer was kept although it does not match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What this command wrote."""

    output: Path | ObjectURL | None
    """None: standard output."""
    rows: int
    failed_output: Path | ObjectURL | None = None
    failed_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report:
    """What is told of a batch at the end. As text: its first line ("4,988 ok, 12 failed of 5,000 in 2 min, $1.37")."""

    status: BatchStatus
    strict: bool
    flags: dict[Flag, int]
    """Successes with a flag other than PLAIN; only those that occur."""
    failures: tuple[FailureGroup, ...]
    """Every row without success is in one: what failed, the largest group first, then what was closed unsent."""
    rows_unpriced: int
    rows_no_usage: int
    repairs: Repairs | None
    """None: not known, the rows were not read."""
    exact_money: bool
    """The two figures above count rows; else (rows not read) answers."""
    models_unpriced: tuple[str, ...]
    workers_died: bool | None
    """Some rows were out, or set aside to be sent, when a worker died. None: not known, the rows were not read."""
    rows_shared: int
    """Rows that were not asked, for they repeat another; 0 also where the rows were not read."""
    may_have_been_sent: int
    """Of the cancelled, expired and stopped rows."""
    timing: Timing
    written: Written | None
    law: Law
    by_vendor: dict[str, AnsweredBy]
    """Answers, and what their rows cost, by who gave them; empty: only one could, or the rows were not read."""
    left_with: int = -1
    """The command's exit code where it is not the batch's state that decides it (interrupted, file not written)."""

    def __str__(self) -> str:
        from batchwright.runner.report_text import first_line  # which knows this page

        return first_line(self)

    def __repr__(self) -> str:
        return f"<Report on {self.status.batch_id}: {self}>"

    @property
    def ok(self) -> int:
        return self.status.counts.succeeded

    @property
    def simulated(self) -> bool:
        """Some destination was the simulator: nothing of its answers, prices and costs is real."""
        return any(destination.protocol is VendorProtocol.SIMULATED for destination in self.status.spec.destinations)

    @property
    def exit_code(self) -> int:
        if self.law.differences:
            return EXIT_OUR_FAULT
        if self.left_with >= 0:
            return self.left_with
        return exit_code(self.status, strict=self.strict)


def exit_code(status: BatchStatus, *, strict: bool) -> int:
    """What the command ends with, by the batch's state alone. An open batch was left: it is paused or interrupted."""
    match status.state:
        case BatchState.EXPIRED | BatchState.CANCELLED:
            return EXIT_NONE_SUCCEEDED
        case BatchState.REFUSED:
            return EXIT_REFUSED
        case BatchState.PAUSED:
            return EXIT_PAUSED
        case BatchState.ACCEPTING | BatchState.CANCELLING | BatchState.QUEUED | BatchState.RUNNING:
            return EXIT_INTERRUPTED
        case BatchState.COMPLETED | BatchState.PARTIAL | BatchState.FAILED:
            good = status.by_byte.get(row_map.PLAIN_SUCCESS, 0) if strict else status.counts.succeeded
            if good == status.total:
                return EXIT_OK
            return EXIT_SOME_FAILED if good else EXIT_NONE_SUCCEEDED
        case _:
            assert_never(status.state)


def build_report(
    status: BatchStatus,
    gathered: Gathered | None,
    *,
    timing: Timing,
    strict: bool = False,
    written: Written | None = None,
    read: InputCount | None = None,
) -> Report:
    """`gathered` None: the rows were not read; groups then have kinds and counts only."""
    law = check(status, gathered, written.rows if written is not None else None, read)
    return Report(
        status=status,
        strict=strict,
        flags=flags_of(status),
        failures=_groups(status, gathered),
        rows_unpriced=gathered.rows_unpriced if gathered is not None else status.tally.unpriced,
        rows_no_usage=gathered.rows_no_usage if gathered is not None else status.tally.no_usage,
        repairs=_repairs(gathered) if gathered is not None else None,
        exact_money=gathered is not None,
        models_unpriced=tuple(sorted(gathered.models_unpriced)) if gathered is not None else (),
        workers_died=gathered.rows_died_with > 0 if gathered is not None else None,
        rows_shared=gathered.rows_shared if gathered is not None else 0,
        may_have_been_sent=gathered.may_have_been_sent if gathered is not None else 0,
        timing=timing,
        written=written,
        law=law,
        by_vendor=(gathered.by_vendor or {}) if gathered is not None else {},
    )


def _repairs(gathered: Gathered) -> Repairs:
    return Repairs(
        asked=gathered.repairs, rows=gathered.rows_repaired, mended=gathered.rows_mended, mismatch=gathered.mismatch
    )


def _groups(status: BatchStatus, gathered: Gathered | None) -> tuple[FailureGroup, ...]:
    # That many rows were cancelled or stopped is no error to look into; why the others failed is.
    return tuple(sorted(_found_groups(status, gathered), key=lambda group: group.kind in row_map.CLOSING_KINDS))


def _found_groups(status: BatchStatus, gathered: Gathered | None) -> tuple[FailureGroup, ...]:
    if gathered is not None:
        return tuple(
            FailureGroup(kind=key.kind, code=key.code, param=key.param, count=group.count, sample=group.sample)
            for key, group in gathered.most_frequent()
        )
    by_kind = [
        (count, row_map.BYTE_KINDS[byte]) for byte, count in status.by_byte.items() if byte in row_map.BYTE_KINDS
    ]
    return tuple(
        FailureGroup(kind=kind, code="", param="", count=count, sample=None)
        for count, kind in sorted(by_kind, key=lambda pair: -pair[0])
    )
