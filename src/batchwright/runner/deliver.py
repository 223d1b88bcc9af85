"""The end of the line: an ended batch's rows into its file, counted once more on the way, and the report on them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from batchwright.core.errors import StoreError, UsageError
from batchwright.core.object_urls import ObjectURL
from batchwright.ports.batches import BatchStatus
from batchwright.runner import commands
from batchwright.runner.destination_file import descriptor_of
from batchwright.runner.earlier_file import HEAD_BYTES, begins_anything_else, holds_anything_else
from batchwright.runner.export import TABLE_SUFFIXES, export, form_of_name, format_of
from batchwright.runner.gather import Gathered, gathering
from batchwright.runner.interrupts import Interrupted
from batchwright.runner.law import InputCount
from batchwright.runner.object_inputs import OpenObjects
from batchwright.runner.outcome import (
    RunOutcome,
    gate_texts,
    interrupted_writing,
    not_read,
    not_written,
    written_early,
)
from batchwright.runner.plan import retry_texts
from batchwright.runner.report import Timing, Written, build_report
from batchwright.runner.request import Delivery
from batchwright.runner.seams import Seams
from batchwright.runner.spool import files_of, files_of_pattern, fits_pattern

STDIN, STDOUT = 0, 1
NAME_MAX_BYTES = 230
"""File systems allow 255, and the name while it is written is longer by a process's number."""


async def deliver(
    status: BatchStatus, delivery: Delivery, timing: Timing, seams: Seams, *, read: InputCount | None = None
) -> RunOutcome:
    """Writes the rows of a batch and reports on it; of one that has not ended (`export`) as they stand now, segment by
    segment. What goes wrong with the file is an outcome."""
    written: Written | None = None
    gathered: Gathered | None = None
    try:
        if delivery.nothing:
            gathered = await _pass_over(seams, status)
        else:
            gathered, written = await export(status, delivery, seams)
    except BrokenPipeError:
        # Whoever reads standard output has seen enough (`| head`): that is their wish, not a failure of the batch.
        report = build_report(status, None, timing=timing, strict=delivery.strict, read=read)
        return not_read(report, delivery)
    except OSError as error:
        report = build_report(status, None, timing=timing, strict=delivery.strict, read=read)
        return not_written(report, _problem_text(error, delivery), delivery)
    except Interrupted:
        report = build_report(status, None, timing=timing, strict=delivery.strict, read=read)
        return interrupted_writing(report, delivery)
    report = build_report(status, gathered, timing=timing, strict=delivery.strict, written=written, read=read)
    if not status.terminal:
        return written_early(report, delivery)
    closing = (*gate_texts(status), *retry_texts(status, commands.retry(status.batch_id, delivery)))
    return RunOutcome(exit_code=report.exit_code, batch_id=status.batch_id, report=report, closing=closing)


async def _pass_over(seams: Seams, status: BatchStatus) -> Gathered:
    gathered = gathering(status)
    seen = seams.interrupts.count
    async for views in seams.batches.rows(status.batch_id, texts_of=frozenset()):
        if seams.interrupts.count > seen:
            raise Interrupted
        gathered.add(views)
    return gathered


def _problem_text(error: OSError, delivery: Delivery) -> str:
    place = error.filename or delivery.output or "standard output"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"The disk is full: {place} could not be written."
        case errno.ENOENT:
            return f"The folder of {place} does not exist any more."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"{place} may not be written to: {error.strerror}."
        case _:
            return f"{place} could not be written: {error.strerror or error}."


def check_delivery(delivery: Delivery, source: str | Path | Iterable[object]) -> None:
    """Before anything is sent: can the output be written where it is meant to go? `source`: what is read meanwhile;
    nothing of a batch that is there already. Raises UsageError."""
    if delivery.nothing:
        return
    format_of(delivery)
    if delivery.output is None and isinstance(source, str | Path) and is_input(None, source):
        raise UsageError("standard output is the input itself; it would be written into. Send the answers elsewhere")
    places = [("-o", delivery.output), ("--failed", delivery.failed_output)]
    for flag, path in places:
        if path is None:
            continue
        if isinstance(path, ObjectURL):
            _check_object(flag, path, source)
            continue
        _check_place(flag, path)
        if (isinstance(source, str | Path) or files_of(source)) and is_input(path, source):
            if files_of(source):
                raise UsageError(f"{flag} {path} would be one of the input's files, which {source} names. Give another")
            raise UsageError(f"{flag} {path} is the input itself; it would be overwritten. Give another name")
        if (
            not delivery.force
            and descriptor_of(path) is None
            and holds_anything_else(path, requests=flag == "--failed")
        ):
            raise _would_be_lost(flag, path, delivery)
    if delivery.failed_output is not None and form_of_name(delivery.failed_output) in TABLE_SUFFIXES:
        raise UsageError(
            f"--failed {delivery.failed_output}: rows are written as JSONL, ready to be run; name it .jsonl"
        )
    out, failed = delivery.output, delivery.failed_output
    if out is not None and failed is not None and _same(out, failed):
        raise UsageError(f"-o and --failed both name {out}; give each a file of its own")


