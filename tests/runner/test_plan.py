from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from batchwright.core.batch_state import BatchState, Pause, PauseCause
from batchwright.core.failures import FailureKind
from batchwright.core.money import picousd_from_usd
from batchwright.core.row_options import RowOptions
from batchwright.core.tenants import Tenant
from batchwright.ports.batches import BatchStatus
from batchwright.runner import commands
from batchwright.runner.plan import Step, decide, identity_options, newest_that_counts, paused_texts, retry_texts
from batchwright.runner.request import Delivery, RunRequest
from support.batch_samples import VENDOR, failed, ok, spec_of, status_of

REQUEST = RunRequest(source="tickets.jsonl")
COMPLETE = status_of({ok(): 3})
HALF = status_of({ok(): 1}, total=3)


def paused(cause: PauseCause, **spec: object) -> BatchStatus:
    pause = Pause(cause=cause, reason="first 25 rows all refused", since_ms=1)
    return status_of({ok(): 1}, total=3, pauses=[pause], spec=spec_of(**spec))


def test_nothing_there_starts() -> None:
    assert decide(REQUEST, None, "").step is Step.START


def test_unfinished_goes_on_and_says_how_far_it_is() -> None:
    plan = decide(REQUEST, HALF, "")
    assert (plan.step, plan.resume) == (Step.GO_ON, False)
    assert "1 of 3 rows are done" in plan.says[0]


def test_complete_is_only_delivered() -> None:
    assert decide(REQUEST, COMPLETE, "").step is Step.DELIVER


def test_ended_with_failures_is_only_delivered_and_retry_is_told() -> None:
    partial = status_of({ok(): 2, failed(FailureKind.TIMEOUT): 1})
    assert decide(REQUEST, partial, "").step is Step.DELIVER
    assert "batchwright retry b" in retry_texts(partial, "batchwright retry b")[0]
    assert retry_texts(COMPLETE, "x") == ()


def test_fresh_starts_anew_whatever_is_there() -> None:
    request = replace(REQUEST, fresh=True)
    assert decide(request, COMPLETE, "").step is Step.START
    assert decide(request, HALF, "process 7").step is Step.START


def test_a_batch_whose_output_another_run_owes_is_watched() -> None:
    plan = decide(REQUEST, HALF, "process 7")
    assert plan.step is Step.WATCH
    assert "Process 7 is running this" in plan.says[0]
    assert "It writes the output" in plan.says[0]


@pytest.mark.parametrize("cause", [PauseCause.GATE, PauseCause.LANE, PauseCause.USER])
def test_the_same_command_clears_a_pause(cause: PauseCause) -> None:
    plan = decide(REQUEST, paused(cause), "")
    assert (plan.step, plan.resume, plan.max_cost_picousd) == (Step.GO_ON, True, -1)
    assert "first 25 rows all refused" in plan.says[1]


@pytest.mark.parametrize(("cap", "step"), [(-1, Step.STAY_PAUSED), (50, Step.STAY_PAUSED), (51, Step.GO_ON)])
def test_a_budget_pause_needs_a_higher_cap(cap: int, step: Step) -> None:
    plan = decide(replace(REQUEST, max_cost_picousd=cap), paused(PauseCause.BUDGET, max_cost_picousd=50), "")
    assert plan.step is step
    if step is Step.GO_ON:
        assert (plan.resume, plan.max_cost_picousd) == (True, 51)


def test_another_cap_is_set_also_without_a_pause() -> None:
    batch = status_of({ok(): 1}, total=3, spec=spec_of(max_cost_picousd=50))
    plan = decide(replace(REQUEST, max_cost_picousd=20), batch, "")
    assert (plan.resume, plan.max_cost_picousd) == (True, 20)


def test_what_a_batch_keeps_is_told_where_the_command_differs() -> None:
    plan = decide(replace(REQUEST, max_attempts=9, gate=False), HALF, "")
    assert "--max-attempts 5 (not 9)" in plan.says[-1]
    assert plan.says[-2] == "Its first rows are judged no more (--no-gate)."
    assert plan.past_gate


def test_of_one_identity_the_newest_that_was_taken_in_counts() -> None:
    torn = status_of({}, total=3, accepting=True)
    being_read = status_of({}, total=3, accepting=True, live=True)
    assert newest_that_counts([torn, COMPLETE]) is COMPLETE
    assert newest_that_counts([being_read, COMPLETE]) is being_read
    assert newest_that_counts([torn]) is None


def test_a_retry_that_died_half_way_is_not_taken_for_a_torn_intake() -> None:
    reopening = status_of({ok(): 2}, total=3, accepting=True, batch_round=1)
    assert reopening.state is BatchState.ACCEPTING
    assert newest_that_counts([reopening]) is reopening
    assert decide(REQUEST, reopening, "").step is Step.FINISH_RETRY


def test_identity_has_what_changes_a_request_and_nothing_else() -> None:
    rows = RowOptions(destinations=(VENDOR,), model="m", params={"temperature": 0}, prompt="Say {x}", limit=5)
    options = identity_options(rows)
    assert options == {
        "--model": "m",
        "--prompt": "Say {x}",
        "--limit": "5",
        "--param temperature": "0",
    }
    assert identity_options(replace(rows, destinations=())) == options, "where rows go is asked by their models"
    assert identity_options(replace(rows, mixed_endpoints=True)) == options


