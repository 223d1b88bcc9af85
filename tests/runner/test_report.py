from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.gate import GateRule
from batchwright.core.money import picousd_from_usd
from batchwright.core.records import Tally
from batchwright.core.rows import RowView
from batchwright.ports.batches import BatchStatus
from batchwright.runner.gather import MAX_GROUPS, Gathered
from batchwright.runner.law import InputCount
from batchwright.runner.report import NOTHING_DONE, Report, Timing, Written, build_report, exit_code
from batchwright.runner.report_text import first_line, report_json, report_text
from support.batch_samples import failed, ok, spec_of, status_of, view_of

RAN = Timing(wall_s=123.0, rows_ended=5_000)


def gathered_of(views: list[RowView]) -> Gathered:
    gathered = Gathered()
    gathered.add(views)
    return gathered


def report_of(views: list[RowView], tally: Tally | None = None, **how: object) -> Report:
    """The report on a batch of just these rows, whose tallies agree with them."""
    gathered = gathered_of(views)
    sums = tally or Tally()
    sums.cost_picousd = gathered.cost_picousd
    spec = how.pop("spec", None)
    status = status_of(gathered.by_byte, tally=sums, spec=spec)  # type: ignore[arg-type]
    values: dict[str, object] = {"timing": RAN} | how
    return build_report(status, gathered, **values)  # type: ignore[arg-type]


def test_first_line_is_the_outcome() -> None:
    tally = Tally(cost_picousd=picousd_from_usd("1.37"), attempts=5_020)
    status = status_of({ok(): 4_988, failed(FailureKind.TIMEOUT): 12}, tally=tally)
    report = build_report(status, None, timing=RAN)
    assert first_line(report) == "4,988 ok, 12 failed of 5,000 in 2 min 3 s, $1.37"


def test_flags_are_counted_apart_within_ok() -> None:
    report = report_of(
        [view_of(0, ok()), view_of(1, ok(Flag.TRUNCATED)), view_of(2, ok(Flag.TRUNCATED)), view_of(3, ok(Flag.REFUSED))]
    )
    assert first_line(report).startswith("4 ok (2 truncated, 1 refused) of 4 in ")


def test_all_failed_names_the_commonest_error_in_the_first_line() -> None:
    kind = FailureKind.INVALID_REQUEST
    views = [
        view_of(0, failed(FailureKind.TIMEOUT)),
        view_of(
            1, failed(kind), code="unsupported_parameter", param="max_tokens", message="Use another", http_status=400
        ),
        view_of(
            2, failed(kind), code="unsupported_parameter", param="max_tokens", message="Use another", http_status=400
        ),
    ]
    line = first_line(report_of(views))
    assert line.startswith("0 ok, 3 failed of 3")
    assert line.endswith("most frequent error: invalid_request unsupported_parameter max_tokens: Use another")


def test_failures_are_grouped_by_kind_code_and_parameter_with_a_sample_each() -> None:
    kind = FailureKind.INVALID_REQUEST
    views = [view_of(index, failed(kind), code="bad", param="n", message="m") for index in range(3)]
    views += [view_of(3, failed(kind), code="worse", message="\x1b[2Jgone", http_status=422), view_of(4, ok())]
    report = report_of(views)
    assert [(group.code, group.param, group.count) for group in report.failures] == [("bad", "n", 3), ("worse", "", 1)]
    text = report_text(report)
    assert "3 invalid_request bad n: m (for example row 0, line 1, r0)" in text
    assert "1 invalid_request worse: [2Jgone (for example row 3, line 4, r3, HTTP 422)" in text


def test_rows_that_were_closed_unsent_are_no_cause() -> None:
    views = [view_of(index, failed(FailureKind.STOPPED)) for index in range(3)]
    views.append(view_of(3, failed(FailureKind.INVALID_REQUEST), code="bad"))
    report = report_of(views, spec=spec_of(gate=GateRule.STOP))
    assert [group.kind for group in report.failures] == [FailureKind.INVALID_REQUEST, FailureKind.STOPPED]
    assert first_line(report).endswith("most frequent error: invalid_request bad")
    assert "stopped by the gate" in report_text(report)


