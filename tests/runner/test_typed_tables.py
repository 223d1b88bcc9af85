"""Parquet, Arrow, datasets' folders and frames as inputs: what each row becomes, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
import zstandard

from batchwright.core.errors import InputRefused, UsageError
from batchwright.core.row_options import RowTemplate
from batchwright.runner import arrow_extra
from batchwright.runner.arrow_files import FRAME_ROWS
from batchwright.runner.deliver import check_delivery
from batchwright.runner.request import Delivery
from batchwright.runner.sniff import InputFormat
from batchwright.wire.arrow_types import schema_of
from support.sources import read, refused, source
from support.typed_columns import every_type

TEXTS = pa.table({"id": [1, 2, None], "text": ["good", None, "ü {id}"], "marks": [[1, 2], None, []]})


def parquet(path: Path, table: Any = TEXTS, **options: Any) -> Path:
    pq.write_table(table, path, **options)
    return path


def arrow(path: Path, table: Any = TEXTS) -> Path:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return path


def stream(path: Path, table: Any = TEXTS) -> Path:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)
    return path


def prompts(given: object, **options: Any) -> list[str]:
    rows = read(given, **({"model": "m"} | options))
    return [json.loads(row.row.body)["messages"][-1]["content"] for row in rows]


def bodies(given: object, **options: Any) -> list[Any]:
    return [json.loads(row.row.body) for row in read(given, **({"model": "m"} | options))]


class TestForms:
    @pytest.mark.parametrize(
        ("write", "name", "form"),
        [
            (parquet, "a.parquet", InputFormat.PARQUET),
            (parquet, "a", InputFormat.PARQUET),
            (arrow, "a.arrow", InputFormat.ARROW),
            (arrow, "a.feather", InputFormat.ARROW),
            (stream, "a.arrow", InputFormat.ARROW_STREAM),
            (stream, "a.txt", InputFormat.ARROW_STREAM),
        ],
    )
    def test_each_is_told_by_its_first_bytes_and_read_alike(
        self, tmp_path: Path, write: Any, name: str, form: InputFormat
    ) -> None:
        path = write(tmp_path / name)
        plain = path.read_bytes()
        for again in (plain, gzip.compress(plain), zstandard.ZstdCompressor().compress(plain)):
            path.write_bytes(again)
            assert source(path, model="m").format is form
            wanted = ["1: good [1,2]", "2:  ", ": ü {id} []"]
            assert prompts(path, prompt="{id}: {text} {marks}") == wanted
            assert prompts("-", prompt="{id}: {text} {marks}", stdin=again) == wanted

    def test_rows_have_their_numbers_and_their_columns_beside_them(self, tmp_path: Path) -> None:
        rows = read(parquet(tmp_path / "a.parquet"), model="m", prompt="{text}")
        assert [row.row.line for row in rows] == [1, 2, 3]
        assert json.loads(rows[1].row.columns) == {"id": "2", "text": None, "marks": None}

    def test_every_type_goes_into_a_prompt_but_bytes(self, tmp_path: Path) -> None:
        path = parquet(tmp_path / "a.parquet", every_type())
        assert prompts(path, prompt="{price} {moment} {struct} {whole} {truth}") == [
            '1.50 2026-03-01T12:30:15.25 {"a":1,"b":{"c":"x"}} 1 true',
            "    ",
            '-0.01 2026-01-01T00:00:00 {"a":null,"b":null} -9223372036854775808 false',
        ]
        for prompt, system in (("{bytes}", ""), ("{text}", "{bytes}")):
            with pytest.raises(UsageError, match=r"made of the column \{bytes\}, which holds bytes \(binary\)"):
                source(path, prompt=prompt, system=system)

    def test_a_condition_sees_values_and_a_selection_keeps_their_types(self, tmp_path: Path) -> None:
        path = parquet(tmp_path / "a.parquet", every_type())
        with source(
            path, prompt="{text}", model="m", where="price > 1.4 and whole == 1", select=("small", "whole")
        ) as found:
            rows = [row for chunk in found.chunks() for row in chunk]
            assert found.columns == ("small", "whole")
            assert [field.name for field in schema_of(found.arrow_schema)] == ["small", "whole"]
            assert (found.rows, found.left_out.count, found.lines) == (1, 2, 3)
        assert [json.loads(row.row.columns) for row in rows] == [{"small": "0.1", "whole": "1"}]
        with pytest.raises(UsageError, match="--select"):
            source(path, prompt="{text}", select=("none",))

    def test_a_template_file_has_lists_and_numbers(self, tmp_path: Path) -> None:
        text = "{% for mark in marks or [] %}{{ mark + 1 }};{% endfor %}{{ text or 'nothing' }}"
        template = RowTemplate(name="t.jinja", text=text)
        assert prompts(TEXTS, template=template) == ["2;3;good", "nothing", "ü {id}"]

    def test_a_large_file_is_read_a_few_rows_at_a_time(self, tmp_path: Path) -> None:
        table = pa.table({"text": [f"{number} {'x' * 1000}" for number in range(30_000)]})
        path = parquet(tmp_path / "a.parquet", table, row_group_size=30_000)
        with source(path, model="m") as found:
            chunks = found.chunks()
            before = pa.total_allocated_bytes()
            sizes, most = [], 0
            for chunk in chunks:
                sizes.append(len(chunk))
                most = max(most, pa.total_allocated_bytes() - before)
        assert (sum(sizes), max(sizes)) == (30_000, 500)
        assert most < table.nbytes / 4, "of what one row group takes"

    def test_rows_of_megabytes_are_read_one_by_one(self, tmp_path: Path) -> None:
        table = pa.table({"text": ["x" * 3_000_000] * 5})
        with source(parquet(tmp_path / "a.parquet", table), model="m") as found:
            assert [len(chunk) for chunk in found.chunks()] == [1, 1, 1, 1, 1]

    def test_limit_and_digest(self, tmp_path: Path) -> None:
        path = parquet(tmp_path / "a.parquet")
        assert len(read(path, model="m", prompt="{text}", limit=2)) == 2
        assert source(path, model="m").input_digest == source(path, model="m").input_digest


class TestRequests:
    def test_openai_lines(self, tmp_path: Path) -> None:
        table = pa.table(
            {
                "custom_id": ["a", "b"],
                "method": ["POST", None],
                "url": ["/v1/embeddings", "/v1/embeddings"],
                "body": [{"input": ["x", "y"], "dimensions": None}, {"input": ["z"], "dimensions": 2}],
                "other": [b"\0", b"\1"],
            }
        )
        rows = read(parquet(tmp_path / "a.parquet", table), model="m")
        assert [(row.row.custom_id, row.row.endpoint) for row in rows] == [("a", "/embeddings"), ("b", "/embeddings")]
        assert [json.loads(row.row.body) for row in rows] == [
            {"input": ["x", "y"], "model": "m"},
            {"input": ["z"], "dimensions": 2, "model": "m"},
        ]

    def test_a_body_as_text(self) -> None:
        text = '{"model": "m",  "messages": [{"role": "user", "content": "x"}], "big": 123456789012345678901234567890}'
        (row,) = read(pa.table({"body": [text]}))
        assert row.row.body.decode() == text, "forwarded byte for byte"

    @pytest.mark.parametrize("name", ["messages", "prompt"])
    def test_messages_as_structs_and_as_text(self, name: str) -> None:
        said = [{"role": "user", "content": "x", "name": None}]
        wanted = {"model": "mine", "temperature": 1, "messages": [{"role": "user", "content": "x"}]}
        table = pa.table({name: [said], "model": ["mine"], "temperature": [1.0], "max_tokens": [None], "id": [7]})
        assert bodies(table) == [wanted]
        if name == "messages":
            text = pa.table({name: [json.dumps(wanted["messages"])], "model": ["mine"], "temperature": [1.0]})
            assert bodies(text) == [wanted]

    def test_prompts_with_what_belongs_to_them(self) -> None:
        table = pa.table({"custom_id": [7], "prompt": ["Say"], "system": ["Be kind"], "max_tokens": [64.0], "n": [3]})
        (row,) = read(table, model="m")
        assert row.row.custom_id == "7"
        assert json.loads(row.row.body) == {
            "messages": [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Say"}],
            "max_tokens": 64,
            "model": "m",
        }
        assert source(table).notes == (
            "Each row is a request, made of {system}, {max_tokens}, {prompt}; not sent: {n}.",
        )

    def test_with_a_template_no_column_becomes_a_field(self) -> None:
        table = pa.table({"prompt": ["Say"], "model": ["Beetle"], "messages": ["x"]})
        assert bodies(table, prompt="Drive a {model}") == [
            {"messages": [{"role": "user", "content": "Drive a Beetle"}], "model": "m"}
        ]

    def test_a_guessed_column_is_told(self) -> None:
        assert prompts(TEXTS) == ["good", "", "ü {id}"]
        assert "the column text" in source(TEXTS).notes[0]

    def test_what_is_wrong_with_a_row_is_said_with_its_number(self) -> None:
        table = pa.table({"messages": ['[{"role":"user","content":"x"}]', "hello", None, "[1", '{"a":1}']})
        found = refused(table, model="m")
        assert [(each.line, each.code) for each in found.findings] == [
            (2, "invalid_type"),
            (3, "missing_required_parameter"),
            (4, "invalid_type"),
            (5, "invalid_type"),
        ]
        rows = read(table, model="m", skip_invalid=True)
        assert [json.loads(row.row.columns)["messages"] for row in rows] == table["messages"].to_pylist()

    def test_repeated_ids(self) -> None:
        found = refused(pa.table({"custom_id": [1, 2, 1], "prompt": ["a", "b", "c"]}), model="m")
        assert [(each.line, each.code) for each in found.findings] == [(3, "duplicate_custom_id")]


class TestSeveral:
    def test_files_by_pattern_and_by_list(self, tmp_path: Path) -> None:
        parquet(tmp_path / "1.parquet", TEXTS.slice(0, 1))
        parquet(tmp_path / "2.parquet", TEXTS.slice(1).select(["text", "marks", "id"]))
        arrow(tmp_path / "3.arrow", TEXTS.slice(0, 1))
        wanted = ["1 good", "2 ", " ü {id}"]
        assert prompts(str(tmp_path / "*.parquet"), prompt="{id} {text}") == wanted
        listed = [tmp_path / "2.parquet", tmp_path / "3.arrow"]
        assert prompts(listed, prompt="{id} {text}") == ["2 ", " ü {id}", "1 good"]

    def test_a_finding_names_the_file(self, tmp_path: Path) -> None:
        parquet(tmp_path / "1.parquet", pa.table({"custom_id": ["a", "b"], "text": ["x", "y"]}))
        parquet(tmp_path / "2.parquet", pa.table({"custom_id": ["c", "b"], "text": ["x", "y"]}))
        (finding,) = refused(str(tmp_path / "*.parquet"), model="m").findings
        assert finding.line == 4
        assert finding.message.endswith(f"({tmp_path / '2.parquet'}, line 2)")

    @pytest.mark.parametrize(
        ("second", "words"),
        [
            (TEXTS.drop_columns(["id"]), "has other columns than .*: id"),
            (TEXTS.set_column(0, "id", pa.array(["x", "y", "z"])), "columns of other types"),
        ],
    )
    def test_other_columns_are_refused(self, tmp_path: Path, second: Any, words: str) -> None:
        parquet(tmp_path / "1.parquet")
        parquet(tmp_path / "2.parquet", second)
        with pytest.raises(InputRefused, match=words):
            source(str(tmp_path / "*.parquet"), prompt="{text}").validate()

    def test_a_table_and_lines_are_no_one_input(self, tmp_path: Path) -> None:
        parquet(tmp_path / "1.parquet")
        (tmp_path / "2.jsonl").write_text('{"prompt": "x"}\n')
        with pytest.raises(UsageError, match="must be of one kind"):
            source(str(tmp_path / "*"), prompt="{text}").validate()

    def test_a_list_with_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot be read"):
            source([tmp_path / "none.parquet"])


class TestDatasets:
    def saved(self, folder: Path, *tables: Any, **state: Any) -> Path:
        folder.mkdir()
        names = [f"data-{number:05d}-of-{len(tables):05d}.arrow" for number in range(len(tables))]
        for name, table in zip(names, tables, strict=True):
            stream(folder / name, table)
        listed = [{"filename": name} for name in reversed(names)]
        (folder / "state.json").write_text(json.dumps({"_data_files": listed, "_split": "train"} | state))
        (folder / "dataset_info.json").write_text("{}")
        return folder

    def test_its_files_in_the_order_of_its_state(self, tmp_path: Path) -> None:
        folder = self.saved(tmp_path / "data", TEXTS.slice(1), TEXTS.slice(0, 1))
        assert prompts(folder, prompt="{id} {text}") == ["1 good", "2 ", " ü {id}"]
        assert prompts(str(folder), prompt="{id} {text}") == ["1 good", "2 ", " ü {id}"]
        with pytest.raises(UsageError, match="one of the input's files"):
            check_delivery(Delivery(output=folder / "data-00000-of-00002.arrow"), str(folder))

    def test_what_cannot_be_read_as_one_table(self, tmp_path: Path) -> None:
        folder = self.saved(tmp_path / "a", TEXTS, _indices_data_files=[{"filename": "x"}])
        with pytest.raises(UsageError, match="flatten_indices"):
            source(folder)
        (tmp_path / "dataset_dict.json").write_text('{"splits": ["a", "test"]}')
        with pytest.raises(UsageError, match=f"give one of them: {tmp_path / 'a'}, {tmp_path / 'test'}"):
            source(tmp_path)
        gone = self.saved(tmp_path / "b", TEXTS)
        (gone / "data-00000-of-00001.arrow").unlink()
        with pytest.raises(UsageError, match="copy the whole folder"):
            source(gone)
        (gone / "state.json").write_text("{}")
        with pytest.raises(UsageError, match="names no data files"):
            source(gone)


class TestFrames:
    @pytest.mark.parametrize(
        "frame",
        [
            TEXTS,
            TEXTS.to_reader(),
            TEXTS.to_batches()[0],
            pd.DataFrame({"id": pd.array([1, 2, None], "Int64"), "text": ["good", None, "ü {id}"]}),
            pl.DataFrame({"id": [1, 2, None], "text": ["good", None, "ü {id}"]}),
        ],
        ids=lambda frame: type(frame).__module__ + "." + type(frame).__name__,
    )
    def test_each_is_a_table(self, frame: Any) -> None:
        assert prompts(frame, prompt="{id}: {text}") == ["1: good", "2: ", ": ü {id}"]

    def test_the_same_rows_are_the_same_input_however_they_are_cut(self) -> None:
        whole = pa.table(
            {"text": [f"row {number}" for number in range(2 * FRAME_ROWS + 5)], "n": range(2 * FRAME_ROWS + 5)}
        )
        cut = pa.concat_tables([whole.slice(0, 7), whole.slice(7, FRAME_ROWS + 1), whole.slice(FRAME_ROWS + 8)])
        digests = {source(table, model="m").input_digest for table in (whole, cut, whole.to_reader(100))}
        assert len(digests) == 1
        assert source(whole.slice(1), model="m").input_digest not in digests

    def test_a_frame_is_read_as_often_as_needed(self) -> None:
        with source(pa.table({"custom_id": ["a", "a"], "text": ["x", "y"]}).to_reader(), model="m") as found:
            assert found.validate().total == 1
            assert found.validate().total == 1


class TestRefusals:
    def test_what_is_damaged(self, tmp_path: Path) -> None:
        for write, name in ((parquet, "a.parquet"), (arrow, "a.arrow"), (stream, "b.arrow")):
            path = write(tmp_path / name)
            whole = path.read_bytes()
            for cut in (len(whole) - 1, len(whole) // 2, 20):
                path.write_bytes(whole[:cut])
                with pytest.raises(InputRefused, match=rf"{name} is damaged or cut short, so nothing was sent"):
                    source(path, model="m").validate()
        path.write_bytes(whole + b"x")
        assert "something else follows its end" in str(refused(path, model="m"))

    def test_a_damaged_page(self, tmp_path: Path) -> None:
        table = pa.table({"text": [f"{number:08d}" for number in range(5000)]})
        path = parquet(tmp_path / "a.parquet", table, use_dictionary=False, write_page_checksum=True)
        whole = bytearray(path.read_bytes())
        whole[200:400] = b"\0" * 200
        path.write_bytes(whole)
        assert "damaged" in str(refused(path, model="m"))

    def test_what_is_encrypted(self, tmp_path: Path) -> None:
        import pyarrow.parquet.encryption as pe  # type: ignore[import-untyped]

        class Keys(pe.KmsClient):  # type: ignore[misc]
            def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
                return key_bytes.hex().encode()

            def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
                return bytes.fromhex(wrapped_key.decode())

        factory = pe.CryptoFactory(lambda _: Keys())
        for plaintext_footer in (False, True):
            settings = pe.EncryptionConfiguration(
                footer_key="f", column_keys={"c": ["text"]}, plaintext_footer=plaintext_footer
            )
            properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
            path = tmp_path / "a.parquet"
            with pq.ParquetWriter(path, TEXTS.schema, encryption_properties=properties) as writer:
                writer.write_table(TEXTS)
            assert "encrypted" in str(refused(path, model="m"))

    def test_another_form_under_its_name(self, tmp_path: Path) -> None:
        path = tmp_path / "a.parquet"
        path.write_bytes(b'{"prompt": "x"}\n')
        assert 'does not begin as such a file does, but with \'{"prompt"' in str(refused(path))
        path.write_bytes(b"PK\x03\x04....")
        assert "a ZIP file or a spreadsheet" in str(refused(path))
        path.write_bytes(b"")
        assert "is empty" in str(refused(path))

    def test_columns_that_are_not_there_or_not_of_one_name(self, tmp_path: Path) -> None:
        path = parquet(tmp_path / "a.parquet")
        with pytest.raises(UsageError, match=r"\{txt\}, which the input does not have; it has \{id\}, \{text\}"):
            source(path, prompt="{txt}")
        twice = pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["text", "text"])
        with pytest.raises(UsageError, match=r"b\.parquet: .*'text' twice"):
            source(parquet(tmp_path / "b.parquet", twice), prompt="{text}")
        with pytest.raises(UsageError, match=r"none of its columns is called body, messages, prompt.*\{name\}"):
            source(pa.table({"name": ["x"]}))
        with pytest.raises(UsageError, match="'span' is of the type month_day_nano_interval"):
            source(pa.table({"text": ["x"], "span": [pa.MonthDayNano([1, 2, 3])]}))

    def test_no_rows(self, tmp_path: Path) -> None:
        for given in (TEXTS.slice(0, 0), parquet(tmp_path / "a.parquet", TEXTS.slice(0, 0))):
            found = refused(given, model="m")
            assert "is a table without rows" in str(found)
            assert [finding.code for finding in found.findings] == ["empty_file"]

    def test_strings_that_are_no_text(self) -> None:
        strings = pa.array([b"good", b"\xff"]).view(pa.string())
        with pytest.raises(UsageError, match="between rows 1 and 2"):
            read(pa.table({"text": strings}), model="m")

    def test_a_row_above_the_limit(self) -> None:
        found = refused(pa.table({"text": ["x", "y" * 2000]}), model="m", max_row_bytes=1000)
        assert [(each.line, each.code) for each in found.findings] == [(2, "row_too_large")]

    def test_without_the_extra(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(arrow_extra, "find_spec", lambda _: None)
        for given in (parquet(tmp_path / "a.parquet"), TEXTS):
            with pytest.raises(UsageError, match=r"pip install 'batchwright\[parquet\]'"):
                source(given, prompt="{text}")
        with pytest.raises(UsageError, match=r"pip install 'batchwright\[parquet\]'"):
            check_delivery(Delivery(output=tmp_path / "out.parquet"), ())
