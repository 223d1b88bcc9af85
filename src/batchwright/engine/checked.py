"""Answers of a batch with a schema: whether one matches, and the row that asks for it again.

Nothing here is on the way of batches without a schema. What was decided stands in `core.answer_schema`.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from batchwright.core import row_map
from batchwright.core.answer_schema import AnswerSchema, OnMismatch, answer_kept, ended_by_answer
from batchwright.core.failures import Flag
from batchwright.core.pricing import Price, worst_case
from batchwright.core.records import REPAIR_NEXT, InputRow, Record
from batchwright.engine.open_segment import OpenSegment
from batchwright.ports.vendor import Answer
from batchwright.wire.answer_values import text_of
from batchwright.wire.repair_bodies import repair_body
from batchwright.wire.reply import read_reply
from batchwright.wire.row_shapes import with_model

CUT_OFF = "the answer was cut off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    byte: int
    """What the row ends with; `row_map.PENDING`: it is asked for again."""
    finding: str
    """What is wrong; empty: it matches."""


class AnswerCheck:
    """One batch's, at one worker. `jsonschema` is imported when it is made."""

    def __init__(self, schema: AnswerSchema) -> None:
        from batchwright.wire.answer_match import AnswerMatch

        self.schema = schema
        self._match = AnswerMatch(schema.text)

    def judge(self, answer: Answer, *, repairs: int, may_repair: bool) -> Judgement:
        """Of a success. `repairs`: how many of them the row has had in this round."""
        byte = row_map.FLAG_BYTES[answer.flag]
        if answer.flag not in (Flag.PLAIN, Flag.TRUNCATED):
            if self.schema.on_mismatch is OnMismatch.FAIL:
                return Judgement(byte=self.schema.mismatch_byte, finding=f"the answer is {answer.flag.value}")
            return Judgement(byte=byte, finding="")
        finding = self._match.finding(answer.body)
        if not finding:
            return Judgement(byte=byte, finding="")
        if answer.flag is Flag.TRUNCATED:
            return Judgement(byte=self.schema.mismatch_byte, finding=f"{CUT_OFF}: {finding}")
        if may_repair and repairs < self.schema.repairs:
            return Judgement(byte=row_map.PENDING, finding=finding)
        return Judgement(byte=self.schema.mismatch_byte, finding=finding)

    def ask_again(self, segment: OpenSegment, note: Record, price: Price | None) -> bool:
        """Puts the request in the row's place that asks for the noted answer again. `price`: of the lane it goes to.
        False: its body has no place for that."""
        row = note.row
        entry = segment.rows[row]
        assert entry is not None
        own = segment.unrepaired.get(row, entry)
        answer = text_of(read_reply(note.body).content)
        body = repair_body(own.body, own.endpoint, answer=answer, finding=note.message, schema=self.schema.text)
        if body is None:
            return False
        if entry.model != own.model:  # a row of a route that went on to another of its lanes
            body = with_model(body, entry.model)
        segment.unrepaired[row] = own
        segment.rows[row] = msgspec.structs.replace(entry, body=body, worst_picousd=_worst(own, body, price))
        return True

    def take_over(self, segment: OpenSegment) -> None:
        """Of a segment that was just claimed: its rows that wait for a repair, or were out for one, ask for it."""
        for row, note in segment.notes.items():
            if note.repair and segment.rows[row] is not None:
                self.ask_again(segment, note, None)


def noted(record: Record, finding: str) -> Record:
    """The note of a row whose answer (`record`) is to be asked for again."""
    return msgspec.structs.replace(record, message=finding, repairs=record.repairs + 1, repair=REPAIR_NEXT)


def behind_answer(segment: OpenSegment, record: Record) -> Record:
    """The record of a failed attempt, behind an answer that stands until a better one comes, if there is one."""
    note = segment.notes.get(record.row)
    return answer_kept(note, record) if note is not None and note.repair else record


def ended_by_its_answer(segment: OpenSegment, record: Record) -> Record:
    """How a row ends: by the answer that was to be repaired, where this record is of a failure."""
    note, schema = segment.notes.get(record.row), segment.context.spec.answers
    if note is None or not note.repair or schema is None:
        return record
    if record.byte not in row_map.FAILURE_BYTES or record.byte == schema.mismatch_byte:
        return record
    return ended_by_answer(answer_kept(note, record), schema)


def _worst(own: InputRow, body: bytes, price: Price | None) -> int:
    """The most that the longer request can cost. Its output is bounded as before, and its input costs at most as much
    more as it is longer; 0: not known, as of the row itself."""
    if not own.worst_picousd:
        return 0
    sent_bytes = own.sent_bytes + len(body) - len(own.body)
    scaled = -(-own.worst_picousd * sent_bytes // own.sent_bytes)
    here = worst_case(price, sent_bytes, own.output_tokens) if price is not None else None
    return max(scaled, here or 0)
