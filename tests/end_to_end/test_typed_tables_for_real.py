"""Typed tables through the real command, against a scripted vendor: in, out, and what came out in again."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from batchwright.wire import arrow_lines
from support.command_line import CommandLine, Ended
from support.scripted_vendor import ScriptedVendor
from support.typed_columns import every_type

READ = {
    "parquet": pq.read_table,
    "arrow": lambda path: pa.ipc.open_file(path).read_all(),
    "feather": lambda path: pa.ipc.open_file(path).read_all(),
}
ADDED = list(arrow_lines.ADDED)


class Work:
    def __init__(self, command: CommandLine, vendor: ScriptedVendor) -> None:
        self.command, self.vendor, self.folder = command, vendor, command.folder

    def run(self, source: str, output: str, *options: str, code: int = 0) -> Ended:
        ended = self.command(
            *("run", source, "-o", output, "--base-url", self.vendor.base_url, "--api-key-env", "", "-m", "m"),
            *("--progress", "none", *options),
        )
        assert ended.code == code, ended.err
        return ended

    def table(self, name: str) -> Any:
        return READ[name.rpartition(".")[2]](self.folder / name)

    def write(self, name: str, table: Any) -> str:
        pq.write_table(table, self.folder / name)
        return name


@pytest.fixture
def work(command: CommandLine, vendor: ScriptedVendor) -> Work:
    return Work(command, vendor)


@pytest.mark.parametrize("form", READ)
def test_own_columns_keep_their_types_and_what_came_of_each_row_stands_behind(work: Work, form: str) -> None:
    table = every_type()
    work.run(work.write("in.parquet", table), f"out.{form}", "-t", "Say word{whole}")
    found = work.table(f"out.{form}")
    assert found.column_names == [*table.column_names, *ADDED]
    assert found.select(table.column_names).equals(table)
    assert found["answer"].to_pylist() == ["word1", "word", "word-9223372036854775808"]
    assert found.schema.field("cost_usd").type == pa.decimal128(38, 12)
    (row, *_) = found.select(ADDED).to_pylist()
    response = json.loads(row.pop("response"))
    assert response["choices"][0]["message"]["content"] == "word1"
    assert row == {
        "answer": "word1",
        "finish_reason": "stop",
        "flag": None,
        "error_kind": None,
        "error_code": None,
        "error_message": None,
        "http_status": 200,
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "cached_tokens": None,
        "cost_usd": None,
        "attempts": 1,
        "vendor": f"127.0.0.1:{work.vendor.port}",
        "answer_model": "m",
    }
    # The file goes in again: its own columns, earlier answers among them, and new ones beside those.
    work.run(f"out.{form}", f"again.{form}", "-t", "{answer} is what?")
    again = work.table(f"again.{form}")
    assert again.select(found.column_names).equals(found)
    assert again.column_names[len(found.column_names) :] == [f"{name}_2" for name in ADDED]
    assert again["answer_2"].to_pylist() == ["what?"] * 3


def test_every_output_of_one_batch_says_the_same(work: Work) -> None:
    table = pa.table({"n": pa.array([1, 2, 3], pa.int16()), "text": ["a", None, "[[status=400]] c"]})
    work.run(work.write("in.parquet", table), "out.parquet", "-t", "{text} {n}", code=3)
    typed = work.table("out.parquet")
    for name in ("out.csv", "out.jsonl", "out.feather"):
        assert work.command("export", "@last", "-o", name, "--progress", "none").code == 3
    assert work.table("out.feather").equals(typed)
    assert (work.folder / "out.csv").read_text().splitlines()[1].startswith("1,a,1,stop,")
    lines = work.command.lines("out.jsonl")
    assert [line["ok"] for line in lines] == [kind is None for kind in typed["error_kind"].to_pylist()]
    assert typed["error_kind"].to_pylist() == [None, None, "invalid_request"]
    assert (typed["error_code"].to_pylist()[2], typed["http_status"].to_pylist()[2]) == ("scripted_error", 400)
    assert work.vendor.texts().count("a 1") == 1, "an export sends nothing"


def test_the_same_command_writes_it_anew_and_another_batch_says_what_it_replaced(work: Work) -> None:
    work.write("in.parquet", pa.table({"text": ["a", "b"]}))
    first = work.run("in.parquet", "out.parquet", "-t", "{text}")
    assert "held" not in work.run("in.parquet", "out.parquet", "-t", "{text}").err
    other = work.run("in.parquet", "out.parquet", "-t", "{text}!")
    assert "out.parquet held 2 lines of other answers" in other.err
    assert first.err != other.err
    work.write("out.parquet", pa.table({"mine": [1]}))
    refused = work.run("in.parquet", "out.parquet", "-t", "{text}", code=2)
    assert "holds something else" in refused.err
    work.run("in.parquet", "out.parquet", "-t", "{text}", "--force")


def test_lines_and_csv_come_out_as_typed_tables_too(work: Work) -> None:
    work.command.write("in.jsonl", [{"custom_id": "x", "prompt": "Say a"}, {"prompt": "Say b"}])
    work.run("in.jsonl", "lines.parquet")
    found = work.table("lines.parquet")
    assert found.select(["request_index", "custom_id", "answer"]).to_pylist() == [
        {"request_index": 0, "custom_id": "x", "answer": "a"},
        {"request_index": 1, "custom_id": None, "answer": "b"},
    ]
    (work.folder / "in.csv").write_text("id,text\n1,\n2,x\n")
    work.run("in.csv", "csv.parquet", "-t", "Say {text}{id}")
    assert work.table("csv.parquet").select(["id", "text", "answer"]).to_pylist() == [
        {"id": "1", "text": "", "answer": "1"},
        {"id": "2", "text": "x", "answer": "x2"},
    ]


def test_rows_that_cannot_be_sent_keep_their_columns(work: Work) -> None:
    table = pa.table({"messages": ['[{"role":"user","content":"Say a"}]', "no list"], "n": [1, 2]})
    work.write("in.parquet", table)
    assert "row" in work.run("in.parquet", "out.parquet", code=2).err
    work.run("in.parquet", "out.parquet", "--skip-invalid", "--failed", "failed.jsonl", code=3)
    found = work.table("out.parquet")
    assert found.select(table.column_names).equals(table)
    assert found["error_kind"].to_pylist() == [None, "invalid_row"]
    told = work.run("in.parquet", "out.parquet", "--failed", "failed.parquet", "--force", code=2)
    assert "rows are written as JSONL" in told.err


def test_embeddings(work: Work) -> None:
    table = pa.table(
        {
            "url": ["/v1/embeddings"] * 4,
            "body": [
                json.dumps({"model": "m", "input": given, **more})
                for given, more in (
                    ("one", {}),
                    (["one", "two"], {}),
                    ("one", {"encoding_format": "base64"}),
                    ("[[status=400]]", {}),
                )
            ],
        }
    )
    work.run(work.write("in.parquet", table), "out.parquet", code=3)
    found = work.table("out.parquet")
    assert found.schema.field("embedding").type == pa.list_(pa.float32())
    assert found["embedding"].to_pylist() == [[0.25, -0.5], None, [0.25, -0.5], None]
    assert found["embeddings"].to_pylist() == [None, [[0.25, -0.5], [1.25, -0.5]], None, None]


def test_to_standard_output_and_through_a_pipe(work: Work) -> None:
    work.write("in.parquet", pa.table({"text": ["a", "b"]}))
    endpoint = ["--base-url", work.vendor.base_url, "--api-key-env", "", "-m", "m", "--progress", "none"]
    ended = subprocess.run(
        [sys.executable, "-m", "batchwright", "run", "-", "-t", "{text}", "--format", "parquet", *endpoint],
        cwd=work.folder,
        env=work.command.environment,
        input=(work.folder / "in.parquet").read_bytes(),
        capture_output=True,
        check=True,
    )
    assert pq.read_table(pa.BufferReader(ended.stdout))["answer"].to_pylist() == ["a", "b"]


def test_a_killed_run_goes_on_with_the_same_table(work: Work) -> None:
    work.write("in.parquet", pa.table({"n": range(300)}))
    work.vendor.set(hold=True)
    endpoint = ("--base-url", work.vendor.base_url, "--api-key-env", "", "-m", "m", "--progress", "none")
    command = ("run", "in.parquet", "-o", "out.parquet", "-t", "Say word{n}", *endpoint)
    started = work.command.start(*command)
    started.until(work.vendor, lambda vendor: len(vendor.hits) >= 16)
    started.kill()
    started.end()
    work.vendor.set(hold=False)
    work.vendor.release()
    ended = work.command(*command)
    assert (ended.code, "Going on with" in ended.err) == (0, True), ended.err
    assert work.table("out.parquet")["answer"].to_pylist() == [f"word{number}" for number in range(300)]


def test_other_readers_take_it(work: Work) -> None:
    work.run(work.write("in.parquet", every_type().drop_columns(["map"])), "out.parquet", "-t", "{text}")
    frame = pd.read_parquet(work.folder / "out.parquet")
    assert (len(frame), frame["whole"].iloc[0]) == (3, 1)
    assert pl.read_parquet(work.folder / "out.parquet")["price"].to_list()[0] == Decimal("1.50")


def test_a_dataset_folder_and_several_files(work: Work, tmp_path: Path) -> None:
    folder = work.folder / "data"
    folder.mkdir()
    for number in range(2):
        with pa.ipc.new_stream(folder / f"data-{number}.arrow", pa.schema([("n", pa.int64())])) as writer:
            writer.write_table(pa.table({"n": [2 * number, 2 * number + 1]}))
    listed = [{"filename": f"data-{number}.arrow"} for number in range(2)]
    (folder / "state.json").write_text(json.dumps({"_data_files": listed}))
    work.run("data", "out.parquet", "-t", "word{n}")
    assert work.table("out.parquet")["n"].to_pylist() == [0, 1, 2, 3]
    for number in range(2):
        work.write(f"part{number}.parquet", work.table("out.parquet").select(["n"]).slice(2 * number, 2))
    work.run("part*.parquet", "parts.feather", "-t", "word{n}")
    assert work.table("parts.feather")["answer"].to_pylist() == [f"word{number}" for number in range(4)]


def test_answers_that_were_shared_or_taken_over_say_so(work: Work) -> None:
    work.write("in.parquet", pa.table({"text": ["a", "b", "a"]}))
    first = work.run("in.parquet", "out.parquet", "-t", "{text}", "--temperature", "0", "--dedup")
    found = work.table("out.parquet")
    assert found.column_names[:3] == ["text", "shares_answer_of", "answer"]
    assert found["shares_answer_of"].to_pylist() == [None, None, 0]
    assert found["answer"].to_pylist() == ["a", "b", "a"]
    work.write("more.parquet", pa.table({"text": ["a", "c"]}))
    work.run("more.parquet", "more.arrow", "-t", "{text}", "--temperature", "0", "--reuse", "@last")
    again = work.table("more.arrow")
    assert again.column_names[:3] == ["text", "reused_from", "answer"]
    assert [bool(batch_id) for batch_id in again["reused_from"].to_pylist()] == [True, False]
    assert again["reused_from"].to_pylist()[0] in first.err
