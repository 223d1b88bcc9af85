"""Standard streams that are closed, full or unread: no traceback, the right code, and no answer lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROWS = 3
RUN = "$batchwright run rows.jsonl -m m --simulate"
pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the devices of Linux")


class Shell:
    """A shell in a folder with a rows file, for what only a shell can do with streams."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("BATCHWRIGHT_", "OPENAI_"))}
        self._environment = {
            **kept,
            "HOME": str(folder),
            "BATCHWRIGHT_HOME": str(folder / "state"),
            "PYTHONUNBUFFERED": "",
            "batchwright": f"{sys.executable} -m batchwright",
        }
        lines = [json.dumps({"prompt": f"word{row}"}) + "\n" for row in range(ROWS)]
        (folder / "rows.jsonl").write_text("".join(lines))

    def __call__(self, line: str) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {line}"],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in ended.stderr, ended.stderr
        assert "Exception ignored" not in ended.stderr, ended.stderr
        return ended

    def lines(self, name: str = "out.jsonl") -> int:
        return len((self.folder / name).read_text().splitlines())


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize(
    "streams", ["2>&-", "2>/dev/full", "2>&1 | true", ">&- 2>/dev/null", ">&- 2>&- <&-", "> /dev/full", "--json 2>&-"]
)
def test_a_run_is_done_and_its_file_written_whoever_listens(shell: Shell, streams: str) -> None:
    ended = shell(f"{RUN} -o out.jsonl {streams}")
    assert (ended.returncode, shell.lines()) == (0, ROWS), ended.stderr


def test_answers_that_nobody_can_take_are_kept(shell: Shell) -> None:
    full = shell(f"{RUN} > /dev/full")
    assert full.returncode == 1
    assert "standard output could not be written" in full.stderr
    assert "batchwright export batch_" in full.stderr
    assert shell(f"{RUN} | true").returncode == 0
    again = shell(f"{RUN}")
    assert (again.returncode, len(again.stdout.splitlines())) == (0, ROWS)
    assert "nothing is sent" in again.stderr


@pytest.mark.parametrize(("options", "code"), [("", 2), ("--json -o out.jsonl", 2), ("-o out.jsonl", 0)])
def test_a_closed_stdout_is_no_place_for_data(shell: Shell, options: str, code: int) -> None:
    ended = shell(f"{RUN} {options} >&-")
    assert ended.returncode == code
    assert ("standard output is closed" in ended.stderr) == (code == 2)


def test_a_report_that_cannot_be_written_is_told_on_stderr(shell: Shell) -> None:
    ended = shell(f"{RUN} -o out.jsonl --json > /dev/full")
    assert (ended.returncode, shell.lines()) == (1, ROWS)
    assert "3 ok of 3" in ended.stderr
    assert "cannot be written to standard output" in ended.stderr
    assert shell(f"{RUN} -o out.jsonl --json | true").returncode == 0


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("$batchwright list > /dev/full", 1),
        ("$batchwright list >&-", 0),
        ("$batchwright list 2>&-", 0),
        ("$batchwright --help | true", 0),
        ("$batchwright --help > /dev/full", 1),
        ("$batchwright nothing 2> /dev/full", 2),
        ("$batchwright nothing 2>&-", 2),
        ("$batchwright status unknown 2>&1 | true", 2),
    ],
)
def test_every_command_ends_with_its_code(shell: Shell, line: str, code: int) -> None:
    assert shell(f"{RUN} -o out.jsonl 2>&- && {line}").returncode == code


@pytest.mark.parametrize(
    "place", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "taken.jsonl", "/dev/stderr", "/dev/fd/97"]
)
def test_answers_and_report_are_never_mixed(shell: Shell, place: str) -> None:
    ended = shell(f"{RUN} -o {place} --json > taken.jsonl")
    assert (ended.returncode, shell.lines("taken.jsonl")) == (2, 0)
    assert not (shell.folder / "state" / "batchwright.sqlite").exists(), "nothing was begun"
    assert "-o" in ended.stderr


def test_what_stdout_held_before_stays(shell: Shell) -> None:
    ended = shell(f"echo earlier > kept.jsonl; {RUN} -o /dev/stdout >> kept.jsonl")
    assert (ended.returncode, shell.lines("kept.jsonl")) == (0, 1 + ROWS)
    ended = shell(f"{RUN} -o /dev/fd/3 3>> kept.jsonl")
    assert (ended.returncode, shell.lines("kept.jsonl")) == (0, 1 + 2 * ROWS)


def test_devices_and_pipes_as_files(shell: Shell) -> None:
    assert shell(f"{RUN} -o /dev/null --json > report").returncode == 0
    assert json.loads((shell.folder / "report").read_text())["ok"] == ROWS
    full = shell(f"{RUN} -o /dev/full")
    assert (full.returncode, "/dev/full could not be written" in full.stderr) == (1, True)
    piped = shell(f"mkfifo pipe; cat pipe > got & {RUN} -o pipe && wait")
    assert (piped.returncode, shell.lines("got")) == (0, ROWS)


def test_a_pipe_that_nobody_reads_is_left_at_an_interrupt(shell: Shell) -> None:
    wait = "until grep -q 'Waiting for somebody' said; do :; done"
    ended = shell(f"mkfifo pipe; {RUN} -o pipe 2> said & {wait}; kill -INT $!; wait $!")
    assert ended.returncode == 130
    assert "batchwright export" in (shell.folder / "said").read_text()


@pytest.mark.parametrize(
    "streams",
    [
        "rows.jsonl >> rows.jsonl",
        "rows.jsonl -o /dev/stdout 1<> rows.jsonl",
        "rows.jsonl -o /dev/fd/3 3>> rows.jsonl",
        "- < rows.jsonl >> rows.jsonl",
        "- -o rows.jsonl < rows.jsonl",
        "linked.jsonl >> rows.jsonl",
        "rows.jsonl -o out.jsonl --json >> rows.jsonl",
        "rows.jsonl -n >> rows.jsonl",
    ],
)
def test_the_input_is_never_written_into(shell: Shell, streams: str) -> None:
    os.link(shell.folder / "rows.jsonl", shell.folder / "linked.jsonl")
    before = (shell.folder / "rows.jsonl").read_bytes()
    ended = shell(f"$batchwright run -m m --simulate {streams}")
    assert (ended.returncode, "is the input itself" in ended.stderr) == (2, True), ended.stderr
    assert (shell.folder / "rows.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "streams", ["rows.jsonl >> out.jsonl", "- < rows.jsonl > out.jsonl", "rows.jsonl -o out.jsonl"]
)
def test_a_file_of_its_own_is_written_into(shell: Shell, streams: str) -> None:
    ended = shell(f"$batchwright run -m m --simulate {streams}")
    assert (ended.returncode, shell.lines()) == (0, ROWS), ended.stderr