def test_the_command_that_goes_on_is_exact() -> None:
    command = ("batchwright", "run", "my rows.jsonl", "--max-cost", "5.00", "--fresh", "-o", "a.jsonl")
    assert commands.again(command) == "batchwright run 'my rows.jsonl' --max-cost 5.00 -o a.jsonl"
    cap = picousd_from_usd(5)
    assert commands.with_cap(command, cap) == "batchwright run 'my rows.jsonl' -o a.jsonl --max-cost 10.00"
    equals = ("batchwright", "run", "r", "--max-cost=5")
    assert commands.with_cap(equals, cap) == "batchwright run r --max-cost 10.00"
    assert "10.00" in commands.with_cap((), cap)
    delivery = Delivery(output_format="openai")
    assert commands.export("batch_1", delivery) == "batchwright export batch_1 --format openai"


def test_a_database_that_was_named_is_named_by_every_command_that_goes_on() -> None:
    url = "postgresql://me@db/b"
    run = ("batchwright", "run", "r", "--service", "http://s", f"--database={url}")
    delivery = Delivery(command=run)
    assert commands.export("batch_1", delivery) == f"batchwright export batch_1 --database={url}"
    assert commands.retry("batch_1", delivery) == f"batchwright retry batch_1 --database={url}"
    looks = ("batchwright", "status", "--database", url, "--json")
    for verb in (commands.cancel, commands.pause, commands.watch, commands.resume):
        assert verb("batch_1", looks).endswith(f" batch_1 --database {url}")
    assert commands.work(looks) == f"batchwright work --database {url}"
    spent = replace(paused(PauseCause.KEY_BUDGET), tenant=Tenant("bob", "key_7"))
    more, resume = commands.of_standing(spent, looks).split(" && ")
    assert more == f"batchwright keys budget key_7 USD --database {url}"
    assert resume == f"batchwright resume {spent.batch_id} --database {url}"


def test_a_pause_says_why_and_what_goes_on() -> None:
    delivery = Delivery(command=("batchwright", "run", "r"))
    assert paused_texts(paused(PauseCause.LANE), delivery)[-1].endswith("this goes on: batchwright run r")
    budget = paused(PauseCause.BUDGET, max_cost_picousd=picousd_from_usd(1))
    assert paused_texts(budget, delivery)[-1].endswith("batchwright run r --max-cost 2.00")


@pytest.mark.parametrize("verb", ["watch", "resume", "retry", "export"])
def test_whatever_looked_at_a_paused_batch_names_a_command_that_goes_on(verb: str) -> None:
    there = ("--service", "http://s")
    delivery = Delivery(command=("batchwright", verb, "@last", *there), nothing=True)
    capped = paused(PauseCause.BUDGET, max_cost_picousd=picousd_from_usd(1))
    resume = f"batchwright resume {capped.batch_id} --service http://s"
    assert paused_texts(capped, delivery)[-1].endswith(f"With a higher cap it goes on: {resume} --max-cost 2.00")
    for cause in set(PauseCause) - {PauseCause.BUDGET}:
        assert paused_texts(paused(cause), delivery)[-1].lower().endswith(f"this goes on: {resume}"), cause
    assert commands.of_standing(capped, delivery.command) == f"{resume} --max-cost 2.00"


def test_a_spent_key_is_named_and_no_cap() -> None:
    key = Tenant("bob", "key_7")
    spent = replace(paused(PauseCause.KEY_BUDGET), tenant=key)
    more, resume = "batchwright keys budget key_7 USD", f"batchwright resume {spent.batch_id}"
    reason, hint = paused_texts(spent, Delivery(command=("batchwright", "watch")))
    assert reason.startswith("Paused (key budget): ")
    assert hint == f"Nothing is lost. Once its key may spend more ({more}), this goes on: {resume}"
    assert commands.of_standing(spent) == f"{more} && {resume}"


def test_a_lower_cap_for_a_batch_that_reached_its_own_is_told_of() -> None:
    reached = paused(PauseCause.BUDGET, max_cost_picousd=picousd_from_usd(1))
    lower = decide(replace(REQUEST, max_cost_picousd=picousd_from_usd("0.5")), reached, "")
    assert lower.says == ("Its cap stays $1.00, which it has reached: $0.50 would be lower.",)
    assert decide(replace(REQUEST, max_cost_picousd=picousd_from_usd(1)), reached, "").says == ()


def test_a_paused_retry_is_gone_on_with_by_resume() -> None:
    batch = paused(PauseCause.LANE)
    delivery = Delivery(command=("batchwright", "retry", "@last"), output=Path("a.jsonl"), output_format="openai")
    going_on = f"this goes on: batchwright resume {batch.batch_id} -o a.jsonl --format openai"
    assert paused_texts(batch, delivery)[-1].endswith(going_on)


def test_what_a_batch_does_not_take_over_is_not_in_the_command_that_goes_on() -> None:
    words = ("batchwright", "run", "r", "--on-gate", "stop", "--max-attempts=9", "--max-retries", "4", "-o", "a.jsonl")
    told = paused_texts(paused(PauseCause.GATE), Delivery(command=words))[-1]
    assert told.endswith("this goes on: batchwright run r --max-retries 4 -o a.jsonl"), "pause, and 5 attempts"
    own = ("batchwright", "run", "r", "--on-gate", "pause", "--max-attempts", "5", "--gate", "--on-uncertain=retry")
    assert paused_texts(paused(PauseCause.GATE), Delivery(command=own))[-1].endswith(" ".join(own))
    off = ("batchwright", "run", "r", "--no-gate", "--on-uncertain", "fail")
    assert paused_texts(paused(PauseCause.GATE), Delivery(command=off))[-1].endswith("batchwright run r")
