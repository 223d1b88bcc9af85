"""The report in words, for stderr, and as one JSON object, for `--json`.

The first line is the outcome, whole in itself: a person who reads nothing else knows how it went.
"""

from __future__ import annotations

from typing import Any

import msgspec

from batchwright.core.batch_state import BatchState
from batchwright.core.failures import Flag
from batchwright.core.spent_out import ASIDE_TOLD_PICOUSD, aside_text
from batchwright.runner.figures import (
    count_text,
    duration_text,
    money_text,
    plural,
    rate_text,
    shown_text,
)
from batchwright.runner.gather import AnsweredBy, Sample
from batchwright.runner.report import NOTHING_DONE, FailureGroup, Report, Timing
from batchwright.runner.standing import (
    cost_json,
    ends_without_success,
    flags_text,
    kept_text,
    left_text,
    standing_json,
    state_text,
    stopped_text,
    usd_json,
)

SHOWN_GROUPS = 12
"""Groups of failures that the text lists; the JSON has all that were kept."""
SHOWN_MODELS = 5


def report_text(report: Report) -> str:
    """Several lines, without a final line break."""
    lines = [first_line(report)]
    lines += _failure_lines(report)
    lines += [f"  {line}" for line in _fact_lines(report)]
    return "\n".join(lines)


def first_line(report: Report) -> str:
    """ "4,988 ok (3 truncated), 12 failed of 5,000 in 2 min 3 s, $1.37"; with no success also the commonest error."""
    counts = report.status.counts
    flags = flags_text(report.flags)
    parts = [f"{count_text(report.ok)} ok" + (f" ({flags})" if flags else "")]
    others = [*ends_without_success(counts), (_open_word(report.status.state), counts.open)]
    parts += [f"{count_text(number)} {name}" for name, number in others if number]
    text = f"{', '.join(parts)} of {count_text(report.status.total)}"
    if report.timing.rows_ended and not report.timing.part:
        text += f" in {duration_text(report.timing.wall_s)}"
    cost = _short_cost(report)
    if cost:
        text += f", {cost}"
    if report.simulated:
        text += " (simulated)"
    if not report.ok and report.failures:
        text += f"; most frequent error: {_cause_text(report.failures[0])}"
    return text


def _open_word(state: BatchState) -> str:
    return "waiting (paused)" if state is BatchState.PAUSED else "not ended yet"


def _short_cost(report: Report) -> str:
    """Empty where nothing is known of any cost: no zero stands for what is not known."""
    known = report.status.tally.cost_picousd
    unknown = report.rows_unpriced or report.rows_no_usage
    if known:
        return f"{money_text(known)} known" if unknown else money_text(known)
    if unknown:
        return "cost not known"
    return "$0" if report.ok else ""


def _cause_text(group: FailureGroup) -> str:
    """ "invalid_request unsupported_parameter max_tokens: "Use max_completion_tokens" """
    code = "" if group.code == group.kind.value else shown_text(group.code, 80)
    name = " ".join(part for part in (group.kind.value, code, shown_text(group.param, 80)) if part)
    message = shown_text(group.sample.message) if group.sample is not None else ""
    return f"{name}: {message}" if message else name


def _failure_lines(report: Report) -> list[str]:
    shown = report.failures[:SHOWN_GROUPS]
    width = max((len(count_text(group.count)) for group in shown), default=0)
    lines: list[str] = []
    for group in shown:
        line = f"  {count_text(group.count):>{width}} {_cause_text(group)}"
        if group.sample is not None:
            line += f" (for example {_sample_text(group)})"
        lines.append(line)
    rest = report.failures[SHOWN_GROUPS:]
    if rest:
        left = sum(group.count for group in rest)
        lines.append(f"  {count_text(left):>{width}} more in {plural(len(rest), 'group')} of other kinds and codes")
    return lines


def _sample_text(group: FailureGroup) -> str:
    assert group.sample is not None
    text = _row_text(group.sample)
    if group.sample.http_status:
        text += f", HTTP {group.sample.http_status}"
    return text


def _row_text(sample: Sample) -> str:
    """ "row 5, line 6, its custom_id"."""
    text = f"row {sample.request_index}"
    if sample.line:
        text += f", line {sample.line}"
    return text if sample.custom_id is None else f"{text}, {shown_text(sample.custom_id, 64)}"


