"""What the command ends with, and what is said when it does not end well.

    0    every row answered (and: any other command that did what it was asked)
    1    our fault, or that of the state folder or database
    2    usage or input refused; nothing was sent
    3    some rows without success (and: `check` found a vendor, model or route that fails, `diff` a difference)
    4    no row succeeded, or the batch expired or was cancelled
    5    paused; the reason is printed, with the command that goes on
    130  interrupted; nothing is lost

A broken pipe (`| head`) is the reader's wish: quiet, and 0. A stderr that is closed, full or unread changes nothing.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

import click

from batchwright.cli.store_options import given_stores

if TYPE_CHECKING:
    from batchwright.core.errors import InputRefused

OK = 0
OUR_FAULT = 1
REFUSED = 2
SOME_FAILED = 3
PAUSED = 5
INTERRUPTED = 130
SHOWN_LINES = 5
SHOWN_FINDINGS = 100

EPILOG = """\b
Exit codes: 0 every row answered; 1 our fault; 2 usage or input refused;
3 some rows without success; 4 none succeeded, expired or cancelled; 5 paused;
130 interrupted.

\b
A batch's ID may be shortened to a unique prefix; @last is the newest.
Settings: options, then BATCHWRIGHT_... variables, .env, batchwright.toml,
the user's config.toml.
State: the folder in BATCHWRIGHT_HOME, else the platform's for user data."""


def code_of_call(call: Callable[[], Any]) -> int:
    """Calls it; its number is the code. Errors are said on stderr and become their code."""
    try:
        result = call()
    except click.exceptions.Abort:
        say("Interrupted.")
        return INTERRUPTED
    except click.ClickException as error:
        _say_by(error.show)
        return error.exit_code
    except Exception as error:
        return _code_of_error(error)
    return result if isinstance(result, int) else OK


def _code_of_error(error: Exception) -> int:
    from batchwright.core import errors

    match error:
        case errors.InputRefused():
            _say_refused(error)
            return REFUSED
        case errors.CallerError() | errors.InUse() | errors.VendorUnavailable():
            _say_error(error)
            return REFUSED
        case errors.NotNow():
            _say_error(error)
            return PAUSED
        case errors.BatchwrightError():
            _say_error(error)
            return OUR_FAULT
        case OSError():
            _say_error(error)
        case _:
            say(f"Error: a fault of batchwright itself: {type(error).__name__}: {error}")
    if _debug():
        say("".join(traceback.format_exception(error)).rstrip())
    else:
        say("The same command with BATCHWRIGHT_DEBUG=1 before it shows where (a traceback on stderr).")
    return OUR_FAULT


def say(text: str) -> None:
    """Says it on stderr; one that is closed, full or unread is no reason to end otherwise."""
    from batchwright.runner.line_breaks import columns_of, fitted

    _say_by(lambda: click.echo(fitted(text, columns_of(sys.stderr)), err=True))


def _say_by(call: Callable[[], None]) -> None:
    try:
        call()
    except (OSError, ValueError):
        forget(sys.stderr)


def forget(stream: TextIO | None) -> None:
    """Nobody reads it: what is still buffered would be tried again, and complained about, when the interpreter ends."""
    if stream is None:
        return
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def flush_streams() -> None:
    """Last of all. What cannot be written has been told, where it could be, and must not change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            forget(stream)


def fill_closed_streams() -> None:
    """Of a process that was started with stdin, stdout or stderr closed (`2>&-`). Their numbers would go to the next
    files that are opened, and a library's complaint on "stderr" into one of those. First of all that a command does."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(os.devnull, "r" if number == 0 else "w"))  # noqa: SIM115  (for the whole process)


def stdout_is_closed() -> bool:
    """Whether `fill_closed_streams` had to fill it. (A stdout that was sent to the null device is named otherwise.)"""
    return getattr(sys.stdout, "name", "") == os.devnull


def quiet_when_unread(call: Callable[[], Any]) -> Any:
    """Calls it and flushes stdout; a reader that went away ends the command without a word."""
    try:
        result = call()
        sys.stdout.flush()
    except BrokenPipeError:
        forget(sys.stdout)
        return OK
    except OSError:
        _flush_or_forget()
        raise
    return result


def _flush_or_forget() -> None:
    """Raises OSError, with the name of the place, if what could not be written is standard output."""
    try:
        sys.stdout.flush()
    except OSError as error:
        forget(sys.stdout)
        raise OSError(error.errno, error.strerror, "standard output") from None


def nearest_text(name: str, known: Iterable[str]) -> str:
    """ " Did you mean 'run'?"; empty when nothing is near."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def _say_refused(error: InputRefused) -> None:
    from batchwright.core.errors import UNBOUNDED_COST

    say(f"Error: {error}")
    alike: dict[tuple[str, str], list[int]] = {}
    for finding in error.findings:
        if len(error.findings) == 1 and finding.message in str(error):
            continue  # of a file as a whole, and said
        alike.setdefault((finding.code, finding.message), []).append(finding.line)
    shown = list(alike.items())[:SHOWN_FINDINGS]
    for (code, message), lines in shown:
        # A fault of the whole file is one line and not a hundred; a few of a kind are a line each.
        for together in [lines] if len(lines) > SHOWN_LINES else [[line] for line in lines]:
            say(f"  {_lines_text(together)}{message} [{code}]")
    left = error.total - len(error.findings) + sum(len(lines) for _, lines in list(alike.items())[SHOWN_FINDINGS:])
    if left > 0:
        # What a cap asks of a row is no fault of the file: `validate` knows of no cap.
        listed = "" if any(code == UNBOUNDED_COST for code, _ in alike) else " (batchwright validate lists them)"
        say(f"  and {left:,} more{listed}")
    _say_notes(error)


def _lines_text(lines: Sequence[int]) -> str:
    """ "line 7: ", "lines 7, 8, 9 and 4 more: "; nothing for what is said of the whole input."""
    if not any(lines):
        return ""
    numbers = ", ".join(f"{line:,}" for line in lines[:SHOWN_LINES])
    more = f" and {len(lines) - SHOWN_LINES:,} more" if len(lines) > SHOWN_LINES else ""
    return f"line{'s' if len(lines) > 1 else ''} {numbers}{more}: "


def _say_error(error: Exception) -> None:
    say(f"Error: {error}")
    _say_notes(error)


def _say_notes(error: Exception) -> None:
    for note in getattr(error, "__notes__", ()):
        say(note)
    _say_place(str(error))


def _say_place(text: str) -> None:
    """Where the database was named on the command line, so must it be for the commands that a message names."""
    if (given := given_stores()) and "`batchwright " in text:
        words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]
        say(f"Commands that are named here need {shlex.join(words)} too.")


def _debug() -> bool:
    return os.environ.get("BATCHWRIGHT_DEBUG", "") not in ("", "0")
