"""Where rows come from: files of several formats, compressed or not, pipes, and the library's own rows."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from batchwright.core.errors import UsageError
from batchwright.runner.sniff import InputFormat
from support.file_shapes import SHAPES
from support.sources import read, refused, row, source, write


class TestFiles:
    def test_compressed_is_told_by_content(self, tmp_path: Path) -> None:
        data = row("a") + b"\n" + row("b") + b"\n"
        for name in ("a.jsonl.gz", "a.jsonl", "a"):
            (tmp_path / name).write_bytes(gzip.compress(data))
            assert [found.row.custom_id for found in read(tmp_path / name)] == ["a", "b"]
        (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"text,b\nx,1\n"))
        assert len(read(tmp_path / "t.csv.gz", model="m")) == 1

    def test_zstd_too_in_several_frames_and_with_what_is_to_be_skipped(self, tmp_path: Path) -> None:
        squeeze = zstandard.ZstdCompressor().compress
        skipped = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
        many = b"".join(row(str(number)) + b"\n" for number in range(2000))
        for name in ("a.jsonl.zst", "a"):
            (tmp_path / name).write_bytes(squeeze(many) + skipped + squeeze(row("x") + b"\n"))
            assert [found.row.custom_id for found in read(tmp_path / name)] == [*map(str, range(2000)), "x"]
        (tmp_path / "t.tsv.zst").write_bytes(squeeze(b"text\tb\nx\t1\n"))
        assert len(read(tmp_path / "t.tsv.zst", model="m")) == 1

    def test_zstd_that_is_cut_short_or_damaged(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl.zst"
        lines = b"".join(row(f"{n}-{os.urandom(40).hex()}") + b"\n" for n in range(5000))
        whole = zstandard.ZstdCompressor(write_checksum=True).compress(lines)
        for cut in (len(whole) - 1, len(whole) // 2, 12, 5):
            path.write_bytes(whole[:cut])
            assert "the zstd data is cut short or damaged" in str(refused(path))
        path.write_bytes(whole[:-4] + b"\0" * 4)
        assert "zstd" in str(refused(path))
        path.write_bytes(whole + b"something")
        assert "zstd" in str(refused(path))

    def test_compressed_and_cut_short(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl.gz"
        whole = gzip.compress(b"".join(row(f"{n}-{os.urandom(40).hex()}") + b"\n" for n in range(5000)))
        for cut in (len(whole) - 4, len(whole) // 2, 12):
            path.write_bytes(whole[:cut])
            assert "cut short or damaged" in str(refused(path))
        path.write_bytes(whole[:500] + b"\0" * 200 + whole[700:])
        refused(path)
        path.write_bytes(gzip.compress(row("a") + b"\n") + b"something")
        assert "(something else follows the compressed data)" in str(refused(path))
        path.write_bytes(gzip.compress(row("a") + b"\n" + row("b") * 9)[:-8] + b"\0" * 8)
        assert "CRC" in str(refused(path))

    def test_unknown_names_are_told_by_content(self, tmp_path: Path) -> None:
        jsonl = write(tmp_path / "rows.txt", [row("a")])
        table = write(tmp_path / "table.txt", [b"text;b", b"x;1"])
        assert source(jsonl).format is InputFormat.JSONL
        assert source(table, model="m").format is InputFormat.CSV
        assert len(read(table, model="m", prompt="{b}")) == 1

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"PAR1....", "damaged or cut short"),
            (b"PARE....", "encrypted"),
            (b"FEA1....", "version 1"),
            (b"PK\x03\x04....", "spreadsheet"),
            ("text\nü\n".encode("utf-16"), "UTF-16"),
            (row("a").decode().encode("utf-16-le"), "UTF-16"),
            (row("a").decode().encode("utf-16-be"), "UTF-16"),
            (row("a").decode().encode("utf-32"), "UTF-32"),
            (b"\0\0\0\0" + row("a"), "not valid JSON"),
            (b'{\n"a": 1\n}\n', "one object a line"),
            (b"", "is empty"),
            (b"\n \n\n", "3 lines, all of them blank"),
        ],
    )
    def test_what_is_no_rows_file(self, tmp_path: Path, data: bytes, words: str) -> None:
        path = tmp_path / "a.jsonl"
        path.write_bytes(data)
        assert words in str(refused(path))

    def test_a_table_of_a_header_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_bytes(b"id,text\n")
        found = refused(path, model="m", prompt="{text}")
        assert "has a header and nothing below it" in str(found)
        assert [finding.code for finding in found.findings] == ["empty_file"]

    def test_empty_files_say_so_by_code(self, tmp_path: Path) -> None:
        for name, data in (
            ("a.jsonl", b""),
            ("b.csv", b""),
            ("c.csv", b"text,b\n"),
            ("d.jsonl.gz", gzip.compress(b"", mtime=0)),
        ):
            (tmp_path / name).write_bytes(data)
            assert [finding.code for finding in refused(tmp_path / name).findings] == ["empty_file"]

    def test_what_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="no such file"):
            source(tmp_path / "none.jsonl")
        with pytest.raises(UsageError, match="folder"):
            source(tmp_path)

    def test_a_file_that_changes_while_it_is_read(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [row(None)] * 2000)
        with source(path) as found:
            chunks = found.chunks()
            next(chunks)
            with path.open("ab") as file:
                file.write(row("late") + b"\n")
            with pytest.raises(Exception, match="changed while it was read"):
                list(chunks)

    def test_digest_is_of_the_bytes_as_stored(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [row("a")])
        wanted = hashlib.sha256(path.read_bytes()).hexdigest()
        assert source(path).input_digest == wanted
        assert source("-", stdin=path.read_bytes()).input_digest == wanted

    def test_limit(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [row("a"), b"", row("b"), row("c"), b"nonsense"])
        with source(path, limit=2) as found:
            assert [row.row.custom_id for chunk in found.chunks() for row in chunk] == ["a", "b"]
            assert (found.rows, found.blank, found.lines) == (2, 1, 3)
        table = write(tmp_path / "t.csv", [b"text,b", b"x,1", b"y,2"])
        assert len(read(table, model="m", limit=1)) == 1


class TestTables:
    def test_columns_are_known_before_reading(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.csv", [b"\xef\xbb\xbftext,b", b'"x', b'y",1', b"", b"z,2"])
        with source(path, model="m") as found:
            assert found.columns == ("text", "b")
            rows = [row for chunk in found.chunks() for row in chunk]
            assert [row.row.line for row in rows] == [2, 5]
            assert (found.rows, found.blank, found.lines) == (2, 1, 3)

    @pytest.mark.parametrize(("header", "guess"), [(b"id,text", "text"), (b"text,prompt", "")])
    def test_a_guessed_column_is_told_and_one_called_prompt_is_no_guess(
        self, tmp_path: Path, header: bytes, guess: str
    ) -> None:
        table = write(tmp_path / "a.csv", [header, b"x,1"])
        assert [guess in note for note in source(table, model="m").notes] == ([True] if guess else [])
        assert source(table, model="m", prompt="{text}").notes == ()

    def test_lines_of_plain_text_are_told_to_be_read_as_a_table(self, tmp_path: Path) -> None:
        lines = write(tmp_path / "plain.txt", [b"hello", b"world"])
        with pytest.raises(UsageError, match=r"plain\.txt: read as a table"):
            source(lines, model="m")

    def test_tabs(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.tsv", [b"text\ta,b,c,d", b"x\t1"])
        assert source(path, model="m").columns == ("text", "a,b,c,d")

    def test_another_encoding(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.csv", [b"text,b", "Größe,1".encode("latin-1")])
        error = refused(path, model="m")
        assert [(finding.line, finding.code) for finding in error.findings] == [(2, "invalid_utf8")]
        assert "iconv" in str(error)

    def test_a_missing_column_stops_before_anything_is_read(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.csv", [b"text,b", b"x,1"])
        with pytest.raises(UsageError, match=r"\{text\}, \{b\}"):
            source(path, prompt="{txt}")
        with pytest.raises(UsageError, match=r"t\.csv.*twice"):
            source(write(tmp_path / "t.csv", [b"text,text", b"x,1"]))

    def test_repeated_ids(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.csv", [b"custom_id,text", b"a,1", b"a,2", b",3", b",4"])
        assert [finding.line for finding in refused(path, model="m").findings] == [3]

    def test_fields_of_jsonl_rows_as_columns(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", [b'{"text": "x", "n": 1}', b'{"text": "y"}'])
        with source(path, prompt="{text}", model="m") as found:
            assert found.columns == ("text", "n")
            rows = [row for chunk in found.chunks() for row in chunk]
        assert [json.loads(row.row.columns) for row in rows] == [{"text": "x", "n": "1"}, {"text": "y"}]


class TestOnceReadable:
    def test_standard_input_can_be_read_twice(self) -> None:
        data = b"\n".join([row("a"), row("a")])
        assert [finding.line for finding in refused("-", stdin=data).findings] == [2]
        assert len(read("-", stdin=gzip.compress(row("a")))) == 1

    def test_a_pipe(self, tmp_path: Path) -> None:
        reading, writing = os.pipe()
        os.write(writing, row("a") + b"\n")
        os.close(writing)
        try:
            assert len(read(f"/dev/fd/{reading}")) == 1
        finally:
            os.close(reading)

    def test_rows_from_the_library(self) -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": "half \ud83d\u2028"}]}
        rows = read([body, json.dumps(body), json.dumps(body, indent=1).encode(), {"prompt": "x"}], model="m")
        assert [found.row.line for found in rows] == [1, 2, 3, 4]
        texts = [json.loads(found.row.body)["messages"][0]["content"] for found in rows]
        assert texts == ["half \ufffd\u2028"] * 3 + ["x"]

    def test_a_text_that_is_no_json_is_a_bad_row_and_no_header(self) -> None:
        assert [finding.line for finding in refused(["text", "good"], model="m").findings] == [1, 2]

    def test_an_iterator_is_read_once(self) -> None:
        def endless() -> Iterator[object]:
            yield {"prompt": "a", "custom_id": "q"}
            yield {"prompt": "b", "custom_id": "q"}

        assert [finding.line for finding in refused(endless(), model="m").findings] == [2]

    def test_a_row_of_no_use_keeps_its_place(self) -> None:
        error = refused([{"prompt": "x"}, "", "  ", "text"], model="m")
        assert [finding.line for finding in error.findings] == [2, 3, 4]

    @pytest.mark.parametrize("rows", [[5], [None], [{"prompt": object()}], {"prompt": "x"}, b"{}"])
    def test_what_is_no_list_of_rows(self, rows: object) -> None:
        with pytest.raises(UsageError):
            source(rows)

    def test_no_rows(self) -> None:
        assert [finding.code for finding in refused([]).findings] == ["empty_file"]


@pytest.mark.parametrize("name", SHAPES)
def test_files_as_people_make_them(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    data = shape.make()
    path = tmp_path / "batch_input.jsonl"
    path.write_bytes(data)
    with source(path) as found:
        report = found.validate()
        assert report.findings == ()
        assert (report.rows, report.sendable, report.blank) == (shape.rows, shape.rows, 0)
        assert report.endpoints == {shape.endpoint: shape.rows}
        rows = [row for chunk in found.chunks() for row in chunk]
    for line, got in zip(data.split(b"\n"), rows, strict=False):
        assert got.row.body in line
        assert json.loads(got.row.body) == json.loads(line)["body"]
        assert got.row.custom_id == json.loads(line)["custom_id"]
    assert report.body_bytes == sum(len(found.row.body) for found in rows)
