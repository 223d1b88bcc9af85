"""The commands that messages tell people to give next. Pure text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from decimal import ROUND_UP, Decimal

from batchwright.core.batch_spec import BatchSpec
from batchwright.core.batch_state import BatchState, PauseCause
from batchwright.core.gate import GateRule
from batchwright.core.money import PICO
from batchwright.ports.batches import BatchStatus
from batchwright.runner.request import Delivery

CAP_FLAG = "--max-cost"
FRESH_FLAG = "--fresh"
SERVICE_FLAGS = ("--service", "--service-key-env")
STORE_FLAGS = ("--database", "--blobs", "--blobs-endpoint")


def again(command: Sequence[str]) -> str:
    """The command as it was typed, without --fresh, which would start anew instead of going on; for the library, which
    has no command, words that say the same."""
    if not command:
        return "the same call again (without fresh)"
    return shlex.join(word for word in command if word != FRESH_FLAG)


def going_on(status: BatchStatus, delivery: Delivery) -> str:
    """What goes on with a batch that was left open: the same `run` again, after any other command a `resume`. That
    names the batch: `@last`, if that was typed, may be another one by then."""
    return again(_going_on_words(status, delivery))


def _going_on_words(status: BatchStatus, delivery: Delivery) -> Sequence[str]:
    """Empty for the library, which has no command."""
    if len(delivery.command) > 1 and delivery.command[1] != "run":
        return _with_output("resume", status.batch_id, delivery)
    return _as_submitted(delivery.command, status.spec)


def _as_submitted(command: Sequence[str], spec: BatchSpec) -> list[str]:
    """Without options that ask for something else than the batch was submitted with: it keeps that, and a command that
    is told to go on with it is not to promise another thing."""
    kept: list[str] = []
    words = iter(command)
    for word in words:
        flag, equals, value = word.partition("=")
        takes_value = flag in (
            "--on-gate",
            "--on-uncertain",
            "--max-attempts",
            "--max-retries",
            "--stop-after-failures",
        )
        if takes_value and not equals:
            value = next(words, "")
        match flag:
            case "--on-gate":
                keeps = value == spec.gate.value
            case "--on-uncertain":
                keeps = value == spec.on_uncertain.value
            case "--max-attempts":
                keeps = value == str(spec.max_attempts)
            case "--max-retries":
                keeps = value == str(spec.max_attempts - 1)
            case "--stop-after-failures":
                keeps = spec.stop_after is not None and value == str(spec.stop_after)
            case "--gate" | "--no-gate":
                keeps = (flag == "--gate") == (spec.gate is not GateRule.OFF)
            case _:
                keeps = True
        if keeps:
            kept += [word, value] if takes_value and not equals else [word]
    return kept


def out_of_pause(status: BatchStatus, delivery: Delivery) -> str:
    """What goes on with a paused batch, by what paused it: a sentence that ends with the command."""
    words = _going_on_words(status, delivery)
    command = _beyond_pauses(status, words)
    if _is_paused_by(status, PauseCause.KEY_BUDGET):
        key_id = status.tenant.key_id
        how = f" ({shlex.join(more_for_key(key_id, delivery.command))})" if key_id else ""
        return f"Once its key may spend more{how}, this goes on: {command}"
    if _is_paused_by(status, PauseCause.BUDGET):
        return f"With a higher cap it goes on: {command}"
    if all(pause.cause is PauseCause.USER for pause in status.pauses):
        return f"This goes on: {command}"
    return f"When that is put right, this goes on: {command}"


def of_standing(status: BatchStatus, command: Sequence[str] = ()) -> str:
    """What goes on with an open batch that nobody works on, told without the command that left it so. `command`: the
    one that looked at it, which names the service or the database where it is at one."""
    if status.state is BatchState.ACCEPTING:
        return shlex.join(["batchwright", "retry", status.batch_id, *_place_words(command)])
    resuming = _beyond_pauses(status, ["batchwright", "resume", status.batch_id, *_place_words(command)])
    if _is_paused_by(status, PauseCause.KEY_BUDGET) and status.tenant.key_id:
        return f"{shlex.join(more_for_key(status.tenant.key_id, command))} && {resuming}"
    return resuming


def _beyond_pauses(status: BatchStatus, words: Sequence[str]) -> str:
    """With a higher cap only where it is the batch's own cap that it ran into."""
    if _is_paused_by(status, PauseCause.BUDGET):
        return with_cap(words, status.spec.max_cost_picousd)
    return again(words)