def _fact_lines(report: Report) -> list[str]:
    status, tally = report.status, report.status.tally
    lines: list[str] = []
    if status.counts.stopped:
        lines.append(stopped_text(status))
    if left := left_text(status):
        lines.append(left)
    if status.spec.kept is not None:
        lines.append(f"taken over from earlier batches, at no cost here: {kept_text(status.spec.kept)}")
    if report.rows_shared:
        lines.append(f"not asked: {plural(report.rows_shared, 'row')} with the answer of the row that they repeat")
    if report.may_have_been_sent:
        lines.append(
            f"{plural(report.may_have_been_sent, 'row')} of those cut off may have been sent, and billed by the vendor"
        )
    tokens = tally.prompt_tokens + tally.completion_tokens
    in_all = " in all" if report.timing.part else ""
    if report.timing.part:
        lines.append(_own_part(report.timing))
    if tokens:
        cached = f" ({count_text(tally.cached_tokens)} cached)" if tally.cached_tokens else ""
        lines.append(
            f"tokens{in_all}: {count_text(tally.prompt_tokens)} in{cached}, {count_text(tally.completion_tokens)} out"
        )
    lines += _money_lines(report)
    if report.by_vendor:
        lines.append(f"answered by: {'; '.join(_answered_text(*each) for each in sorted(report.by_vendor.items()))}")
    lines += _checked_lines(report)
    if tally.attempts:
        # A row that was only reserved when its worker was killed may not have been sent, and is counted as if it was.
        most = "at most " if tally.doubts and report.workers_died is not False else ""
        when = "sent earlier" if report.timing == NOTHING_DONE else f"sent{in_all}"
        text = f"{when}: {most}{plural(tally.attempts - tally.unreached, 'request')}"
        if tally.retries and not tally.unreached:
            text += f", {most}{plural(tally.retries, 'retry', 'retries')} among them"
        if report.timing.rows_ended and report.timing.wall_s > 0 and not in_all:
            text += f"; {rate_text(report.timing.rows_ended / report.timing.wall_s)}"
        lines.append(text)
        if tally.unreached:
            # Which of the two sorts a retry was of is not counted.
            missed = plural(tally.unreached, "attempt")
            lines.append(f"not sent{in_all}: {missed} that reached no vendor; they use up none of a row's attempts")
            if tally.retries:
                lines.append(
                    f"retries among these {plural(tally.attempts, 'attempt')}: {most}{count_text(tally.retries)}"
                )
    if tally.doubts:
        lines.append(
            f"possible double payments: at most {count_text(tally.doubts)}: requests that ended without an answer and "
            f"may have been paid for{_of_the_dead(report)}; a row is paid twice only if it was sent again"
        )
    if report.simulated:
        lines.append("simulated: no vendor was asked; answers, prices and costs are made up")
    lines += _file_lines(report)
    if where := status.spec.options.get("--where"):
        lines.append(f"rows: those where {shown_text(where)}")
    lines.append(_law_line(report))
    lines += [f"DOES NOT ADD UP: {difference}" for difference in report.law.differences]
    lines.append(
        f"batch: {status.batch_id}, {state_text(status)}" + (f", round {status.round}" if status.round else "")
    )
    return lines


def _own_part(timing: Timing) -> str:
    """What of all that the report tells of was done while this command was at it."""
    if timing.by_others:
        return f"{timing.part}: other workers (`serve`, `work`) had sent what it opened before it could"
    if not timing.rows_ended:
        return f"{timing.part}: no row ended"
    rate = f", {rate_text(timing.rows_ended / timing.wall_s)}" if timing.wall_s > 0 else ""
    return f"{timing.part}: {plural(timing.rows_ended, 'row')} ended in {duration_text(timing.wall_s)}{rate}"


def _of_the_dead(report: Report) -> str:
    """What is in doubt beside requests that were surely sent; empty: nothing."""
    if report.workers_died is None:
        return " (or, if a worker died, were only set aside to be sent)"
    died = ", and rows set aside to be sent when a worker died (how many of those had gone out is not known)"
    return died if report.workers_died else ""


def _checked_lines(report: Report) -> list[str]:
    """What became of answers that did not match the batch's schema."""
    schema, found = report.status.spec.answers, report.repairs
    if schema is None or found is None:
        return []
    lines = []
    if found.asked:
        rest = f"; {count_text(found.mended)} of these rows match now"
        lines.append(f"repairs: {plural(found.asked, 'answer')} of {plural(found.rows, 'row')} asked for again{rest}")
    mismatches = report.flags.get(Flag.SCHEMA_MISMATCH, 0)
    if mismatches:
        text = f"schema: {plural(mismatches, 'answer')} did not match and {'is' if mismatches == 1 else 'are'} kept"
        if found.mismatch is not None:
            text += f" (for example {_row_text(found.mismatch)}: {shown_text(found.mismatch.message)})"
        lines.append(text)
    return lines


