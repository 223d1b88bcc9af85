"""What came of a row, as a table's cells say it: a model's or vendor's own text, made harmless for nothing."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from batchwright.core import row_map
from batchwright.core.failures import KINDS, Flag
from batchwright.core.rows import RowView
from batchwright.wire.reply import NULL, Reply, read_reply
from batchwright.wire.results import failure_message, kind_of_end

_read_any = msgspec.json.Decoder().decode


class AnswerFields(NamedTuple):
    """Empty: there is nothing to say."""

    answer: str
    finish_reason: str
    flag: str
    error_kind: str
    """Of a row that has not ended: how it stands."""
    error_code: str
    error_message: str


def answer_fields(view: RowView, reply: Reply | None = None) -> AnswerFields:
    """`reply`: the record's body, where it was read already."""
    record = view.record
    if record is not None and row_map.is_success(view.byte):
        reply = reply or read_reply(record.body)
        found = row_map.BYTE_FLAGS[view.byte]
        flag = "" if found is Flag.PLAIN else found.value
        return AnswerFields(cell_text(reply.content), cell_text(reply.finish_reason), flag, "", "", "")
    if not row_map.is_end(view.byte):
        return AnswerFields("", "", "", row_map.name_of(view.byte), "", "")
    kind = kind_of_end(view)
    code = record.code if record is not None and record.code else KINDS[kind].code
    return AnswerFields("", "", "", kind.value, code, failure_message(view, kind))


def cell_text(value: bytes | msgspec.Raw) -> str:
    """JSON as a cell: a string as it is, null as nothing, anything else (a list of parts) as it is written."""
    text = bytes(value)
    if text == NULL:
        return ""
    return str(_read_any(text)) if text[:1] == b'"' else text.decode("utf-8")
