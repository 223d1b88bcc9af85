"""A table on its way in, and out again."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.core.batch_spec import Destination
from batchwright.core.errors import UsageError
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import SourceRow
from batchwright.wire.table import BadTable, EmptyTable, TableDecoder
from batchwright.wire.table_lines import ADDED, TableLines
from support.views import reply_body, view_of

ANY = (Destination(vendor="any", base_url="http://vendor.invalid/v1"),)


def read(text: str, *, delimiter: str = "", **options: object) -> list[SourceRow | None]:
    given = RowOptions(**({"destinations": ANY, "model": "m"} | options))  # type: ignore[arg-type]
    rows = list(TableDecoder(io.StringIO(text, newline="\n"), given, delimiter=delimiter))
    return rows


def prompts(rows: list[SourceRow | None]) -> list[str]:
    found = []
    for row in rows:
        assert row is not None
        assert row.finding is None, row.finding
        found.append(json.loads(row.row.body)["messages"][-1]["content"])
    return found


class TestIn:
    @pytest.mark.parametrize("delimiter", [",", ";", "\t"])
    def test_delimiters_quotes_and_line_breaks(self, delimiter: str) -> None:
        text = '"te,xt"|label\r\n"one\ntwo; ""three"""|x\r\n{x}|\r\n'.replace("|", delimiter)
        rows = read(text, prompt="{te,xt}!")
        assert prompts(rows) == ['one\ntwo; "three"!', "{x}!"]
        assert [row.row.line for row in rows if row] == [2, 4]
        assert json.loads(rows[0].row.columns) == {"te,xt": 'one\ntwo; "three"', "label": "x"}  # type: ignore[union-attr]

    def test_the_prompt_column_goes_without_saying(self) -> None:
        assert prompts(read("id,text\n1,a\n")) == ["a"]
        assert prompts(read("text,prompt\na,b\n")) == ["b"]
        with pytest.raises(UsageError, match=r"--prompt.*\{a\}, \{b\}"):
            read("a,b\n1,2\n")

    def test_only_custom_id_is_ours(self) -> None:
        rows = read("custom_id,id,model,text\nq1,7,Beetle,a\n,7,Golf,b\n")
        assert [row.row.custom_id for row in rows if row] == ["q1", None]
        assert [row.row.model for row in rows if row] == ["m", "m"]

    def test_system(self) -> None:
        (row,) = read("text,tone\na,kind\n", system="Be {tone}.")
        assert row is not None
        assert json.loads(row.row.body)["messages"][0] == {"role": "system", "content": "Be kind."}

    def test_ragged_rows_are_findings_and_reading_goes_on(self) -> None:
        rows = read('text,b\na,1\nb\nc,1,2\n\nd,"1\n2"\ne,1\n')
        assert [row.finding.code if row and row.finding else row is not None for row in rows] == [
            True,
            "ragged_row",
            "ragged_row",
            False,
            True,
            True,
        ]
        assert [row.row.line if row else 0 for row in rows] == [2, 3, 4, 0, 6, 8]
        assert [row.row.line for row in read("\n\ntext\na\n") if row] == [4]

    def test_of_a_ragged_row_every_field_stays_in_its_column(self) -> None:
        text = 'custom_id,text,label\nq1,few\nq2,too,many,"fie,lds"\n"q3"z,broken,b\nq4,"never closed\nq5,a,b\n'
        rows = [row.row for row in read(text) if row is not None and row.finding is not None]
        few, many, broken, unclosed = rows
        assert json.loads(few.columns) == {"custom_id": "q1", "text": "few", "label": ""}
        assert json.loads(many.columns) == {"custom_id": "q2", "text": "too", "label": "many"}
        assert many.body == b"q2,too,many,fie,lds", "what found no column is kept with the row"
        assert json.loads(broken.columns) == {"custom_id": "q3z", "text": "broken", "label": "b"}
        assert json.loads(unclosed.columns) == {"custom_id": "", "text": "", "label": ""}
        assert [row.custom_id for row in rows] == ["q1", "q2", "q3z", None]

    def test_an_id_that_may_be_another_columns_field_is_none(self) -> None:
        (row,) = read("text,custom_id\none, and two,q1\n")
        assert row is not None
        assert row.finding is not None
        assert row.row.custom_id is None

    @pytest.mark.parametrize(
        ("text", "words"),
        [("a,,b\n1,2,3\n", "column 2"), ("a,b,a\n1,2,3\n", "'a' twice"), ("a," * 3000 + "a\n", "3,001 columns")],
    )
    def test_headers(self, text: str, words: str) -> None:
        with pytest.raises(BadTable, match=words):
            read(text, prompt="{a}")

    def test_empty(self) -> None:
        for text in ("", "\n\n"):
            with pytest.raises(EmptyTable):
                read(text)
        assert read("text\n") == []

    def test_a_quote_that_is_never_closed(self) -> None:
        rows = read('text\n"open\n' + "x\n" * 100, max_row_bytes=200_000)
        assert [row.finding.code for row in rows if row and row.finding] == ["ragged_row"]

    def test_large_cells(self) -> None:
        assert prompts(read("text\n" + "x" * 1_000_000 + "\n")) == ["x" * 1_000_000]

    @given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=5))
    def test_any_cell_survives(self, cells: list[tuple[str, str]]) -> None:
        out = io.StringIO(newline="")
        csv.writer(out).writerows([("text", "b"), *cells])
        text = out.getvalue()
        given = RowOptions(destinations=ANY, prompt="{text}|{b}")
        found = [row for row in TableDecoder(io.StringIO(text, newline="\n"), given) if row is not None]
        assert prompts(list(found)) == [f"{a}|{b}" for a, b in cells]