def _money_lines(report: Report) -> list[str]:
    tally, lines = report.status.tally, []
    unit = "row" if report.exact_money else "answer"
    unknown = []
    if report.rows_unpriced:
        unknown.append(f"{plural(report.rows_unpriced, unit)} without a price")
    if report.rows_no_usage:
        unknown.append(f"{plural(report.rows_no_usage, unit)} without usage")
    if unknown or tally.cost_picousd:
        known = f"{money_text(tally.cost_picousd)} known" if tally.cost_picousd or unknown else "$0"
        told = ", ".join([known, *unknown]) if unknown else money_text(tally.cost_picousd)
        lines.append(f"cost{' in all' if report.timing.part else ''}: {told}")
    if report.models_unpriced:
        names = [shown_text(name, 80) or "(none named)" for name in report.models_unpriced[:SHOWN_MODELS]]
        more = len(report.models_unpriced) - len(names)
        lines.append(f"no price for: {', '.join(names)}" + (f" and {more} more" if more else ""))
    if tally.orphans or tally.orphan_picousd:
        answers = plural(tally.orphans, "answer") if tally.orphans else "answers"
        lines.append(
            f"beside that: {money_text(tally.orphan_picousd)} for {answers} that came after another worker had taken "
            "the row over"
        )
    cap = report.status.spec.max_cost_picousd
    aside_picousd = tally.possible_picousd
    if cap >= 0 and aside_picousd >= ASIDE_TOLD_PICOUSD:
        known = f"{money_text(tally.cost_picousd)} spent and {aside_text(money_text(aside_picousd))}"
        lines.append(f"of the cap of {money_text(cap)}: {known}")
    if cap >= 0 and report.status.spec.soft_cap:
        lines.append(f"the cap of {money_text(cap)} was soft: some rows have no bound or no price, so it can be passed")
    return lines


def _file_lines(report: Report) -> list[str]:
    written = report.written
    if written is None:
        return []
    where = str(written.output) if written.output is not None else "standard output"
    lines = [f"answers: {where} ({plural(written.rows, 'row')}, in input order)"]
    if written.failed_output is not None:
        left_out = report.status.counts.without_success - written.failed_rows
        note = f"; {plural(left_out, 'row')} that cannot be sent at all left out" if left_out else ""
        lines.append(f"without success: {written.failed_output} ({plural(written.failed_rows, 'row')} to run{note})")
    return lines


def _answered_text(vendor: str, found: AnsweredBy) -> str:
    cost = f", {money_text(found.cost_picousd)}" if found.cost_picousd else ""
    return f"{vendor} {plural(found.rows, 'row')}{cost}"


def _law_line(report: Report) -> str:
    text = f"adds up: {report.law.sentence}" if not report.law.differences else f"counts: {report.law.sentence}"
    if report.written is not None:
        text += f" = {count_text(report.written.rows)} written"
    return text


def report_json(report: Report) -> bytes:
    """One JSON object. Money is a number of USD with at most 12 decimals; what is not known is null, never 0."""
    status = report.status
    return msgspec.json.encode(
        {
            "outcome": first_line(report),
            **standing_json(status),
            "exit_code": report.exit_code,
            "failures": [_group_json(group) for group in report.failures],
            "cost": cost_json(
                status,
                unit="rows" if report.exact_money else "answers",
                without_price=report.rows_unpriced,
                without_usage=report.rows_no_usage,
            ),
            "answered_by": {
                vendor: {"rows": found.rows, "cost_usd": usd_json(found.cost_picousd)}
                for vendor, found in report.by_vendor.items()
            },
            "rows_shared": report.rows_shared,
            "repairs": _repairs_json(report),
            "may_have_been_sent": report.may_have_been_sent,
            "wall_s": round(report.timing.wall_s, 3),
            "rows_per_s": round(report.timing.rows_ended / report.timing.wall_s, 2)
            if report.timing.wall_s > 0
            else None,
            "output": _written_json(report),
            "simulated": report.simulated,
            "adds_up": not report.law.differences,
            "law": report.law.sentence,
            "differences": list(report.law.differences),
        }
    )


def _repairs_json(report: Report) -> dict[str, Any] | None:
    """None without a schema, or where the rows were not read."""
    found = report.repairs
    if report.status.spec.answers is None or found is None:
        return None
    return {"asked": found.asked, "rows": found.rows, "mended": found.mended}


def _group_json(group: FailureGroup) -> dict[str, Any]:
    sample = group.sample
    return {
        "kind": group.kind.value,
        "code": group.code or None,
        "param": group.param or None,
        "count": group.count,
        "retryable": group.retryable,
        "sample": None
        if sample is None
        else {
            "request_index": sample.request_index,
            "custom_id": sample.custom_id,
            "line": sample.line or None,
            "http_status": sample.http_status or None,
            "message": sample.message,
        },
    }


def _written_json(report: Report) -> dict[str, Any] | None:
    written = report.written
    if written is None:
        return None
    return {
        "path": str(written.output) if written.output is not None else "-",
        "rows": written.rows,
        "failed_path": str(written.failed_output) if written.failed_output is not None else None,
        "failed_rows": written.failed_rows,
    }
