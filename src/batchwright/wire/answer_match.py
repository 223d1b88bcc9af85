"""Whether a vendor's whole answer holds a value that a schema allows."""

from __future__ import annotations

from batchwright.wire.answer_values import NoValue, find_value, text_of
from batchwright.wire.reply import read_reply
from batchwright.wire.schema_check import SchemaCheck

MAX_MESSAGE_CHARS = 1_000
"""Of all that is wrong with one answer, as it is kept."""


class AnswerMatch:
    """`schema`: its JSON, which was found right when it was given."""

    def __init__(self, schema: str) -> None:
        self._check = SchemaCheck(schema)

    def finding(self, body: bytes) -> str:
        """What is wrong with the answer; empty: it matches. Raises nothing."""
        try:
            found = find_value(text_of(read_reply(body).content))
        except NoValue as error:
            return str(error)
        return "; ".join(self._check.findings(found.value))[:MAX_MESSAGE_CHARS]
