"""Takes the README's picture of a terminal, of the command as it really ran:

    uv run --extra local python tools/terminal_picture.py

Runs the main job in a terminal of its own (tmux, which must be installed) with a fresh home and state folder, captures
the screen with its colours twice, once while rows are being answered and once at the end, and writes docs/terminal.svg.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from io import StringIO
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "terminal.svg"
COMMAND = "batchwright run examples/tickets.jsonl -o answers.jsonl"
COLUMNS, LINES = 84, 24
HALF_WAY = re.compile(r" (?:4\d|5\d|6\d)%")
ENDED = re.compile(r"^ *batch: batch_\w+, completed", re.MULTILINE)
ANSI = re.compile(r"\x1b\[[0-9;]*m")
LOOK_EVERY_S = 0.1
WITHIN_S = 300.0


def main() -> int:
    if shutil.which("tmux") is None:
        raise SystemExit("tmux is not installed; it is the terminal that the picture is taken of")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.copytree(ROOT / "examples", work / "examples")
        (work / "home").mkdir()
        terminal = Terminal(work)
        try:
            terminal.type(COMMAND)
            screens = [terminal.wait_for(HALF_WAY), terminal.wait_for(ENDED)]
        finally:
            terminal.close()
        if len((work / "answers.jsonl").read_bytes().splitlines()) != 40:
            raise SystemExit("the command did not write its 40 answers: no picture is taken of that")
    PICTURE.write_text(svg(screens), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)} written")
    return 0


class Terminal:
    """A shell in a tmux server that nobody else uses."""

    def __init__(self, work: Path) -> None:
        self._tmux = ["tmux", "-f", os.devnull, "-S", str(work / "socket")]
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(work / "home"),
            "BATCHWRIGHT_HOME": str(work / "home" / "state"),
            "LANG": "C.UTF-8",
            "PS1": "$ ",
        }
        words = ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]
        shell = shlex.join([*words, "TERM=screen-256color", "COLORTERM=", "bash", "--norc", "--noprofile", "-i"])
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        subprocess.run([*self._tmux, "new-session", "-d", *size, "-c", str(work), shell], check=True)

    def type(self, line: str) -> None:
        subprocess.run([*self._tmux, "send-keys", line, "Enter"], check=True)

    def wait_for(self, pattern: re.Pattern[str]) -> str:
        """The screen, with colours, as soon as it shows this."""
        until_s = time.monotonic() + WITHIN_S
        while time.monotonic() < until_s:
            screen = self._capture()
            if pattern.search(ANSI.sub("", screen)):
                return screen
            time.sleep(LOOK_EVERY_S)
        raise SystemExit(f"in {WITHIN_S:g} s the screen never showed {pattern.pattern!r}:\n{self._capture()}")

    def _capture(self) -> str:
        shown = [*self._tmux, "capture-pane", "-p", "-e"]
        return subprocess.run(shown, check=True, capture_output=True, text=True).stdout

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=True)


def svg(screens: list[str]) -> str:
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    decoder = AnsiDecoder()
    shown: list[str] = []
    for screen in screens:
        lines = list(decoder.decode(screen.rstrip()))
        if lines[-1].plain.strip() == "$":
            lines.pop()
        if shown:
            console.print(Text(f"\n{' and at the end, in its place ':─^{COLUMNS}}\n", style="bright_black"))
            lines = lines[common_lines(shown, [line.plain for line in lines]) :]
        shown = [line.plain for line in lines]
        for line in lines:
            console.print(line, overflow="crop", no_wrap=True)
    return without_web_fonts(console.export_svg(title="batchwright", theme=MONOKAI, unique_id="batchwright"))


def common_lines(first: list[str], second: list[str]) -> int:
    """How many lines both screens begin with."""
    return next((number for number, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), 0)


def without_web_fonts(picture: str) -> str:
    """A picture in a repository fetches nothing: the reader's own monospace font does."""
    return re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL).replace("\r", "")


if __name__ == "__main__":
    sys.exit(main())
