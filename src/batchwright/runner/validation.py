"""What a reading of an input found: every fault counted, the first of them kept, and what the good rows would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from batchwright.core.errors import Finding, InputRefused
from batchwright.core.rows import SourceRow
from batchwright.runner.joining import PartMark, placed

MAX_FINDINGS = 1_000
"""Kept and shown; the others are counted by code."""
MAX_NAMES = 1_000
"""Distinct lanes and endpoints counted apart; rows beyond count as '(others)'."""
OTHERS = "(others)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """One reading of one input."""

    name: str
    lines: int
    """Of a table: its records below the header."""
    rows: int
    """Lines that are neither blank nor left out; `rows + blank + left_out = lines`, always."""
    blank: int
    left_out: int
    """Lines that `--where` does not take."""
    refused: int
    """Rows that cannot be sent."""
    body_bytes: int
    """Of the rows that can be sent."""
    findings: tuple[Finding, ...]
    """In line order, at most MAX_FINDINGS."""
    total: int
    """All findings; a row may have several."""
    by_code: dict[str, int]
    lanes: dict[str, int]
    """Rows that can be sent by `LaneKey` (as text): which vendor and model get how many."""
    endpoints: dict[str, int]
    columns: tuple[str, ...]

    @property
    def sendable(self) -> int:
        return self.rows - self.refused


class Collector:
    """Adds up a reading."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.total = 0
        self.refused = 0
        self.body_bytes = 0
        self.by_code: Counter[str] = Counter()
        self.lanes: Counter[str] = Counter()
        self.endpoints: Counter[str] = Counter()

    def check(self, rows: list[SourceRow]) -> list[SourceRow]:
        """Notes every finding; returns the rows that can be sent."""
        if not any(map(_finding, rows)):
            return rows
        good = [row for row in rows if row.finding is None]
        self.refused += len(rows) - len(good)
        for row in rows:
            if row.finding is not None:
                self.note(row.finding, *row.also)
        return good

    def add(self, good: list[SourceRow]) -> None:
        """Adds up what rows that can be sent would do. A run does without: its batch is counted in the store."""
        _count(self.lanes, [row.lane for row in good])
        _count(self.endpoints, [row.row.endpoint for row in good])
        self.body_bytes += sum([len(row.row.body) for row in good])

    def note(self, *findings: Finding) -> None:
        for finding in findings:
            self.total += 1
            self.by_code[finding.code] += 1
            if len(self.findings) < MAX_FINDINGS:
                self.findings.append(finding)

    def repeat(self, row: SourceRow, finding: Finding) -> None:
        """A row that was taken for good, whose custom_id turns out to be an earlier row's too."""
        if row.finding is None:
            self.refused += 1
            self.lanes[row.lane] -= 1
            self.endpoints[row.row.endpoint] -= 1
            self.body_bytes -= len(row.row.body)
        kept = self.findings
        self.total += 1
        self.by_code[finding.code] += 1
        kept.append(finding)
        if len(kept) > 2 * MAX_FINDINGS:
            self.first_findings()

    def report(self, name: str, marks: Sequence[PartMark]) -> ValidationReport:
        """What was added up; lines, rows, what was left out and columns are the reader's to fill in."""
        return ValidationReport(
            name=name,
            lines=0,
            rows=0,
            blank=0,
            left_out=0,
            refused=self.refused,
            body_bytes=self.body_bytes,
            findings=tuple(placed(finding, marks) for finding in self.first_findings()),
            total=self.total,
            by_code=dict(self.by_code),
            lanes={lane: count for lane, count in self.lanes.items() if count > 0},
            endpoints={endpoint: count for endpoint, count in self.endpoints.items() if count > 0},
            columns=(),
        )

    def first_findings(self) -> tuple[Finding, ...]:
        self.findings.sort(key=_line)
        del self.findings[MAX_FINDINGS:]
        return tuple(self.findings)


_finding = attrgetter("finding")
_line = attrgetter("line")


def _count(counts: Counter[str], names: Iterable[str]) -> None:
    counts.update(names)
    if len(counts) > MAX_NAMES:
        for name, count in counts.most_common()[MAX_NAMES - 1 :]:
            if name != OTHERS:
                counts[OTHERS] += count
                del counts[name]


def refuse(report: ValidationReport) -> InputRefused:
    """The error for an input with findings."""
    first = report.findings[0]
    rows = "row" if report.rows == 1 else "rows"
    others = " (--skip-invalid sends the others)" if report.refused < report.rows else ""
    return InputRefused(
        f"{report.name}: {report.refused:,} of {report.rows:,} {rows} cannot be sent, so none was{others}; "
        f"the first: {first.place}: {first.message}",
        report.findings,
        report.total,
    )


def empty(name: str, lines: int) -> InputRefused:
    return without_rows(name, "is empty" if not lines else f"has {lines:,} lines, all of them blank")


def without_rows(name: str, what: str) -> InputRefused:
    message = f"{what}; expected at least one row"
    return InputRefused(f"{name} {message}", (Finding(line=1, code="empty_file", message=message),))