def check_objects(delivery: Delivery, objects: OpenObjects | None) -> None:
    """The same of outputs that are objects, whose store is asked. Raises UsageError."""
    for flag, url in (("-o", delivery.output), ("--failed", delivery.failed_output)):
        if delivery.nothing or not isinstance(url, ObjectURL):
            continue
        if objects is None:
            raise UsageError(f"{flag} {url}: objects cannot be written here; expected the path of a file")
        try:
            head = objects().first_bytes(url, HEAD_BYTES)
        except StoreError as error:
            raise UsageError(f"{flag} {url} cannot be written. {error}") from error
        if delivery.force:
            continue
        if head is None:
            raise UsageError(
                f"{flag} {url}: these credentials may not do that: look whether something is there, which would be "
                f"lost. Let them read and list there, or give {_force(delivery)} to replace what there is"
            )
        if begins_anything_else(head, url.name, requests=flag == "--failed"):
            raise _would_be_lost(flag, url, delivery)


def _would_be_lost(flag: str, place: Path | ObjectURL, delivery: Delivery) -> UsageError:
    return UsageError(
        f"{flag} {place} is there and holds something else, which would be lost. Give another name, "
        f"or {_force(delivery)} to replace it"
    )


def _force(delivery: Delivery) -> str:
    return "--force" if delivery.command else "force=True"


def _check_object(flag: str, url: ObjectURL, source: str | Path | Iterable[object]) -> None:
    if url.is_prefix:
        raise UsageError(f"{flag} {url} ends with a slash; give the whole name of an object")
    if str(source) == str(url) or (str(source).endswith("/") and str(url).startswith(str(source))):
        raise UsageError(f"{flag} {url} is in the input itself; it would be read the next time. Give another name")


def _check_place(flag: str, path: Path) -> None:
    """Raises UsageError for what can be no file that is written."""
    if descriptor_of(path) is not None:
        return
    if len(os.fsencode(path.name)) > NAME_MAX_BYTES:
        raise UsageError(
            f"{flag} {path}: the file's name has {len(os.fsencode(path.name))} bytes; expected {NAME_MAX_BYTES} at most"
        )
    try:
        if path.is_dir():
            raise UsageError(f"{flag} {path} is a folder; give the name of a file in it")
        if path.is_socket() or path.is_block_device():
            raise UsageError(f"{flag} {path} is a socket or a disk; give the name of a file, or of a pipe")
        folder = path.resolve().parent
        if not folder.is_dir():
            raise UsageError(f"{flag} {path}: the folder {folder} does not exist; create it first")
        # A file is written beside its place and renamed; a pipe or a device is written to as it is.
        special = path.exists() and not path.is_file()
        if not os.access(path if special else folder, os.W_OK):
            what = "to it" if special else f"into the folder {folder}"
            raise UsageError(f"{flag} {path}: you may not write {what}; name another place")
    except (OSError, RuntimeError) as error:  # a name that is too long, a link that leads to itself
        raise UsageError(f"{flag} {path} cannot be written: {getattr(error, 'strerror', error)}") from error


def is_input(place: Path | None, source: str | Path | Iterable[object]) -> bool:
    """Whether what is written to `place` (None: standard output) goes into the file that is read; `-`: what standard
    input was made of."""
    one = str(source) if isinstance(source, str | Path) else ""
    if place is not None and one not in ("", "-") and _same(place, Path(one)):
        return True
    if paths := files_of(source):
        # Also one that is not there yet.
        fits = place is not None and bool(files_of_pattern(source)) and fits_pattern(place, one)
        return fits or any(is_input(place, path) for path in paths)
    try:
        read = os.fstat(STDIN) if one == "-" else os.stat(one)
        written = os.fstat(STDOUT) if place is None else os.stat(place)
    except OSError:
        return False
    # A terminal, a pipe and the null device are read and written at once without harm.
    return stat.S_ISREG(read.st_mode) and os.path.samestat(read, written)


def _same(one: Path | ObjectURL, other: Path | ObjectURL) -> bool:
    if isinstance(one, ObjectURL) or isinstance(other, ObjectURL):
        return one == other
    if one.is_char_device():
        return False
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))