def test_a_round_that_was_closed_tells_of_the_rows_it_left() -> None:
    status = replace(
        status_of({ok(): 70, failed(FailureKind.INVALID_REQUEST): 30}), round=1, closed_as=FailureKind.STOPPED, left=5
    )
    text = report_text(build_report(status, None, timing=RAN))
    assert "round 1 was stopped by the gate after 25 rows that all failed in the same way: 5 rows of it got no" in text
    assert "`retry --no-gate` sends all" in text
    cancelled = replace(status, closed_as=FailureKind.CANCELLED, left=1)
    assert "round 1 was cancelled: 1 row of it got no" in report_text(build_report(cancelled, None, timing=RAN))


def test_groups_are_bounded_and_none_of_their_rows_is_lost() -> None:
    rows = MAX_GROUPS + 50
    views = [view_of(index, failed(FailureKind.INVALID_REQUEST), code=f"code {index}") for index in range(rows)]
    report = report_of(views)
    assert len(report.failures) <= MAX_GROUPS + 1
    assert sum(group.count for group in report.failures) == rows
    assert "in" in report_text(report)


def test_unknown_cost_is_said_and_never_zero() -> None:
    views = [
        view_of(0, ok(), cost_picousd=picousd_from_usd("1.23"), price_id="p"),
        view_of(1, ok(), price_id="free"),
        view_of(2, ok(), unpriced=1),
        view_of(3, ok(), no_usage=1),
    ]
    report = report_of(views)
    assert first_line(report).endswith("$1.23 known")
    text = report_text(report)
    assert "cost: $1.23 known, 1 row without a price, 1 row without usage" in text
    assert "no price for: m" in text


def test_cost_not_known_at_all() -> None:
    report = report_of([view_of(0, ok(), unpriced=1)])
    assert first_line(report).endswith("cost not known")
    assert msgspec.json.decode(report_json(report))["cost"]["known_usd"] is None


def test_known_price_of_zero_is_zero() -> None:
    report = report_of([view_of(0, ok(), price_id="free")])
    assert first_line(report).endswith("$0")
    assert msgspec.json.decode(report_json(report))["cost"]["known_usd"] == 0


def test_doubt_orphans_and_soft_cap_are_told() -> None:
    tally = Tally(doubts=3, orphans=2, orphan_picousd=picousd_from_usd("0.25"), attempts=9, unreached=2, retries=4)
    spec = spec_of(max_cost_picousd=picousd_from_usd(5), soft_cap=True)
    text = report_text(report_of([view_of(0, ok())], tally, spec=spec))
    assert "possible double payments: at most 3: requests that ended without an answer and may have been paid" in text
    assert "a worker died" not in text
    assert "$0.25 for 2 answers that came after" in text
    assert "the cap of $5.00 was soft" in text
    assert "not sent: 2 attempts that reached no vendor; they use up none of a row's attempts" in text


def test_what_was_only_set_aside_is_told_of_where_a_worker_died() -> None:
    tally = Tally(doubts=3, attempts=9, retries=4)
    text = report_text(report_of([view_of(0, ok(), deaths=1)], tally))
    assert "sent: at most 9 requests, at most 4 retries among them;" in text
    assert "and rows set aside to be sent when a worker died (how many of those had gone out is not known)" in text
    unread = report_text(build_report(status_of({ok(): 1}, tally=tally), None, timing=RAN))
    assert "sent: at most 9 requests" in unread
    assert "(or, if a worker died, were only set aside to be sent)" in unread