def records(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode("utf-8"), newline="")))


class TestOut:
    def test_own_columns_first_then_what_came(self) -> None:
        table = TableLines(("text", "answer", "answer_2"))
        assert table.names[:4] == ("text", "answer", "answer_2", "answer_3")
        view = view_of(
            reply_body('fine, "really"\nyes'), columns={"text": "=1+1", "answer": "a\r\nb"}, cost_picousd=10**9
        )
        (header, record) = records(table.header() + table.line(view))
        found = dict(zip(header, record, strict=True))
        assert found["text"] == "=1+1"
        assert found["answer"] == "a\r\nb"
        assert found["answer_3"] == 'fine, "really"\nyes'
        assert (found["finish_reason"], found["flag"], found["error_kind"]) == ("stop", "", "")
        assert (found["prompt_tokens"], found["completion_tokens"], found["cost_usd"]) == ("10", "2", "0.001")

    def test_a_spreadsheets_own_delimiter_and_mark_are_kept(self) -> None:
        table = TableLines(("text",), delimiter=";", mark=True)
        line = table.line(view_of(reply_body("one;two, three"), columns={"text": "a"}))
        assert table.header().startswith(b"\xef\xbb\xbftext;answer;")
        assert line.startswith(b'a;"one;two, three";stop;')

    def test_rows_that_came_from_no_table(self) -> None:
        table = TableLines(())
        assert table.names == ("request_index", "custom_id", *ADDED)
        (record,) = records(table.line(view_of(reply_body("a"), custom_id="q")))
        assert record[:3] == ["0", "q", "a"]

    @pytest.mark.parametrize("answer", ["=HYPERLINK(1)", "+1", "-1", "@x", "\tx", "\rx", "\n=1"])
    def test_formulas_in_what_a_model_wrote_are_disarmed(self, answer: str) -> None:
        table = TableLines(("text",))
        (record,) = records(table.line(view_of(reply_body(answer), columns={"text": answer})))
        assert record[:2] == [answer, "'" + answer]
        (record,) = records(table.line(view_of(b"", kind=FailureKind.INVALID_REQUEST, message=answer, code=answer)))
        assert record[5:7] == ["'" + answer, "'" + answer]

    def test_failures_flags_and_unknowns(self) -> None:
        table = TableLines(())
        (record,) = records(table.line(view_of(b"", kind=FailureKind.TIMEOUT, message="too slow", unpriced=1)))
        assert record[2:] == ["", "", "", "timeout", "VENDOR_TIMEOUT", "too slow", "", "", "", "1"]
        (record,) = records(table.line(view_of(reply_body(None), flag=Flag.EMPTY)))
        assert (record[2], record[4]) == ("", "empty")
        (record,) = records(table.line(view_of(reply_body([{"type": "text", "text": "a"}]))))
        assert json.loads(record[2]) == [{"type": "text", "text": "a"}]

    @given(st.text(), st.text())
    def test_round_trip(self, own: str, answer: str) -> None:
        line = TableLines(("text",)).line(view_of(reply_body(answer), columns={"text": own}))
        assert line.endswith(b"\r\n")
        (record,) = records(line)
        assert record[0] == own
        assert record[1].removeprefix("'") == answer.removeprefix("'")
