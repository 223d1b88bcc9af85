"""One JSON array as an input, and several files as one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard

from batchwright.core.errors import InputRefused, UsageError
from batchwright.runner.deliver import check_delivery
from batchwright.runner.request import Delivery
from batchwright.runner.sniff import InputFormat
from support.sources import read, refused, row, source, write


def ids(given: object, **options: object) -> list[str | None]:
    return [found.row.custom_id for found in read(given, **options)]


class TestOneArray:
    @pytest.mark.parametrize("indent", [None, 2])
    @pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "rows"])
    def test_its_elements_are_the_rows(self, tmp_path: Path, name: str, indent: int | None) -> None:
        rows = [json.loads(row(str(number), text="ü")) for number in range(1200)]
        (tmp_path / name).write_text(json.dumps(rows, indent=indent))
        found = read(tmp_path / name)
        assert [each.row.custom_id for each in found] == [str(number) for number in range(1200)]
        assert [each.row.line for each in found] == list(range(1, 1201))
        assert json.loads(found[7].row.body) == rows[7]["body"]
        assert b"\n" not in found[7].row.body

    def test_it_may_be_compressed_or_come_through_a_pipe(self, tmp_path: Path) -> None:
        data = b"[" + row("a") + b",\n" + row("b") + b"]"
        (tmp_path / "a.json.gz").write_bytes(gzip.compress(data))
        assert ids(tmp_path / "a.json.gz") == ["a", "b"]
        assert ids("-", stdin=data) == ["a", "b"]

    def test_a_template_takes_its_fields(self, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_text(json.dumps([{"text": "one"}, {"text": "two"}], indent=1))
        found = read(path, model="m", prompt="Say {text}")
        assert [json.loads(each.row.body)["messages"][0]["content"] for each in found] == ["Say one", "Say two"]

    def test_each_bad_row_is_a_finding_of_its_own(self, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_bytes(b"[" + b",".join([row("a"), b'{"x": 1}', b"nonsense", row("a")]) + b"]")
        report = source(path).validate()
        assert [(finding.line, finding.code) for finding in report.findings] == [
            (2, "missing_required_parameter"),
            (3, "invalid_json_line"),
            (4, "duplicate_custom_id"),
        ]
        assert [found.finding is None for found in read(path, skip_invalid=True)] == [True, False, False, False]
        assert source(path).notes == ("a.json is one JSON array: line 3 stands for its third row.",)

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"[]", "is an array without rows"),
            (b"[\n]\n", "is an array without rows"),
            (b"[" + row("a") + b",", "row 2: the file ends before the array does"),
            (b"[" + row("a") + b"] x", "row 2: something follows the array's end"),
        ],
    )
    def test_what_is_no_array_of_rows_is_refused(self, tmp_path: Path, data: bytes, words: str) -> None:
        (tmp_path / "a.json").write_bytes(data)
        assert words in str(refused(tmp_path / "a.json"))

    def test_lines_that_are_arrays_stay_lines(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [b"[1]", row("a")])
        assert source(path).format is InputFormat.JSONL
        assert [finding.line for finding in source(path).validate().findings] == [1]


class TestSeveralFiles:
    def test_they_are_one_input_in_the_order_of_their_names(self, tmp_path: Path) -> None:
        write(tmp_path / "b.jsonl", [row("3")], end=b"")
        write(tmp_path / "a.jsonl", [row("1"), row("2")], end=b"")
        (tmp_path / "c.json").write_bytes(b"[" + row("4") + b",\n\n" + row("5") + b"]")
        (tmp_path / "d.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(row("6") + b"\n"))
        (tmp_path / "folder.json").mkdir()
        assert ids(str(tmp_path / "*")) == ["1", "2", "3", "4", "5", "6"]
        assert ids(str(tmp_path / "**" / "[ab].jsonl")) == ["1", "2", "3"]
        whole = source(str(tmp_path / "*"))
        assert whole.input_digest == source(str(tmp_path / "*")).input_digest
        assert whole.input_digest != source(str(tmp_path / "[ab]*")).input_digest

    def test_of_tables_the_header_is_taken_once(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", [b"id,text", b"1,one", b"2,two"])
        write(tmp_path / "b.csv", [b"\xef\xbb\xbfid,text", b"3,three"], separator=b"\r\n", end=b"")
        found = read(str(tmp_path / "*.csv"), model="m", prompt="{text}")
        assert [json.loads(each.row.body)["messages"][0]["content"] for each in found] == ["one", "two", "three"]
        write(tmp_path / "c.csv", [b"id,words", b"4,four"])
        with pytest.raises(InputRefused, match=r"c\.csv has other columns than .*a\.csv: id,words"):
            read(str(tmp_path / "*.csv"), model="m", prompt="{text}")

    def test_a_finding_names_the_file_and_its_line(self, tmp_path: Path) -> None:
        write(tmp_path / "a.jsonl", [row("1"), b"", b"bad"])
        write(tmp_path / "b.jsonl", [row("2"), row("1")])
        report = source(str(tmp_path / "*.jsonl")).validate()
        assert [(finding.line, finding.message.rpartition("/")[2]) for finding in report.findings] == [
            (3, "a.jsonl, line 3)"),
            (5, "b.jsonl, line 2)"),
        ]
        marked = [found.finding for found in read(str(tmp_path / "*.jsonl"), skip_invalid=True) if found.finding]
        assert [finding.message.rpartition("/")[2] for finding in marked] == ["a.jsonl, line 3)", "b.jsonl, line 2)"]
        write(tmp_path / "a.csv", [b"id,text", b"1,one"])
        write(tmp_path / "b.csv", [b"id,text", b"2,two", b"3,three,more"])
        (finding,) = source(str(tmp_path / "*.csv"), model="m", prompt="{text}").validate().findings
        assert finding.message.endswith("b.csv, line 3)")

    def test_they_must_be_of_one_kind(self, tmp_path: Path) -> None:
        write(tmp_path / "a.jsonl", [row("1")])
        write(tmp_path / "b.csv", [b"text", b"x"])
        with pytest.raises(UsageError, match=r"b\.csv is CSV and .*a\.jsonl JSONL"):
            read(str(tmp_path / "*"))

    def test_one_that_is_damaged_is_named(self, tmp_path: Path) -> None:
        write(tmp_path / "a.jsonl", [row("1")])
        (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(row("2") * 50)[:-9])
        with pytest.raises(InputRefused, match=r"b\.jsonl\.gz: the gzip data is cut short"):
            read(str(tmp_path / "*"))

    def test_one_that_changes_meanwhile_refuses_all(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            write(tmp_path / f"{name}.jsonl", [row(f"{name}{number}") for number in range(600)])
        with source(str(tmp_path / "*.jsonl")) as opened:
            chunks = opened.chunks()
            next(chunks)
            write(tmp_path / "b.jsonl", [row("c")])
            with pytest.raises(InputRefused, match="was changed while it was read"):
                list(chunks)

    def test_a_pattern_that_nothing_fits_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"\*\.jsonl: no file has such a name"):
            read(str(tmp_path / "*.jsonl"))
        (tmp_path / "a[1].jsonl").write_bytes(row("x"))
        assert ids(str(tmp_path / "a[1].jsonl")) == ["x"], "a file of that very name is no pattern"

    @pytest.mark.parametrize("output", ["a.jsonl", "answers.jsonl"])
    def test_answers_do_not_go_among_them(self, tmp_path: Path, output: str) -> None:
        write(tmp_path / "a.jsonl", [row("1")])
        pattern = str(tmp_path / "*.jsonl")
        with pytest.raises(UsageError, match="would be one of the input"):
            check_delivery(Delivery(output=tmp_path / output), pattern)
        check_delivery(Delivery(output=tmp_path / "answers.csv"), pattern)
