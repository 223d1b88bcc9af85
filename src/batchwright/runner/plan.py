"""What a run does about the batches that are there already. Pure: one decision, and what is told before it is done.

found                                                     step
no batch of the same run, or --fresh                      START (says how an earlier batch of this file differs)
newest was refused, or its intake died half-way           START
it is being reopened for a retry that died half-way       FINISH_RETRY (told, not done: the retry chose the rows)
it has ended                                              DELIVER (with failures: says how to retry)
open, and another run on this machine owes its output     WATCH
open, paused by budget, no higher cap given               STAY_PAUSED
open                                                      GO_ON (clears pauses by gate, lane and user)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from batchwright.core import row_map
from batchwright.core.batch_spec import Destination, with_keys_of
from batchwright.core.batch_state import BatchState, PauseCause
from batchwright.core.gate import GateRule
from batchwright.core.identity import text_digest
from batchwright.core.row_options import RowOptions
from batchwright.ports.batches import BatchStatus
from batchwright.runner import commands
from batchwright.runner.figures import count_text, money_text, plural, shown_text
from batchwright.runner.request import Dedup, Delivery, Reuse, RunRequest


class Step(StrEnum):
    START = "start"
    GO_ON = "go_on"
    WATCH = "watch"
    DELIVER = "deliver"
    STAY_PAUSED = "stay_paused"
    FINISH_RETRY = "finish_retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    step: Step
    batch: BatchStatus | None = None
    """None for START."""
    says: tuple[str, ...] = ()
    """Told before it is done."""
    resume: bool = False
    """GO_ON: pauses are to be cleared, or the cap or keys to be set, before."""
    max_cost_picousd: int = -1
    """GO_ON with `resume`: the new cap; -1 leaves it."""
    keys_of: tuple[Destination, ...] = ()
    """GO_ON with `resume`: places whose keys the batch's places get."""
    past_gate: bool = False
    """GO_ON with `resume`: the batch's gate is judged no more."""


def identity_options(rows: RowOptions, files_digest: str = "") -> dict[str, str]:
    """Everything that changes a request's bytes, by the name a person knows it by. `files_digest`: of what the rows'
    pictures are now.

    Pace, output and limits are left out. Where the rows go makes another run too, but only for the models that they
    name, which is known from reading them alone: `runner.same_way` asks that.
    """
    options = {
        "--model": rows.model,
        "--prompt": rows.prompt,
        "--template-file": f"one whose digest is {rows.template.digest}" if rows.template is not None else "",
        "--system": rows.system,
        "--image": _images_text(rows, files_digest),
        "--where": rows.where,
        "--select": ",".join(map(repr, rows.select)),
        "--limit": str(rows.limit) if rows.limit else "",
        "attach": rows.attached,
        "estimate --sample": rows.picked.name if rows.picked is not None else "",
    }
    if rows.answers is not None:
        options |= {
            "--schema": text_digest(rows.answers.text),
            "--on-mismatch": rows.answers.on_mismatch.value,
            "--repair": str(rows.answers.repairs) if rows.answers.repairs else "",
        }
    options |= {f"--param {name}": json.dumps(value, sort_keys=True) for name, value in rows.params.items()}
    return {name: value for name, value in options.items() if value}


def _images_text(rows: RowOptions, files_digest: str) -> str:
    if rows.images is None:
        return ""
    files = f", files whose digest is {files_digest}" if files_digest else ""
    return ", ".join(rows.images.columns) + files


def newest_that_counts(same: Sequence[BatchStatus]) -> BatchStatus | None:
    """Of the batches of one run, newest first, the one it speaks of: none that was refused or half taken in."""
    for batch in same:
        if batch.state is BatchState.REFUSED:
            continue
        if batch.state is BatchState.ACCEPTING and not batch.live and not _is_reopening(batch):
            continue
        return batch
    return None


def _is_reopening(batch: BatchStatus) -> bool:
    """ACCEPTING also while a retry reopens rows: then it was settled, or is in a later round."""
    return batch.state is BatchState.ACCEPTING and bool(batch.round or batch.settled_at_ms)


def decide(request: RunRequest, batch: BatchStatus | None, holder: str) -> Plan:
    """`batch`: `newest_that_counts`. `holder`: who owes the open batch its output ("process 4711"); empty: nobody."""
    if batch is None:
        return Plan(step=Step.START)
    if request.fresh:
        return Plan(step=Step.START, says=(f"Starting anew (--fresh); {batch.batch_id} stays as it is.",))
    if batch.terminal:
        return Plan(step=Step.DELIVER, batch=batch, says=(_ended_text(batch),))
    if _is_reopening(batch) and not batch.live:
        return Plan(step=Step.FINISH_RETRY, batch=batch)
    if holder:
        text = (
            f"{holder[:1].upper()}{holder[1:]} is running this as {batch.batch_id}; watching it. "
            "It writes the output, this command does not."
        )
        return Plan(step=Step.WATCH, batch=batch, says=(text,))
    return _go_on(request, batch)


