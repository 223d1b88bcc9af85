"""Tables and frames into a run, and its results as tables and frames."""

from __future__ import annotations

import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import batchwright
from batchwright.core.errors import UsageError
from batchwright.library import results as results_module
from batchwright.runner import arrow_extra
from batchwright.wire.arrow_lines import ADDED
from support.typed_columns import every_type

TABLE = pa.table({"n": pa.array([1, 2, None], pa.int16()), "text": ["a", None, "c"]})


def run(given: Any, home: Path, **options: Any) -> batchwright.Results:
    return batchwright.run(given, model="m", simulate=True, home=home, progress="none", **options)


@pytest.mark.parametrize(
    "frame",
    [
        TABLE,
        pd.DataFrame({"n": pd.array([1, 2, None], "Int16"), "text": ["a", None, "c"]}),
        pl.DataFrame({"n": pl.Series([1, 2, None], dtype=pl.Int16), "text": ["a", None, "c"]}),
    ],
    ids=["pyarrow", "pandas", "polars"],
)
def test_a_frame_in_and_each_frame_out(frame: Any, tmp_path: Path) -> None:
    results = run(frame, tmp_path, prompt="Say {text} {n}", output=tmp_path / "out.parquet")
    table = results.to_arrow()
    assert table.column_names == ["n", "text", *ADDED]
    assert table.select(["n", "text"]).to_pylist() == TABLE.to_pylist()
    assert table.equals(pq.read_table(tmp_path / "out.parquet"))
    assert [row["answer"] for row in table.to_pylist()] == [result.content for result in results]
    pandas, polars = results.to_pandas(), results.to_polars()
    assert list(pandas.columns) == polars.columns == table.column_names
    assert pandas["cost_usd"].tolist() == [result.cost_usd for result in results]
    assert polars["cost_usd"].sum() == sum((result.cost_usd or Decimal(0) for result in results), Decimal(0))
    assert polars.schema["n"] == pl.Int16
    assert run(frame, tmp_path, prompt="Say {text} {n}").batch_id == results.batch_id, "the same rows again"


def test_every_type_comes_back(tmp_path: Path) -> None:
    table = every_type()
    assert run(table, tmp_path, prompt="{text}").to_arrow().select(table.column_names).equals(table)


def test_results_are_a_stream_for_whoever_takes_arrow_data(tmp_path: Path) -> None:
    rows = pa.table({"n": range(1_200)})
    results = run(rows, tmp_path, prompt="Say {n}")
    reader = results.to_batches()
    sizes = [batch.num_rows for batch in reader]
    assert (sum(sizes), max(sizes) <= 500) == (1_200, True)
    assert pl.DataFrame(results)["n"].to_list() == list(range(1_200))
    assert pa.table(results).num_rows == 1_200
    # They are rows of another run, too.
    again = run(results, tmp_path, prompt="Is {answer} right?")
    assert "answer_2" in again.to_arrow().column_names


def test_a_stream_that_is_left_early_leaves_no_thread_behind(tmp_path: Path) -> None:
    results = run(pa.table({"n": range(1_600)}), tmp_path, prompt="Say {n}")
    before = threading.active_count()
    reader = results.to_batches()
    reader.read_next_batch()
    reader.close()
    del reader
    assert threading.active_count() == before


def test_rows_that_were_no_table(tmp_path: Path) -> None:
    table = run([{"custom_id": "x", "prompt": "Say a"}], tmp_path).to_arrow()
    assert table.column_names == ["request_index", "custom_id", *ADDED]


def test_files_by_list(tmp_path: Path) -> None:
    for number in range(2):
        pq.write_table(TABLE.slice(number, 1), tmp_path / f"{number}.parquet")
    results = run([tmp_path / "1.parquet", tmp_path / "0.parquet"], tmp_path, prompt="{n}")
    assert results.to_arrow()["n"].to_pylist() == [2, 1]


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = run([{"prompt": "Say a"}], tmp_path)
    monkeypatch.setattr(results_module, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="pip install pandas"):
        results.to_pandas()
    with pytest.raises(UsageError, match="pip install polars"):
        results.to_polars()
    monkeypatch.setattr(arrow_extra, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"batchwright\[parquet\]"):
        results.to_arrow()


def test_a_table_out_imports_no_pandas(tmp_path: Path) -> None:
    pq.write_table(every_type(), tmp_path / "in.parquet")
    program = (
        "import sys, batchwright\n"
        "batchwright.run('in.parquet', output='out.parquet', prompt='{text}', model='m', simulate=True, home='.',"
        " progress='none')\n"
        "assert not {'pandas', 'polars'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)


def test_a_frame_library_that_is_not_given_is_not_imported(tmp_path: Path) -> None:
    program = (
        "import sys, batchwright\n"
        f"batchwright.run([{{'prompt': 'x'}}], model='m', simulate=True, home={str(tmp_path)!r}, progress='none')\n"
        "assert not {'pyarrow', 'pandas', 'polars'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