def test_attempts_that_reached_nobody_are_no_retries_among_what_was_sent() -> None:
    tally = Tally(attempts=27, unreached=27, retries=25)
    text = report_text(report_of([view_of(0, failed(FailureKind.UNREACHABLE))], tally))
    lines = [line.strip() for line in text.splitlines()]
    first = next(place for place, line in enumerate(lines) if line.startswith("sent: 0 requests"))
    assert lines[first + 1 : first + 3] == [
        "not sent: 27 attempts that reached no vendor; they use up none of a row's attempts",
        "retries among these 27 attempts: 25",
    ]


def test_what_a_cap_counts_beside_the_known_cost_is_told() -> None:
    status = status_of({ok(): 1}, total=3, spec=spec_of(max_cost_picousd=picousd_from_usd("0.01")))
    status.tally.cost_picousd = picousd_from_usd("0.0096")
    assert "of the cap" not in report_text(build_report(status, None, timing=RAN))
    status.tally.possible_picousd = picousd_from_usd("0.00038")
    text = report_text(build_report(status, None, timing=RAN))
    assert "of the cap of $0.01: $0.0096 spent and $0.00038 set aside for what may have been paid beside that" in text


def test_sends_are_exact_without_doubts_and_those_of_earlier_commands_are_told_as_such() -> None:
    tally = Tally(attempts=9, unreached=2, retries=4)
    views = [view_of(0, ok())]
    text = report_text(report_of(views, tally))
    assert "  sent: 7 requests; " in text
    assert "  retries among these 9 attempts: 4\n" in text
    assert "  sent earlier: 7 requests\n" in report_text(report_of(views, tally, timing=NOTHING_DONE))


@pytest.mark.parametrize(
    ("ends", "live", "state"), [(2, False, "running (idle)"), (2, True, "running"), (3, False, "completed")]
)
def test_a_batch_that_nobody_works_on_is_idle(ends: int, live: bool, state: str) -> None:
    status = status_of({ok(): ends}, total=3, live=live, tally=Tally(attempts=2))
    assert report_text(build_report(status, None, timing=RAN)).endswith(f"batch: {status.batch_id}, {state}")


def test_orphan_money_is_told_also_where_its_answers_were_not_counted() -> None:
    tally = Tally(orphan_picousd=picousd_from_usd("0.25"), attempts=1)
    assert "$0.25 for answers that came after" in report_text(report_of([view_of(0, ok())], tally))


def test_simulated_says_so_in_the_first_line_and_below() -> None:
    spec = spec_of(destinations=(Destination(vendor="simulated", base_url="", protocol=VendorProtocol.SIMULATED),))
    report = report_of([view_of(0, ok())], spec=spec)
    assert first_line(report) == "1 ok of 1 in 2 min 3 s, $0 (simulated)"
    assert "no vendor was asked" in report_text(report)
    assert msgspec.json.decode(report_json(report))["simulated"] is True


def test_a_code_that_only_repeats_the_kind_is_said_once() -> None:
    view = view_of(0, failed(FailureKind.MODEL_NOT_FOUND), code="model_not_found", message="no such model")
    assert first_line(report_of([view])).endswith("most frequent error: model_not_found: no such model")


def test_the_law_is_shown_with_what_was_written() -> None:
    written = Written(output=Path("answers.jsonl"), rows=2)
    report = report_of(
        [view_of(0, ok()), view_of(1, failed(FailureKind.TIMEOUT))],
        written=written,
        read=InputCount(lines=3, rows=2, blank=1),
    )
    text = report_text(report)
    assert "adds up: 3 input lines - 1 blank = 2 rows = 1 ok + 1 failed = 2 written" in text
    assert "answers: answers.jsonl (2 rows, in input order)" in text
    assert report.exit_code == 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"written": Written(output=None, rows=1)}, "1 rows were written, the batch has 2"),
        ({"read": InputCount(lines=3, rows=3, blank=0)}, "the input has 3 rows, the batch 2"),
        ({"read": InputCount(lines=4, rows=2, blank=1)}, "the input has 4 lines"),
    ],
)
def test_what_does_not_add_up_is_our_fault(change: dict[str, object], sentence: str) -> None:
    report = report_of([view_of(0, ok()), view_of(1, ok())], None, **change)
    assert report.exit_code == 1
    assert f"DOES NOT ADD UP: {sentence}" in report_text(report)