def _is_paused_by(status: BatchStatus, cause: PauseCause) -> bool:
    return any(pause.cause is cause for pause in status.pauses)


def more_for_key(key_id: str, command: Sequence[str] = ()) -> list[str]:
    return ["batchwright", "keys", "budget", key_id, "USD", *_values(command, STORE_FLAGS)]


def with_cap(command: Sequence[str], cap_picousd: int) -> str:
    """The command with twice the cap it ran into (the person sees the figure and changes it)."""
    raised = max((Decimal(cap_picousd) / PICO * 2).quantize(Decimal("0.01"), ROUND_UP), Decimal("0.01"))
    if not command:
        return f"the same call again with max_cost={raised}"
    kept: list[str] = []
    words = iter(command)
    for word in words:
        if word == CAP_FLAG:
            next(words, None)
        elif word != FRESH_FLAG and not word.startswith(f"{CAP_FLAG}="):
            kept.append(word)
    return shlex.join([*kept, CAP_FLAG, str(raised)])


def export(batch_id: str, delivery: Delivery) -> str:
    return shlex.join(["batchwright", "export", batch_id, *_output_words(delivery), *_place_words(delivery.command)])


def resume(batch_id: str, command: Sequence[str] = ()) -> str:
    return shlex.join(["batchwright", "resume", batch_id, *_place_words(command)])


def work(command: Sequence[str] = ()) -> str:
    return shlex.join(["batchwright", "work", *_values(command, STORE_FLAGS)])


def export_anywhere(batch_id: str, command: Sequence[str] = ()) -> str:
    """The export of a batch of which no output was named by this command."""
    return shlex.join(["batchwright", "export", batch_id, "-o", "FILE", *_place_words(command)])


def cancel(batch_id: str, command: Sequence[str] = ()) -> str:
    return shlex.join(["batchwright", "cancel", batch_id, *_place_words(command)])


def pause(batch_id: str, command: Sequence[str] = ()) -> str:
    return shlex.join(["batchwright", "pause", batch_id, *_place_words(command)])


def watch(batch_id: str, command: Sequence[str] = ()) -> str:
    return shlex.join(["batchwright", "watch", batch_id, *_place_words(command)])


def retry(batch_id: str, delivery: Delivery) -> str:
    return shlex.join(_with_output("retry", batch_id, delivery))


def _with_output(verb: str, batch_id: str, delivery: Delivery) -> list[str]:
    """These write answers only where a file is named, and take --format and --failed only with it."""
    words = _output_words(delivery) if delivery.output is not None else []
    return ["batchwright", verb, batch_id, *words, *_place_words(delivery.command)]


def _place_words(command: Sequence[str]) -> list[str]:
    """What names the database and the store of its bodies or, of a command on a service's batch, the service. (The
    batch of a `run` through one is here.)"""
    runs = len(command) > 1 and command[1] == "run"
    return _values(command, STORE_FLAGS if runs else (*STORE_FLAGS, *SERVICE_FLAGS))


def _values(command: Sequence[str], flags: Sequence[str]) -> list[str]:
    """These flags of the command, with their values."""
    words: list[str] = []
    for place, word in enumerate(command):
        name, equals, _ = word.partition("=")
        if name in flags:
            words += [word] if equals else command[place : place + 2]
    return words


def _output_words(delivery: Delivery) -> list[str]:
    words = ["-o", str(delivery.output)] if delivery.output is not None else []
    words += ["--format", delivery.output_format] if delivery.output_format else []
    words += ["--failed", str(delivery.failed_output)] if delivery.failed_output is not None else []
    return words
