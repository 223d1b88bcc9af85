"""The files a command names: as paths, and looked at before anything is read or sent. Writes nothing.

What an output may not be for any caller (a folder, the input itself) is checked by `runner.deliver`; here is what only
a person at a command line gets wrong.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from batchwright.core.errors import UsageError
from batchwright.core.object_urls import ObjectURL, object_url
from batchwright.runner.destination_file import descriptor_of
from batchwright.runner.spool import files_of

STREAM = "-"
STDOUT, STDERR = 1, 2


def check_source(source: str) -> None:
    """Raises UsageError for an input that is not there, is a folder, or may not be read."""
    if source == STREAM or object_url(source) is not None:
        return
    if not source:
        raise UsageError("FILE: expected the name of a file of rows, or - for standard input, found ''")
    if files_of(source):
        return
    path = Path(source)
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise UsageError(
                f"{source} is a folder; expected a file of rows, or a pattern in quotes for several: "
                f"'{path / '*.jsonl'}'"
            )
    except FileNotFoundError:
        raise UsageError(f"{source}: there is no such file{_alike(path)}") from None
    except OSError as error:
        raise UsageError(f"{source}: cannot be read: {error.strerror}; expected a file of rows") from error
    if not os.access(path, os.R_OK):
        raise UsageError(f"{source}: you may not read this file")


def output_paths(output: str | None, failed: str | None) -> tuple[Path | ObjectURL | None, Path | ObjectURL | None]:
    """(output, failed output); None is standard output, or no file of failed rows. Raises UsageError."""
    if failed is not None and is_stdout(failed):
        raise UsageError(f"--failed: expected a file, found {failed!r}: standard output is for the answers")
    for option, place in (("-o", output), ("--failed", failed)):
        if place == "":
            raise UsageError(f"{option}: expected the name of a file, found ''")
        if place is not None:
            _check_descriptor(option, place)
    out = None if output is None or is_stdout(output) else object_url(output) or Path(output)
    return out, None if failed is None else object_url(failed) or Path(failed)


def is_stdout(place: str) -> bool:
    """`-`, and standard output by its other names (/dev/stdout, /dev/fd/1)."""
    return place == STREAM or descriptor_of(Path(place)) == STDOUT


def goes_to_stdout(place: str) -> bool:
    """Also a file, or a pipe, that this process's standard output was sent to. (What goes to the null device meets
    nothing there.)"""
    if is_stdout(place):
        return True
    try:
        named = os.stat(place)
        return os.path.samestat(named, os.fstat(STDOUT)) and not os.path.samestat(named, os.stat(os.devnull))
    except OSError:
        return False


def _check_descriptor(option: str, place: str) -> None:
    """Of a name such as /dev/fd/3. Raises UsageError where nothing can be written there."""
    descriptor = descriptor_of(Path(place))
    if descriptor == STDERR:
        raise UsageError(f"{option} {place}: standard error is for progress and the report; name another place")
    if descriptor is not None and not _is_open_for_writing(descriptor):
        raise UsageError(f"{option} {place}: nothing is open for writing under that number; name another place")


def _is_open_for_writing(descriptor: int) -> bool:
    import fcntl  # such names exist only where this does

    try:
        return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:
        return False


def _alike(path: Path) -> str:
    from difflib import get_close_matches

    if not path.parent.is_dir():
        return f", nor a folder {path.parent}"
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    close = get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.with_name(close[0])}?" if close else ""
