"""What the rows of a batch look like together: one pass, in memory that does not grow with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from batchwright.core import row_map
from batchwright.core.records import Record
from batchwright.core.rows import RowView
from batchwright.core.spread import Spread
from batchwright.wire.answer_lines import content_text
from batchwright.wire.reply import read_reply

MAX_DISTINCT = 10_000
"""Different answers (finish reasons, models) that are told apart; rows of others are counted together."""
MAX_ANSWER_CHARS = 80
"""An answer that is longer is no label, and is not counted as one."""
OTHERS = "(others)"


@dataclass(slots=True)
class Counted:
    """How often each text occurs, of the first MAX_DISTINCT different ones."""

    counts: dict[str, int] = field(default_factory=dict)
    others: int = 0

    def add(self, text: str) -> None:
        if text in self.counts:
            self.counts[text] += 1
        elif len(self.counts) < MAX_DISTINCT:
            self.counts[text] = 1
        else:
            self.others += 1

    def most_common(self, at_most: int) -> list[tuple[str, int]]:
        """Of equals the one met first."""
        return sorted(self.counts.items(), key=lambda pair: -pair[1])[:at_most]


@dataclass(slots=True)
class ModelSums:
    rows: int = 0
    ok: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_picousd: int = 0
    incomplete: int = 0
    """Rows of whose cost something is not known."""


@dataclass(slots=True)
class BatchStats:
    rows: int = 0
    by_byte: dict[int, int] = field(default_factory=dict)
    finish_reasons: Counted = field(default_factory=Counted)
    answers: Counted = field(default_factory=Counted)
    long_answers: int = 0
    """Longer than MAX_ANSWER_CHARS."""
    output_tokens: Spread = field(default_factory=Spread)
    input_tokens: Spread = field(default_factory=Spread)
    answer_chars: Spread = field(default_factory=Spread)
    latency_ms: Spread = field(default_factory=Spread)
    """Of the attempt that ended a row, rows without success too."""
    attempts: Spread = field(default_factory=Spread)
    models: dict[tuple[str, str], ModelSums] = field(default_factory=dict)
    """By vendor and model, at most MAX_DISTINCT; what comes later is under OTHERS."""

    def add(self, views: Sequence[RowView]) -> None:
        for view in views:
            self.rows += 1
            self.by_byte[view.byte] = self.by_byte.get(view.byte, 0) + 1
            if view.record is not None and row_map.is_end(view.byte):
                self._add_ended(view, view.record)

    def _add_ended(self, view: RowView, record: Record) -> None:
        succeeded = row_map.is_success(view.byte)
        if record.latency_ms:
            self.latency_ms.add(record.latency_ms)
        self.attempts.add(view.attempts)
        sums = self._model(record.vendor, view.input.model)
        sums.rows += 1
        sums.ok += succeeded
        sums.cost_picousd += record.cost_picousd
        sums.incomplete += bool(record.unpriced or record.no_usage)
        if record.prompt_tokens >= 0:
            self.input_tokens.add(record.prompt_tokens)
            sums.prompt_tokens += record.prompt_tokens
        if record.completion_tokens >= 0:
            self.output_tokens.add(record.completion_tokens)
            sums.completion_tokens += record.completion_tokens
        if succeeded:
            self._add_answer(record)

    def _add_answer(self, record: Record) -> None:
        reply = read_reply(record.body)
        self.finish_reasons.add(content_text(bytes(reply.finish_reason))[:MAX_ANSWER_CHARS])
        text = content_text(bytes(reply.content))
        self.answer_chars.add(len(text))
        label = text.strip()
        if len(label) <= MAX_ANSWER_CHARS:
            self.answers.add(label)
        else:
            self.long_answers += 1

    def _model(self, vendor: str, model: str) -> ModelSums:
        key = (vendor, model)
        if key not in self.models and len(self.models) >= MAX_DISTINCT:
            key = ("", OTHERS)
        return self.models.setdefault(key, ModelSums())

    @property
    def are_labels(self) -> bool:
        """The answers look like those of a classification: short ones that come again."""
        told = sum(self.answers.counts.values())
        return told > 0 and not self.answers.others and len(self.answers.counts) * 2 <= told
