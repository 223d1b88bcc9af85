"""The dearest answer lately: what a request of no known bound is taken to cost at most, once others have been paid.

Of the last 64 to 128 answers, so that one dear answer does not hold a budget back for ever, and a few cheap ones do not
make it forgotten. A guess all the same: the next answer may be dearer.
"""

from __future__ import annotations

ANSWERS = 64


class Dearest:
    __slots__ = ("_answers", "_before", "_now")

    def __init__(self) -> None:
        self._answers = 0
        self._now = 0
        """The dearest of the last `_answers` ones."""
        self._before = -1
        """The dearest of the ANSWERS before those; -1: there were not so many."""

    def note(self, picousd: int) -> None:
        """An answer's known cost; 0 where nothing of it is known."""
        if self._answers == ANSWERS:
            self._before, self._now, self._answers = self._now, 0, 0
        self._answers += 1
        self._now = max(self._now, picousd)

    @property
    def is_new(self) -> bool:
        """Nothing was answered yet."""
        return not self._answers

    @property
    def may_be_out(self) -> int:
        """So many may be out on this guess: one until anything is answered, then twice as many as it was learned from,
        so that what is paid blindly stays in proportion; no bound (-1) once a whole ANSWERS were."""
        return -1 if self._before >= 0 else max(1, 2 * self._answers)

    @property
    def picousd(self) -> int:
        return max(self._now, self._before)