def _go_on(request: RunRequest, batch: BatchStatus) -> Plan:
    cap, wanted = batch.spec.max_cost_picousd, request.max_cost_picousd
    causes = {pause.cause for pause in batch.pauses}
    if PauseCause.BUDGET in causes and wanted <= cap:
        stands = f"Its cap stays {money_text(cap)}, which it has reached: {money_text(max(0, wanted))} would be lower."
        return Plan(step=Step.STAY_PAUSED, batch=batch, says=(stands,) if 0 <= wanted < cap else ())
    done = batch.total - batch.counts.open
    says = [f"Going on with {batch.batch_id}: {count_text(done)} of {plural(batch.total, 'row')} are done."]
    if causes:
        reasons = "; ".join(shown_text(pause.reason, 400) for pause in batch.pauses)
        says.append(f"It was paused ({reasons}); trying again.")
    new_cap = wanted if wanted >= 0 and wanted != cap else -1
    if new_cap >= 0:
        before = f"it was {money_text(cap)}" if cap >= 0 else "it had none"
        says.append(f"Its cap is now {money_text(new_cap)} ({before}).")
    keys_of = renewals(request)
    renewed = renewed_keys(batch.spec.destinations, keys_of)
    if renewed and batch.live:
        keys_of = ()
        renewed = [
            "Another worker goes on with the key that its rows began with. To change it: pause, then this again."
        ]
    says += renewed
    past_gate = not request.gate and batch.spec.gate is not GateRule.OFF
    if past_gate:
        says.append("Its first rows are judged no more (--no-gate).")
    says += kept_as_submitted(request, batch)
    return Plan(
        step=Step.GO_ON,
        batch=batch,
        says=tuple(says),
        resume=bool(causes or renewed or past_gate) or new_cap >= 0,
        max_cost_picousd=new_cap,
        past_gate=past_gate,
        keys_of=keys_of,
    )


def renewals(request: RunRequest) -> tuple[Destination, ...]:
    """Places with a key that is set here: none is replaced by one that is not, or by none."""
    places = request.rows.directions.destinations
    return tuple(place for place in places if place.key_env and place.vendor not in request.unset_keys)


def renewed_keys(own: Sequence[Destination], now: Sequence[Destination]) -> list[str]:
    """A sentence for each place of a batch that has another key now."""
    changed = zip(own, with_keys_of(own, now), strict=True)
    return [
        f"Its rows go to {before.vendor} with {_key_text(after)} now (before: {_key_text(before)})."
        for before, after in changed
        if before != after
    ]


def _key_text(place: Destination) -> str:
    if not place.key_env:
        return "no key"
    return f"the key in {place.key_env}" + (f" of {place.dotenv_file}" if place.dotenv_file else "")


def kept_as_submitted(request: RunRequest, batch: BatchStatus) -> list[str]:
    """A batch keeps what it was submitted with. Says so where this command asks for something else."""
    spec, kept = batch.spec, []
    if request.max_attempts != spec.max_attempts:
        kept.append(f"--max-attempts {spec.max_attempts} (not {request.max_attempts})")
    if request.on_uncertain is not spec.on_uncertain:
        kept.append(f"--on-uncertain {spec.on_uncertain.value} (not {request.on_uncertain.value})")
    if request.gate and spec.gate is GateRule.OFF:
        kept.append("--no-gate")
    elif request.gate and GateRule(request.on_gate) is not spec.gate:
        kept.append(f"--on-gate {spec.gate.value} (not {request.on_gate.value})")
    if request.group_prefix is not None and request.group_prefix != spec.group_prefix:
        kept.append("its order of sending (not --group-prefix or --no-group-prefix)")
    if (request.dedup is not Dedup.OFF) != spec.dedup:
        kept.append("--dedup" if spec.dedup else "no shared answers (not --dedup)")
    if request.reuse != Reuse() and spec.kept is None:
        kept.append("no answers taken over (with --fresh too, a new batch does)")
    if request.stop_after is not None and request.stop_after != spec.stop_after:
        before = f"--stop-after-failures {spec.stop_after}" if spec.stop_after is not None else "no"
        kept.append(f"{before} (not --stop-after-failures {request.stop_after})")
    if request.deadline_s:
        kept.append("its deadline" if batch.deadline_ms else "no deadline (not --deadline)")
    return [f"It keeps what it was submitted with: {', '.join(kept)}."] if kept else []


def _ended_text(batch: BatchStatus) -> str:
    if batch.state is BatchState.COMPLETED:
        return f"{batch.batch_id} of this input is complete; nothing is sent. (--fresh starts anew.)"
    return f"{batch.batch_id} of this input has ended ({batch.state.value}); nothing is sent. (--fresh starts anew.)"


def paused_texts(batch: BatchStatus, delivery: Delivery) -> tuple[str, ...]:
    """Why it stands, and the exact command that goes on."""
    lines = [f"{_paused_by(pause.cause)}: {shown_text(pause.reason, 1000)}" for pause in batch.pauses]
    return (*(lines or ["Paused."]), f"Nothing is lost. {commands.out_of_pause(batch, delivery)}")


def _paused_by(cause: PauseCause) -> str:
    return "Paused" if cause is PauseCause.UNKNOWN else f"Paused ({cause.value.replace('_', ' ')})"


def retry_texts(batch: BatchStatus, retry_command: str) -> tuple[str, ...]:
    """What to do about an ended batch with rows that have no success; nothing where there are none."""
    count = sum(rows for byte, rows in batch.by_byte.items() if byte in row_map.RETRIED_BYTES)
    if not batch.terminal or not count:
        return ()
    again = f"To send {plural(count, 'row')} without success again: {retry_command}"
    if batch.total > count or batch.round or batch.closed_as is not None:
        return (again,)
    return (again, "Where the address or the model is wrong, give the run again with the right one: a retry keeps it.")
