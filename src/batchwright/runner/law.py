"""Do the counts add up? Pure: what the tallies say against what one pass over the rows found and what was read in.

lines of the input = rows + blank lines + header lines + lines left out by --where or a sample
rows               = ok + failed + cancelled + expired + stopped
tallies            = rows counted one by one, byte by byte; cost of the batch = sum over its rows
lines written      = rows
"""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.core import row_map
from batchwright.core.money import usd_text
from batchwright.ports.batches import BatchStatus
from batchwright.runner.figures import count_text, plural
from batchwright.runner.gather import Gathered
from batchwright.runner.standing import ends_without_success


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCount:
    """What reading the whole input counted. Records, for a table."""

    lines: int
    rows: int
    blank: int
    left_out: int = 0
    """Lines of rows that `--where` does not take, or no sample picked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    sentence: str
    """The sum, for a person: "5,000 lines = 4,988 ok + 12 failed"."""
    differences: tuple[str, ...]
    """What does not add up; empty: everything does."""


def check(status: BatchStatus, gathered: Gathered | None, written: int | None, read: InputCount | None) -> Law:
    """`gathered` None: the rows were not passed over. `written` None: no file was. `read` None: input not read."""
    differences: list[str] = []
    counts = status.counts
    parts = [("ok", counts.succeeded), *ends_without_success(counts), ("open", counts.open)]
    total = sum(number for _, number in parts)
    if total != status.total:
        differences.append(f"the states add up to {count_text(total)} rows, the batch has {count_text(status.total)}")
    if status.terminal and counts.open:
        differences.append(f"the batch has ended, but {count_text(counts.open)} rows are open")
    if read is not None:
        differences += _input_differences(read, status.total)
    if gathered is not None and status.terminal:
        differences += _row_differences(status, gathered)
    if written is not None and written != status.total:
        differences.append(f"{count_text(written)} rows were written, the batch has {count_text(status.total)}")
    shown = " + ".join(f"{count_text(number)} {name}" for name, number in parts if number) or "0"
    return Law(sentence=f"{_lines_text(read, status.total)} = {shown}", differences=tuple(differences))


def _input_differences(read: InputCount, total: int) -> list[str]:
    found: list[str] = []
    if read.rows != total:
        found.append(f"the input has {count_text(read.rows)} rows, the batch {count_text(total)}")
    if read.rows + read.blank + read.left_out != read.lines:
        found.append(
            f"the input has {count_text(read.lines)} lines, but {count_text(read.rows)} rows, "
            f"{count_text(read.blank)} blank and {count_text(read.left_out)} left out were read"
        )
    return found


def _row_differences(status: BatchStatus, gathered: Gathered) -> list[str]:
    found: list[str] = []
    if gathered.rows != status.total:
        found.append(f"{count_text(gathered.rows)} rows can be read back, the batch has {count_text(status.total)}")
    for byte in sorted(set(status.by_byte) | set(gathered.by_byte)):
        told, counted = status.by_byte.get(byte, 0), gathered.by_byte.get(byte, 0)
        if told != counted:
            name = row_map.name_of(byte)
            found.append(f"{name}: the tallies say {count_text(told)}, the rows {count_text(counted)}")
    kept = status.spec.kept
    taken_over = 0 if kept is None else kept.answers
    # A retry may have asked some of these again.
    if gathered.rows_reused > taken_over or (not status.round and gathered.rows_reused != taken_over):
        found.append(
            f"{count_text(gathered.rows_reused)} rows have the answer of another batch, "
            f"{count_text(taken_over)} were taken over"
        )
    if gathered.cost_picousd != status.tally.cost_picousd:
        found.append(
            f"cost: the tallies say {usd_text(status.tally.cost_picousd)} USD, "
            f"the rows add up to {usd_text(gathered.cost_picousd)}"
        )
    return found


def _lines_text(read: InputCount | None, total: int) -> str:
    if read is None or read.lines == total:
        return plural(total, "input line" if read is not None else "row")
    beside = [f"{count_text(read.blank)} blank"] if read.blank else []
    beside += [f"{count_text(read.left_out)} left out"] if read.left_out else []
    return f"{count_text(read.lines)} input lines - {' - '.join(beside) or '0'} = {count_text(total)} rows"
