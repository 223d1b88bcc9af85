"""`batchwright retry`."""

from __future__ import annotations

from typing import Any

import click

from batchwright.cli import options
from batchwright.cli.exits import say


@click.command(name="retry")
@click.argument("batch", metavar="[ID]", default="@last")
@options.selector_options
@click.option("--deadline", metavar="TIME", help="Give up what is not done after this time, e.g. 2h. [default: none]")
@click.option(
    "--gate/--no-gate",
    default=True,
    help="Halt when the first 25 rows all fail for good in the same way. [default: --gate]",
)
@click.option("--no-run", is_flag=True, help="Only begin the round; `work` or `resume` sends it. [default: send it]")
@options.later_output_options
@options.pace_options
@options.transport_option
@options.there_options
@options.outcome_options
def retry_command(batch: str, **given: Any) -> int:
    """Send rows without success again, as a new round.

    Takes a batch that has ended. By default all rows without success are sent again; --kind and --flag choose (a flag
    is the only way back for rows that have an answer, and an answer is never replaced by a failure). Then it goes on
    like run; -o writes the whole file anew. After an interrupt or a crash the same command finishes its round. ID is
    @last unless given.

    \b
    Examples:
      batchwright retry @last -o answers.jsonl
      batchwright retry 3f9a --kind timeout --kind network --flag truncated
    """
    from batchwright import assemble
    from batchwright.cli.running import finish, run_to_end, with_batches
    from batchwright.core.batch_state import BatchState, PauseCause
    from batchwright.core.failures import FailureKind, Flag
    from batchwright.ports.batches import Batches, Selector
    from batchwright.runner.figures import plural
    from batchwright.runner.plan import renewed_keys
    from batchwright.runner.progress import open_display

    options.check_stdout(given, writes=False)
    delivery = options.delivery_of(given, writes=False)
    settings = options.load_settings(given)
    options.check_output_objects(delivery, settings)
    selector = Selector(
        kinds=frozenset(FailureKind(kind) for kind in given["kinds"]),
        flags=frozenset(Flag(flag) for flag in given["flags"]),
    )

    async def begin(batches: Batches) -> tuple[str, int]:
        """(batch, rows that are open in its round)."""
        batch_id = await batches.resolve(batch)
        status = await batches.status(batch_id)
        if status.round and not status.terminal and status.state is not BatchState.ACCEPTING:
            # This very command, or one like it, died on the way: its round is finished before another can begin.
            begun = f"round {status.round} has begun already and has {plural(status.counts.open, 'open row')}"
            say(f"{batch_id}: {begun}{'.' if given['no_run'] else '; going on with it.'}")
            spent = {PauseCause.BUDGET, PauseCause.KEY_BUDGET}
            if status.pauses and spent.isdisjoint(pause.cause for pause in status.pauses):
                await batches.resume(batch_id, keys_of=settings.keys_for(status.spec.destinations))
            return batch_id, status.counts.open
        rows = await batches.retry(batch_id, selector, deadline_s=settings.deadline_s, gate=given["gate"])
        keys_of = settings.keys_for(status.spec.destinations)
        if rows and (renewed := renewed_keys(status.spec.destinations, keys_of)):
            await batches.resume(batch_id, keys_of=keys_of)
            say("\n".join(renewed))
        begun = (
            f"{plural(rows, 'row')} in a new round"
            if rows
            else "it has no such row that could be sent again; none is sent"
        )
        say(f"{batch_id}: {begun}.")
        return batch_id, rows

    batch_id, rows = with_batches(settings, begin)
    if given["no_run"] or (not rows and delivery.nothing):
        return 0
    # With -o and no row to send the file is written all the same: an earlier retry may have died before it could.
    display = open_display(settings.progress)
    going_on = assemble.go_on(
        settings, batch_id, delivery=delivery, pace=settings.pace, display=display, opened=bool(rows)
    )
    return finish(run_to_end(going_on, sends=True), as_json=given["as_json"])
