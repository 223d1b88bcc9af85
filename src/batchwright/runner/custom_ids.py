"""Are all custom_ids of a file different? Answered in memory that does not grow with the number of rows.

Hashes are collected, a full buffer is sorted and goes to disk as a run, and at the end the runs are compared range by
range. What is left are hashes that occur more than once: nearly always none, and then the file has been read once.
Otherwise it is read again and the ids behind those hashes are compared as text (`FirstLines`).

The hash is Python's own of a string: 64 bits, keyed by process, cheaper by an order of magnitude than a digest. It
never leaves this process, and no answer rests on it alone.
"""

from __future__ import annotations

import tempfile
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from batchwright.core.errors import Finding
from batchwright.core.rows import SourceRow
from batchwright.runner.spool import copying

RUN_IDS = 65_536
"""About so many hashes in memory at once: 512 KiB, and a few MiB for a moment when they are compared."""
MAX_REPEATED = 100_000
"""Distinct repeated ids that are told apart; a file with more is no file with a few slips (joined with itself?)."""

_HASH_BYTES = 8
_LOWEST = -(2**63)
_SPAN = 2**64


class CustomIds:
    """Collects the ids of one pass. `spool_dir`: where runs go; None is the system's temporary folder."""

    def __init__(self, spool_dir: Path | None, *, run_ids: int = RUN_IDS) -> None:
        self._spool_dir = spool_dir
        self._run_ids = run_ids
        self._buffer = array("q")
        self._runs: list[tuple[int, int]] = []
        """(first, end) of each run in the file, in hashes."""
        self._file: BinaryIO | None = None
        self._written = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, custom_ids: Iterable[str]) -> None:
        self._buffer.extend(map(hash, custom_ids))
        if len(self._buffer) >= self._run_ids:
            self._spill()

    def repeated(self) -> frozenset[int]:
        """Hashes that were added more than once, at most MAX_REPEATED + 1 of them. Ends the collection."""
        try:
            if not self._runs:
                return _more_than_once(self._buffer)
            self._spill()
            return self._compare_runs()
        finally:
            self.close()

    def close(self) -> None:
        """Lets go of the file. Harmless when called twice."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spill(self) -> None:
        if not self._buffer:
            return
        with copying(self._spool_dir):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._spool_dir)  # noqa: SIM115 (closed by close)
            self._file.write(array("q", sorted(self._buffer)).tobytes())
            self._file.flush()
        self._runs.append((self._written, self._written + len(self._buffer)))
        self._written += len(self._buffer)
        del self._buffer[:]

    def _compare_runs(self) -> frozenset[int]:
        """Cuts the hashes into ranges of about one buffer and compares each over all runs, every run read once."""
        ranges = -(-self._written // self._run_ids)
        step = max(64, 2 * self._run_ids // len(self._runs))
        cursors = [first for first, _ in self._runs]
        found: set[int] = set()
        for number in range(1, ranges + 1):
            bound = _LOWEST + _SPAN * number // ranges
            together = array("q")
            for run, (_, end) in enumerate(self._runs):
                cursors[run] = self._read_below(bound, cursors[run], end, step, together)
            found |= _more_than_once(together)
            if len(found) > MAX_REPEATED:
                break
        return frozenset(found)

    def _read_below(self, bound: int, cursor: int, end: int, step: int, into: array[int]) -> int:
        """Appends a run's hashes below `bound`, from `cursor` on; returns where the next range begins."""
        assert self._file is not None
        while cursor < end:
            self._file.seek(cursor * _HASH_BYTES)
            part = array("q")
            part.frombytes(self._file.read(min(step, end - cursor) * _HASH_BYTES))
            below = bisect_left(part, bound)
            into.extend(part[:below])
            cursor += below
            if below < len(part):
                break
        return cursor


def _more_than_once(hashes: array[int]) -> frozenset[int]:
    if len(set(hashes)) == len(hashes):
        return frozenset()
    return frozenset(value for value, count in Counter(hashes).items() if count > 1)


class FirstLines:
    """The second pass: for each id behind a repeated hash, the line it came on first."""

    def __init__(self, repeated: frozenset[int]) -> None:
        self._repeated = repeated
        self._lines: dict[str, int] = {}

    def earlier(self, custom_id: str, line: int) -> int:
        """The line an earlier row has this very id on; 0 if this is the first."""
        if hash(custom_id) not in self._repeated:
            return 0
        first = self._lines.setdefault(custom_id, line)
        return first if first != line else 0


def repeat_of(row: SourceRow, first: FirstLines) -> Finding | None:
    """What is wrong with a row whose custom_id an earlier one has; None: nothing."""
    custom_id = row.row.custom_id
    if custom_id is None:
        return None
    line = first.earlier(custom_id, row.row.line)
    if not line:
        return None
    shown = custom_id if len(custom_id) <= 100 else custom_id[:100] + "..."
    return Finding(
        line=row.row.line,
        code="duplicate_custom_id",
        message=f"custom_id '{shown}' already used at line {line}",
        param="custom_id",
    )
