"""The gate: a batch whose first rows all fail in the same way is stopped before the rest is spent on it.

It shuts when the first GATE_ROWS rows that end in a round all ended as the same failure (kind, vendor code and
parameter), and has passed as soon as one row ends in any other way. A batch, or a round, with fewer rows never meets
it. An attempt that will be repeated is no end and says nothing, so a failure here is always one for good: refused by
the vendor, or out of attempts.
"""

from __future__ import annotations

from enum import Enum, StrEnum

from batchwright.core.failures import FailureKind
from batchwright.core.row_map import CLOSING_KINDS

GATE_ROWS = 25
"""Enough to be no accident, few enough to be cheap."""

REFUSALS = frozenset(
    {
        FailureKind.INVALID_REQUEST,
        FailureKind.MODEL_NOT_FOUND,
        FailureKind.CONTEXT_TOO_LONG,
        FailureKind.TOO_LARGE,
        FailureKind.CONTENT_FILTERED,
    }
)
"""The vendor read the row and refused it; for the sentence only."""


class OnGate(StrEnum):
    """What a batch does whose gate shuts."""

    PAUSE = "pause"
    """It waits for a person; the same command tries again."""
    STOP = "stop"
    """It ends: what is left ends as stopped, and a retry opens it again."""


class GateRule(StrEnum):
    """What a batch was submitted with: a way to end, or no gate at all."""

    PAUSE = OnGate.PAUSE.value
    STOP = OnGate.STOP.value
    OFF = "off"


class GateVerdict(Enum):
    OPEN = "open"
    """Not decided yet."""
    PASSED = "passed"
    SHUT = "shut"


class Gate:
    """One batch's gate in one round, at one worker."""

    __slots__ = ("_seen", "_way", "_which", "sentence", "verdict")

    def __init__(self, *, begun: bool = False) -> None:
        """`begun`: rows of the batch were sent before."""
        self._which = "next" if begun else "first"
        self._seen = 0
        self._way: tuple[FailureKind, str, str] | None = None
        self.verdict = GateVerdict.OPEN
        self.sentence = ""
        """Once SHUT: what was seen, for a person ("first 25 rows all refused: unsupported_parameter max_tokens")."""

    def note(self, kind: FailureKind | None, code: str, param: str) -> GateVerdict:
        """One row of the batch ended; `kind` None: well. A row closed from outside (cancelled, expired, stopped) says
        nothing; once the verdict is PASSED or SHUT nothing changes it."""
        if self.verdict is not GateVerdict.OPEN or kind in CLOSING_KINDS:
            return self.verdict
        if kind is None:
            self.verdict = GateVerdict.PASSED
            return self.verdict
        way = (kind, code, param)
        if self._way is None:
            self._way = way
        if way != self._way:
            self.verdict = GateVerdict.PASSED
            return self.verdict
        self._seen += 1
        if self._seen >= GATE_ROWS:
            self.verdict = GateVerdict.SHUT
            self.sentence = _sentence(f"{self._which} {GATE_ROWS}", way)
        return self.verdict

    def allowed_in_flight(self, total_rows: int) -> int:
        """How many rows of the batch may be out now, where the round has `total_rows` to send: all of them once it has
        passed or where it can never shut, none when it is shut, else as many as it would take to shut it."""
        if self.verdict is GateVerdict.SHUT:
            return 0
        if self.verdict is GateVerdict.PASSED or total_rows < GATE_ROWS:
            return total_rows
        return GATE_ROWS - self._seen


def _sentence(rows: str, way: tuple[FailureKind, str, str]) -> str:
    kind, code, param = way
    verb = "refused" if kind in REFUSALS else "failed"
    named = code if code and code != kind.value else kind.value
    return f"{rows} rows all {verb}: {named} {param}".rstrip()
