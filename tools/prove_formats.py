"""Every form of file goes round: in, out, and what came out in again, with the peak memory of each run.

    python tools/prove_formats.py --rows 1000000 parquet     one of: jsonl, csv, parquet, arrow, feather; else all

The rows of each form are the same: a number, a text of 600 characters that ends in a word of the
row's own, a decimal. The vendor echoes that word. Each run must end with exit code 0, and its file have the word of
each row, in order; the second run's prompt is made of the first one's answers.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from support.command_line import CommandLine
from support.vendor_process import VendorProcess

MEASURE = Path(__file__).parents[1] / "benchmarks" / "measure.py"
FORMATS = ("jsonl", "csv", "parquet", "arrow", "feather")
AT_ONCE = 10_000
SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string()), ("price", pa.decimal128(12, 2))])
FILLER = "The kettle was set down beside the window again. " * 12


def main() -> int:
    parser = argparse.ArgumentParser(description="Every form of file goes round.")
    parser.add_argument("form", nargs="*", metavar=f"{{{','.join(FORMATS)}}}")
    parser.add_argument("--rows", type=int, default=100_000)
    given = parser.parse_args()
    held = True
    for form in given.form or FORMATS:
        with tempfile.TemporaryDirectory(prefix="batchwright-") as folder, VendorProcess() as vendor:
            held &= _goes_round(CommandLine(Path(folder)), vendor, form, given.rows)
    return 0 if held else 1


def _goes_round(command: CommandLine, vendor: VendorProcess, form: str, rows: int) -> bool:
    folder = command.folder
    _write(folder / f"in.{form}", form, rows)
    endpoint = ("--base-url", vendor.base_url, "--api-key-env", "", "-m", "m", "--progress", "none", "-c", "256")
    answer = "{request_index}" if form == "jsonl" else "{answer}"
    figures, problems = [], []
    for source, target, prompt in (("in", "out", "{text}"), ("out", "again", f"Again {answer}")):
        words = ("run", f"{source}.{form}", "-o", f"{target}.{form}", "-t", prompt, *endpoint)
        # Measured by a small process: a child's peak counts from the fork, and this one is large.
        ended = subprocess.run(
            [sys.executable, str(MEASURE), "--", sys.executable, "-m", "batchwright", *words],
            cwd=folder,
            env=command.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            problems.append(f"exit code {ended.returncode}: {ended.stderr[-2000:]}")
            break
        figures.append(ended.stderr.splitlines()[-1])
        problems += _problems(folder / f"{target}.{form}", form, rows, again=target == "again")
    print(f"{form}: {rows:,} rows in and out: {'; in again: '.join(figures)}", flush=True)
    for problem in problems:
        print(f"  DOES NOT HOLD: {problem}", flush=True)
    return not problems


def _problems(path: Path, form: str, rows: int, *, again: bool) -> list[str]:
    """At most the first row that is wrong."""
    seen = 0
    for seen, answer in enumerate(_READ[form](path, "answer_2" if again else "answer"), start=1):
        wanted = str(seen - 1) if again and form == "jsonl" else f"word{seen - 1}"
        if answer != wanted:
            return [f"{path.name}: row {seen - 1} has the answer {answer!r}"]
    return [] if seen == rows else [f"{path.name}: {seen:,} rows"]


def _tables(rows: int) -> Iterator[Any]:
    for first in range(0, rows, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, rows))
        texts = [f"{FILLER}Say word{number}" for number in numbers]
        prices = pa.array([Decimal(number).scaleb(-2) for number in numbers], SCHEMA.field("price").type)
        yield pa.table([pa.array(numbers, pa.int64()), pa.array(texts), prices], schema=SCHEMA)


def _write(path: Path, form: str, rows: int) -> None:
    if form == "jsonl":
        with path.open("w") as out:
            for table in _tables(rows):
                out.writelines(json.dumps(row, default=str) + "\n" for row in table.to_pylist())
        return
    with _OPEN[form](path) as writer:
        for table in _tables(rows):
            writer.write_table(table)


_OPEN: dict[str, Callable[[Path], Any]] = {
    "csv": lambda path: pa.csv.CSVWriter(path, SCHEMA),
    "parquet": lambda path: pq.ParquetWriter(path, SCHEMA),
    "arrow": lambda path: pa.ipc.new_file(path, SCHEMA),
    "feather": lambda path: pa.ipc.new_file(path, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")),
}


def _read_lines(path: Path, _: str) -> Iterator[Any]:
    with path.open("rb") as lines:
        for line in lines:
            yield json.loads(line)["result"]["content"]


def _read_csv(path: Path, column: str) -> Iterator[Any]:
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield row[column]


def _read_parquet(path: Path, column: str) -> Iterator[Any]:
    for batch in pq.ParquetFile(path).iter_batches(AT_ONCE, columns=[column]):
        yield from batch.column(0).to_pylist()


def _read_ipc(path: Path, column: str) -> Iterator[Any]:
    with pa.ipc.open_file(path) as reader:
        for number in range(reader.num_record_batches):
            yield from reader.get_batch(number).column(column).to_pylist()


_READ: dict[str, Callable[[Path, str], Iterator[Any]]] = {
    "jsonl": _read_lines,
    "csv": _read_csv,
    "parquet": _read_parquet,
    "arrow": _read_ipc,
    "feather": _read_ipc,
}


if __name__ == "__main__":
    sys.exit(main())
