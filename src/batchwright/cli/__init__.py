"""The command line: `batchwright COMMAND`, one file a command.

Nothing but click is imported until a command runs: `--version`, `--help` and completion answer at once. Data goes to
stdout, progress and messages to stderr. What a code of exit means stands in `cli.exits`.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Entry point of the `batchwright` script. Ends the process with the command's code."""
    import io
    import sys

    _open_standard_streams()
    from batchwright.cli.group import batchwright

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or pipe of a narrow encoding: an answer's text must not end the command.
            stream.reconfigure(errors="backslashreplace")
    batchwright.main(prog_name="batchwright")


def _open_standard_streams() -> None:
    """Started with one of them closed (`>&-`): else the next file that is opened would be taken for it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
