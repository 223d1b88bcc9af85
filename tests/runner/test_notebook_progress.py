"""Progress in a notebook: one line that moves and lines that stay, as a cell shows them; and when it is chosen.

IPython is no dependency, so a kernel is stood in for by a module of its name in a process of its own; tried by hand
with ipykernel 7.4, both with `run` and with `await run_async`.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from batchwright.ports.batches import BatchStatus
from batchwright.runner.notebook_progress import MAX_CHARS, NotebookProgress
from batchwright.runner.seams import Snapshot
from support.batch_samples import ok, status_of

KERNEL = """
class Shell:
    kernel = {kernel}

def get_ipython():
    return Shell()
"""
SCRIPT = """
import asyncio
import IPython
import batchwright

rows = [{"prompt": f"row {number}"} for number in range(300)]

async def cell():
    blocking = batchwright.run(rows, model="any", simulate=True)
    awaited = await batchwright.run_async(rows[:40], model="any", simulate=True)
    print(len(blocking), len(awaited))

asyncio.run(cell())
"""


def shown(text: str) -> list[str]:
    """The lines of a cell, which takes a carriage return as a terminal does."""
    lines = []
    for line in text.split("\n"):
        cells: list[str] = []
        for part in line.split("\r"):
            cells[: len(part)] = part
        lines.append("".join(cells).rstrip())
    return lines


def snapshot(status: BatchStatus, *, elapsed_s: float) -> Snapshot:
    return Snapshot(
        status=status,
        view=None,
        now_ms=0,
        elapsed_s=elapsed_s,
        rows_per_s=812.4,
        eta_s=2.3,
        stopping="",
    )


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def test_one_line_moves_and_what_is_said_stays_above_it(stream: io.StringIO) -> None:
    display = NotebookProgress(stream)
    display.say("batch_1: 3 rows taken in.")
    running = status_of({ok(): 1}, total=3)
    display.show(snapshot(running, elapsed_s=0.0))
    display.show(replace(snapshot(running, elapsed_s=0.1), rows_per_s=1.0))
    assert "1.0 rows/s" not in stream.getvalue(), "not so soon again"
    display.say("a word")
    display.show(replace(snapshot(running, elapsed_s=1.0), eta_s=-1.0))
    display.close()
    display.close()
    said, word, line, end = shown(stream.getvalue())
    assert (said, word, end) == ("batch_1: 3 rows taken in.", "a word", "")
    assert line.startswith("1/3 done (33%), 812 rows/s")
    assert "left" not in line, "nothing of a longer line is left behind it"


def test_a_line_does_not_wrap_and_a_broken_stream_harms_nothing(stream: io.StringIO) -> None:
    display = NotebookProgress(stream)
    running = status_of({ok(): 1}, total=3)
    display.show(replace(snapshot(running, elapsed_s=0.0), stopping="because " * 60))
    assert max(map(len, shown(stream.getvalue()))) == MAX_CHARS
    display.reading(25_000)
    display.writing(1, 50_000)
    display.writing(25_001, 50_000)
    assert shown(stream.getvalue()) == ["writing: 25,001 of 50,000 rows"]
    stream.close()
    display.say("nobody reads this")
    display.close()


@pytest.mark.parametrize("kernel", ["object()", "None"])
def test_a_kernel_is_what_chooses_it(tmp_path: Path, kernel: str) -> None:
    """IPython in a terminal, or a module that imports it, is no notebook."""
    (tmp_path / "IPython.py").write_text(KERNEL.format(kernel=kernel))
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("BATCHWRIGHT_", "OPENAI_"))}
    source = Path(__file__).parents[2] / "src"
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={
            **kept,
            "BATCHWRIGHT_HOME": str(tmp_path / "state"),
            "HOME": str(tmp_path),
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(source)]),
        },
        capture_output=True,
        check=False,
    )
    text = ended.stderr.decode()
    assert (ended.returncode, ended.stdout) == (0, b"300 40\n"), text
    moves = "\r" in text
    assert moves is (kernel != "None")
    if moves:
        lines = shown(text)
        assert sum("300/300 done (100%)" in line for line in lines) == 1
        assert sum("40/40 done (100%)" in line for line in lines) == 1
