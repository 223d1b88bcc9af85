"""`batchwright resume`."""

from __future__ import annotations

from typing import Any

import click

from batchwright.cli import options
from batchwright.cli.exits import say


@click.command(name="resume")
@click.argument("batch", metavar="[ID]", default="@last")
@click.option("--max-cost", metavar="USD", help="New cap of the batch's cost in US dollars. [default: as it is]")
@click.option("--no-run", is_flag=True, help="Only clear the pauses; `work` sends the rest. [default: go on]")
@options.later_output_options
@options.pace_options
@options.transport_option
@options.there_options
@options.outcome_options
def resume_command(batch: str, **given: Any) -> int:
    """Clear a batch's pauses and go on with it.

    A batch that reached its cap needs a higher --max-cost. Then it goes on like run; -o writes the file at the end.
    ID is @last unless given.

    \b
    Examples:
      batchwright resume @last -o answers.jsonl
      batchwright resume 3f9a --max-cost 20 --no-run
    """
    from batchwright import assemble
    from batchwright.assemble.fleet import closed_lanes_of
    from batchwright.cli.running import finish, run_to_end, with_batches
    from batchwright.ports.batches import Batches
    from batchwright.runner.plan import renewed_keys
    from batchwright.runner.progress import open_display

    options.check_stdout(given, writes=False)
    delivery = options.delivery_of(given, writes=False)
    settings = options.load_settings(given)
    options.check_output_objects(delivery, settings)
    typed_cap = settings.max_cost_picousd if given["max_cost"] is not None else -1

    async def clear(batches: Batches) -> tuple[str, bool]:
        batch_id = await batches.resolve(batch)
        status = await batches.status(batch_id)
        own = status.spec.destinations
        keys_of = () if status.terminal else settings.keys_for(own)
        if status.live and renewed_keys(own, keys_of):
            say("A worker goes on with the key that its rows began with. To change it: pause, then this again.")
            keys_of = ()
        for text in renewed_keys(own, keys_of):
            say(text)
        await batches.resume(batch_id, max_cost_picousd=typed_cap, keys_of=keys_of)
        return batch_id, status.terminal

    batch_id, had_ended = with_batches(settings, clear)
    if had_ended:
        say(f"{batch_id} has ended: nothing is sent. `batchwright retry` opens its rows without success again.")
    if given["no_run"]:
        say(f"{batch_id}: no pause stands any more.")
        for fact in [] if settings.service is not None else run_to_end(closed_lanes_of(settings, batch_id)):
            say(f"{fact.name} is still closed to all workers: `batchwright lanes resume {fact.name}` opens it.")
        return 0
    display = open_display(settings.progress)
    going_on = assemble.go_on(
        settings, batch_id, delivery=delivery, pace=settings.pace, display=display, opened=not had_ended
    )
    return finish(run_to_end(going_on, sends=True), as_json=given["as_json"])
