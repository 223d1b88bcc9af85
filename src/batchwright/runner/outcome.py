"""How a run ended, whole: the exit code, the report, and what a person may do next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from batchwright.core.batch_state import BatchState, PauseCause
from batchwright.ports.batches import BatchStatus
from batchwright.runner import commands
from batchwright.runner.drive import Driven
from batchwright.runner.figures import count_text, plural
from batchwright.runner.plan import paused_texts
from batchwright.runner.report import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_OUR_FAULT,
    EXIT_PAUSED,
    Report,
    build_report,
)
from batchwright.runner.report_text import report_text
from batchwright.runner.request import Delivery
from batchwright.runner.standing import is_over_limit, state_text


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    exit_code: int
    batch_id: str = ""
    """Empty: no batch came to be."""
    report: Report | None = None
    """None: there is no batch, or nothing to tell of it."""
    closing: tuple[str, ...] = ()
    """Lines that stand after the report: why it stopped, and the command that goes on."""

    @property
    def text(self) -> str:
        """Everything to print on stderr at the end; without a final line break."""
        return "\n".join([*([report_text(self.report)] if self.report is not None else []), *self.closing])


def nothing_sent() -> RunOutcome:
    """Interrupted before the batch was durable."""
    return RunOutcome(exit_code=EXIT_INTERRUPTED, closing=("Interrupted while reading the input; nothing was sent.",))


def not_finished_retry(batch_id: str) -> RunOutcome:
    return RunOutcome(
        exit_code=EXIT_PAUSED,
        batch_id=batch_id,
        closing=(
            f"{batch_id} was being reopened for a retry when that command ended.",
            f"Nothing is lost. This goes on: batchwright retry {batch_id}",
        ),
    )


def left_open(driven: Driven, delivery: Delivery) -> RunOutcome:
    """A batch this command worked on and left: paused, interrupted, or with nothing that can be sent now."""
    status = driven.status
    report = build_report(status, None, timing=driven.timing, strict=delivery.strict)
    if status.state is BatchState.PAUSED:
        *reasons, going_on = paused_texts(status, delivery)
        code, closing = EXIT_PAUSED, (*reasons, *gate_texts(status, delivery.command), going_on)
    elif driven.failure is not None:
        code = EXIT_PAUSED
        closing = (
            str(driven.failure),
            f"Nothing is lost. When that is put right, this goes on: {commands.going_on(status, delivery)}",
        )
    else:
        code, closing = EXIT_INTERRUPTED, _interrupted_texts(driven, delivery)
    if driven.interrupted:
        code = EXIT_INTERRUPTED
    return _reported(report, closing, code)


def _interrupted_texts(driven: Driven, delivery: Delivery) -> tuple[str, ...]:
    done = driven.status.total - driven.status.counts.open
    if driven.status.live:
        batch_id, command = driven.status.batch_id, delivery.command
        return (
            f"Interrupted here, but another worker (`serve`, `work`, another `run`) goes on with {batch_id}: its rows "
            f"are sent and paid for. {count_text(done)} of {plural(driven.status.total, 'row')} are done.",
            f"This halts it: {commands.pause(batch_id, command)}",
            f"This ends it: {commands.cancel(batch_id, command)}",
            f"This watches it and writes its answers: {commands.going_on(driven.status, delivery)}",
        )
    return (
        f"Interrupted. Nothing is lost: {count_text(done)} of {plural(driven.status.total, 'row')} are done.",
        f"This goes on: {commands.going_on(driven.status, delivery)}",
    )


def watched(driven: Driven, delivery: Delivery) -> RunOutcome:
    """A batch that was only looked at."""
    status = driven.status
    report = build_report(status, None, timing=driven.timing, strict=delivery.strict)
    code = report.exit_code
    closing: tuple[str, ...] = ()
    if driven.interrupted:
        code = EXIT_INTERRUPTED
        again = commands.watch(status.batch_id, delivery.command)
        closing = (f"Stopped watching; {status.batch_id} goes on. To watch again: {again}",)
    elif status.state is BatchState.PAUSED:
        closing = (*paused_texts(status, delivery), *gate_texts(status, delivery.command))
    return _reported(report, closing, code)


def gate_texts(status: BatchStatus, command: Sequence[str] = ()) -> tuple[str, ...]:
    """What the same rows, sent again in the same way, cannot put right; empty where no gate shut."""
    if status.terminal and status.counts.stopped and not is_over_limit(status):
        return ("A wrong model name or wrong rows stay wrong in a retry: another -m, or changed rows, is a new batch.",)
    if any(pause.cause is PauseCause.GATE for pause in status.pauses):
        ending = commands.cancel(status.batch_id, command)
        return (f"Another -m, or changed rows, is a new batch; this ends the one that waits here: {ending}",)
    return ()


def with_word_of_export(outcome: RunOutcome, delivery: Delivery, *, wrote: bool = True) -> RunOutcome:
    """Of a batch that has ended under a command that was given no place for the answers, or has only looked on (`wrote`
    False): says how to get them. The library, which has no command, reads them from the store."""
    if (wrote and not delivery.nothing) or not delivery.command or outcome.report is None:
        return outcome
    batch_id = outcome.batch_id
    how = (
        commands.export_anywhere(batch_id, delivery.command)
        if delivery.nothing
        else commands.export(batch_id, delivery)
    )
    # Whether a run has written them, or will, is not known to one who looks on.
    unless = "" if wrote else " where no run has"
    word = f"The answers are kept. This writes them{unless}: {how}"
    return replace(outcome, closing=(*outcome.closing, word))


def not_written(report: Report, problem: str, delivery: Delivery) -> RunOutcome:
    """The batch has ended, its file could not be written."""
    again = commands.export(report.status.batch_id, delivery)
    return _reported(report, (problem, f"The answers are kept. To write them again: {again}"), EXIT_OUR_FAULT)


def interrupted_writing(report: Report, delivery: Delivery) -> RunOutcome:
    """The batch has ended, and a person interrupted while its rows were read: no half file stays."""
    if delivery.nothing:
        closing = ("Interrupted while the rows were counted: kinds and cost are told without their samples.",)
        return _reported(report, closing, EXIT_INTERRUPTED)
    again = commands.export(report.status.batch_id, delivery)
    return _reported(report, (f"Interrupted while writing. To write the answers: {again}",), EXIT_INTERRUPTED)


def not_read(report: Report, delivery: Delivery) -> RunOutcome:
    """The reader of standard output, or of a pipe, went away before the end."""
    again = commands.export(report.status.batch_id, delivery)
    place = str(delivery.output) if delivery.output is not None else "Standard output"
    closing = (f"{place} was closed by its reader before the end. For all answers: {again}",)
    return _reported(report, closing, report.exit_code)


def written_early(report: Report, delivery: Delivery) -> RunOutcome:
    """Exported before the batch has ended: what was asked for was done, and the file says which rows are open."""
    status = report.status
    again = commands.export(status.batch_id, delivery)
    text = (
        f"{status.batch_id} has not ended ({state_text(status)}); open rows are written as such. Once it has: {again}"
    )
    return _reported(report, (text,), EXIT_OK)


def _reported(report: Report, closing: tuple[str, ...], code: int) -> RunOutcome:
    """One exit code, in the outcome and in the report's JSON."""
    told = replace(report, left_with=code)
    return RunOutcome(exit_code=told.exit_code, batch_id=told.status.batch_id, report=told, closing=closing)