def test_tallies_that_differ_from_the_rows_are_found() -> None:
    gathered = gathered_of([view_of(0, ok(), cost_picousd=5), view_of(1, failed(FailureKind.TIMEOUT))])
    status = status_of({ok(): 2}, tally=Tally(cost_picousd=7))
    report = build_report(status, gathered, timing=RAN)
    assert report.exit_code == 1
    assert len(report.law.differences) == 3  # plain, timeout, cost


def test_json_is_one_object_with_plain_money() -> None:
    report = report_of([view_of(0, ok(), cost_picousd=1), view_of(1, failed(FailureKind.TIMEOUT), message="late")])
    raw = report_json(report)
    assert b'"known_usd":0.000000000001' in raw
    decoded = msgspec.json.decode(raw)
    assert (decoded["ok"], decoded["failed"], decoded["exit_code"], decoded["adds_up"]) == (1, 1, 3, True)
    assert decoded["failures"][0]["sample"]["message"] == "late"


def test_rows_cut_off_may_have_been_billed() -> None:
    sent = RowView(
        request_index=0,
        byte=failed(FailureKind.EXPIRED),
        record=None,
        input=view_of(0, ok()).input,
        may_have_been_sent=True,
    )
    report = report_of([sent, view_of(1, ok())])
    assert "1 row of those cut off may have been sent" in report_text(report)
    assert "1 expired" in first_line(report)


def coded(ends: dict[int, int], **how: object) -> BatchStatus:
    return status_of(ends, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "strict", "code"),
    [
        (coded({ok(): 3}), False, 0),
        (coded({ok(): 2, ok(Flag.EMPTY): 1}), False, 0),
        (coded({ok(): 2, ok(Flag.EMPTY): 1}), True, 3),
        (coded({ok(Flag.EMPTY): 1}), True, 4),
        (coded({ok(): 2, failed(FailureKind.TIMEOUT): 1}), False, 3),
        (coded({failed(FailureKind.TIMEOUT): 1}), False, 4),
        (coded({ok(): 2, failed(FailureKind.EXPIRED): 1}), False, 4),
        (coded({ok(): 2, failed(FailureKind.CANCELLED): 1}), False, 4),
        (coded({ok(): 2}, total=3, pauses=[Pause(cause=PauseCause.GATE, reason="r", since_ms=1)]), False, 5),
        (coded({ok(): 2}, total=3), False, 130),
    ],
)
def test_exit_codes(status: BatchStatus, strict: bool, code: int) -> None:
    assert exit_code(status, strict=strict) == code


def test_figures_of_this_command_are_told_apart_from_those_of_all_rounds() -> None:
    views = [view_of(i, ok(), cost_picousd=picousd_from_usd("0.5")) for i in range(4)]
    tally = Tally(attempts=9, retries=5, prompt_tokens=7)
    report = report_of(views, tally, timing=Timing(wall_s=12.0, rows_ended=2, part="this command"))
    assert first_line(report) == "4 ok of 4, $2.00", "the time of a part is no time of the whole"
    lines = [line.strip() for line in report_text(report).splitlines()]
    assert lines[1:5] == [
        "this command: 2 rows ended in 12 s, 0.2 rows/s",
        "tokens in all: 7 in, 0 out",
        "cost in all: $2.00",
        "sent in all: 9 requests, 5 retries among them",
    ]
    by_others = report_text(
        report_of(views, tally, timing=Timing(wall_s=0.0, rows_ended=0, part="this command", by_others=True))
    )
    assert "this command: other workers (`serve`, `work`) had sent what it opened before it could" in by_others
    assert "sent earlier" not in by_others
