"""A table (CSV) on its way out: the input's own columns first, then what came of the row.

Own columns are written as they came in, so that a table survives the round trip. The added ones hold text that a model
or a vendor wrote, so a text that a spreadsheet would take for a formula gets an apostrophe in front. An added column
whose name the input has already is written with `_2` (`_3` ...) behind it. Under a schema of objects each of its
properties is a column in front of the other added ones, `parsed_` before a name that is taken; under another schema
there is one column, `parsed`. Quoting and line ends are RFC 4180's; the
delimiter and a byte-order mark are the input's, so that the spreadsheet which wrote it reads this too.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence

import msgspec

from batchwright.core.rows import RowView
from batchwright.wire.answer_fields import answer_fields, cell_text
from batchwright.wire.answer_values import parsed_text
from batchwright.wire.json_text import BOM, whole_characters
from batchwright.wire.reply import NULL
from batchwright.wire.results import cost_text
from batchwright.wire.schema_shape import properties_of

ADDED = (
    "answer",
    "finish_reason",
    "flag",
    "error_kind",
    "error_code",
    "error_message",
    "prompt_tokens",
    "completion_tokens",
    "cost_usd",
    "attempts",
)
WITHOUT_COLUMNS = ("request_index", "custom_id")
"""What stands first for rows that did not come from a table."""

SHARES = "shares_answer_of"
"""The same, where rows share answers: the request_index of the row that was asked; empty: this one."""
REUSED = "reused_from"
"""Before the others, where the batch has taken answers over: the batch that got it; empty: this one."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")

read_columns = msgspec.json.Decoder(dict[str, str | None]).decode
"""A row's own columns by name; None where a typed table has null."""
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NULL = msgspec.Raw(NULL)


class TableLines:
    """Writes one table. `columns`, `delimiter` and `mark` are the input's own (`BatchSpec.csv_columns`, ...); without
    columns the input was no table. `reused`: some answers were taken over, `shares`: some rows share
    another's."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        delimiter: str = ",",
        mark: bool = False,
        reused: bool = False,
        shares: bool = False,
        schema: str = "",
    ) -> None:
        """`schema`: the batch's, as JSON; empty: it has none."""
        self._own = tuple(columns)
        self._reused, self._shares = reused, shares
        own = self._own or WITHOUT_COLUMNS
        self._parsed = ParsedColumns(schema, (*own, SHARES, REUSED, *ADDED)) if schema else None
        first = (*own, *(self._parsed.names if self._parsed is not None else ()))
        before = (*((SHARES,) if shares else ()), *((REUSED,) if reused else ()))
        self.names: tuple[str, ...] = (*first, *free_names((*before, *ADDED), first))
        self._sink = _Sink()
        self._mark = BOM if mark else b""
        self._write = csv.writer(self._sink, delimiter=delimiter, lineterminator="\r\n").writerow

    def header(self) -> bytes:
        return self._mark + self._line(list(self.names))

    def line(self, view: RowView) -> bytes:
        """One record, with its line end; a text with line breaks makes it more than one physical line."""
        if self._own:
            kept = read_columns(view.input.columns) if view.input.columns else {}
            fields = [kept.get(name) or "" for name in self._own]
        else:
            fields = [str(view.request_index), view.input.custom_id or ""]
        if self._parsed is not None:
            fields += self._parsed.fields(view)
        if self._shares:
            shared = shared_answer(view)
            fields.append("" if shared is None else str(shared))
        if self._reused:
            fields.append(view.record.reused if view.record is not None else "")
        return self._line(fields + _added(view))

    def _line(self, fields: list[str]) -> bytes:
        self._write(fields)
        return self._sink.text.encode("utf-8", "replace")


class ParsedColumns:
    """The columns that a schema makes of a value; `taken` are names that others have."""

    def __init__(self, schema: str, taken: Sequence[str]) -> None:
        self._properties = properties_of(schema)
        names: list[str] = []
        for name in self._properties or ("parsed",):
            free = name if name not in taken and name else f"parsed_{name}"
            while free in taken or free in names:
                free += "_"
            names.append(free)
        self.names = tuple(names)

    def fields(self, view: RowView) -> list[str]:
        """Cells of a table. Only what is a text there can be a formula: a number may begin with a minus."""
        values = self._values(view)
        return [_harmless(cell_text(value)) if bytes(value)[:1] == b'"' else cell_text(value) for value in values]

    def texts(self, view: RowView) -> list[str]:
        """A text as it is, anything else as its JSON; empty: nothing."""
        return [cell_text(value) for value in self._values(view)]

    def _values(self, view: RowView) -> list[bytes | msgspec.Raw]:
        text = parsed_text(view)
        if not self._properties:
            return [text]
        values = _read_fields(text) if text[:1] == b"{" else {}
        return [values.get(name, _NULL) for name in self._properties]


class _Sink:
    """What `csv.writer` writes a record to."""

    text = ""

    def write(self, text: str) -> None:
        self.text = text


def shared_answer(view: RowView) -> int | None:
    """The row whose answer this one has without having been sent, by its request_index."""
    shares = view.record is not None and view.input.shares >= 0 and not view.record.attempts
    return view.input.shares if shares else None


def free_names(wanted: Sequence[str], taken: Sequence[str]) -> list[str]:
    """What added columns are called beside the input's own: `answer`, or `answer_2` where that is one of those."""
    used, found = set(taken), []
    for name in wanted:
        free, number = name, 2
        while free in used:
            free, number = f"{name}_{number}", number + 1
        used.add(free)
        found.append(free)
    return found


def _added(view: RowView) -> list[str]:
    record = view.record
    said = answer_fields(view)
    cost = cost_text(record)
    return [
        _harmless(said.answer),
        _harmless(said.finish_reason),
        said.flag,
        said.error_kind,
        _harmless(said.error_code),
        _harmless(said.error_message),
        _tokens(record.prompt_tokens if record is not None else -1),
        _tokens(record.completion_tokens if record is not None else -1),
        "" if cost == NULL else cost.decode(),
        str(view.attempts),
    ]


def _harmless(text: str) -> str:
    text = whole_characters(text)
    return "'" + text if text.startswith(_FORMULA) else text


def _tokens(count: int) -> str:
    return str(count) if count >= 0 else ""
