"""What is different between two sets of answers, row by row: sums, and some of the rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchwright.runner.pairing import Pair
from batchwright.wire.answer_lines import AnswerRow

MATRIX_CHARS, MATRIX_MAX = 40, 20
"""Answers that are counted against each other: short ones, and no more than so many different ones on a side."""
KEPT_CHARS = 2_000
"""Of an answer that is kept to be shown."""


@dataclass(slots=True)
class Side:
    """Sums over the rows that are in both, and of those that are in this one alone their number."""

    rows: int = 0
    alone: int = 0
    ok: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_picousd: int = 0
    without_cost: int = 0

    def add(self, row: AnswerRow) -> None:
        self.rows += 1
        self.ok += row.is_success
        self.prompt_tokens += row.prompt_tokens or 0
        self.completion_tokens += row.completion_tokens or 0
        self.cost_picousd += row.cost_picousd or 0
        self.without_cost += row.cost_picousd is None


@dataclass(slots=True)
class Difference:
    kept_max: int
    """Rows that are kept to be shown; 0: all."""
    one: Side = field(default_factory=Side)
    two: Side = field(default_factory=Side)
    same: int = 0
    changed: int = 0
    """Another outcome, or another answer."""
    outcomes_changed: int = 0
    """Of these, rows with another outcome."""
    other_request: int = 0
    """Rows in both that were asked something else; only told of batches, which have their requests."""
    outcomes: dict[tuple[str, str], int] = field(default_factory=dict)
    """(in one, in two): rows."""
    matrix: dict[tuple[str, str], int] | None = field(default_factory=dict)
    """The same of answers; None: they are no labels."""
    kept: list[Pair] = field(default_factory=list)
    _labels: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))

    @property
    def is_none(self) -> bool:
        return not (self.changed or self.one.alone or self.two.alone)

    def add(self, pair: Pair) -> None:
        one, two = pair
        if one is None or two is None:
            self.one.alone += two is None
            self.two.alone += one is None
            self._keep(pair)
            return
        self.one.add(one)
        self.two.add(two)
        self.other_request += bool(one.request and two.request and one.request != two.request)
        key = (one.outcome, two.outcome)
        self.outcomes[key] = self.outcomes.get(key, 0) + 1
        self._add_labels(one, two)
        if one.outcome == two.outcome and one.answer == two.answer:
            self.same += 1
            return
        self.changed += 1
        self.outcomes_changed += one.outcome != two.outcome
        self._keep(pair)

    def _add_labels(self, one: AnswerRow, two: AnswerRow) -> None:
        if self.matrix is None or not (one.is_success and two.is_success):
            return
        texts = one.answer.strip(), two.answer.strip()
        for labels, text in zip(self._labels, texts, strict=True):
            labels.add(text)
        if any(len(text) > MATRIX_CHARS for text in texts) or any(len(labels) > MATRIX_MAX for labels in self._labels):
            self.matrix = None
            return
        self.matrix[texts] = self.matrix.get(texts, 0) + 1

    def _keep(self, pair: Pair) -> None:
        if not self.kept_max or len(self.kept) < self.kept_max:
            for row in pair:
                if row is not None:
                    row.answer = row.answer[:KEPT_CHARS]
            self.kept.append(pair)
