"""The command line: `batchwright COMMAND`, one file a command.

Nothing but click is imported until a command runs: `--version`, `--help` and completion answer at once. Data goes to
stdout, progress and messages to stderr. What a code of exit means stands in `cli.exits`.
"""

from __future__ import annotations


def main() -> None:
    """Entry point of the `batchwright` script. Ends the process with the command's code."""
    import io
    import sys

    from batchwright.cli.exits import fill_closed_streams

    fill_closed_streams()
    from batchwright.cli.group import batchwright

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or pipe of a narrow encoding: an answer's text must not end the command.
            stream.reconfigure(errors="backslashreplace")
    batchwright.main(prog_name="batchwright")
