"""`batchwright delete`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import options
from batchwright.cli.exits import say

if TYPE_CHECKING:
    from batchwright.ports.batches import Batches, BatchStatus


@click.command(name="delete")
@click.argument("batches", metavar="ID...", nargs=-1, required=True)
@options.there_options
@click.option("--yes", is_flag=True, help="Do not ask. Needed where nobody can be asked. [default: ask]")
def delete_command(batches: tuple[str, ...], yes: bool, **given: Any) -> None:
    """Delete batches that have ended, with their rows and answers.

    For good: what is deleted can be neither exported nor retried, and the same `run` sends its rows anew. Tokens and
    cost stay in `usage`, and files that were written stay. If one of them has not ended or is in use, none is deleted.

    \b
    Examples:
      batchwright delete 3f9a
      batchwright delete 3f9a 77c0 --yes
    """
    from batchwright.cli.running import with_batches

    settings = options.load_settings(given)
    found = with_batches(settings, lambda opened: _find(opened, batches))
    if not yes and not _agreed(found):
        say("Nothing was deleted.")
        return

    ids = [status.batch_id for status in found]
    with_batches(settings, lambda opened: _delete(opened, ids))


async def _find(opened: Batches, texts: tuple[str, ...]) -> list[BatchStatus]:
    """Each once. Raises NoSuchBatch, and what `delete` would refuse one of them with."""
    try:
        ids = dict.fromkeys([await opened.resolve(text) for text in texts])
        for batch_id in ids:
            await opened.check_delete(batch_id)
        return [await opened.status(batch_id) for batch_id in ids]
    except Exception as error:
        error.add_note("Nothing was deleted.")
        raise


async def _delete(opened: Batches, ids: Sequence[str]) -> None:
    """Says each that is gone. What was found deletable may not be any more: the error then says what is left."""
    for position, batch_id in enumerate(ids):
        try:
            await opened.delete(batch_id)
        except Exception as error:
            done, left = ids[:position], ids[position + 1 :]
            error.add_note(f"Deleted before that: {', '.join(done) or 'none'}. Not tried: {', '.join(left) or 'none'}.")
            raise
        say(f"{batch_id}: deleted.")


def can_ask() -> bool:
    return sys.stdin.isatty()


def _agreed(found: list[BatchStatus]) -> bool:
    from batchwright.cli.screen import safe_text
    from batchwright.core.errors import UsageError
    from batchwright.runner.figures import plural

    if not can_ask():
        raise UsageError("deleting cannot be undone, and nobody can be asked here: give --yes too")
    for status in found:
        answers = plural(status.counts.succeeded, "answer")
        say(f"{status.batch_id}: {safe_text(status.spec.name)}, {plural(status.total, 'row')}, {answers}")
    return click.confirm(f"Delete {plural(len(found), 'batch', 'batches')} for good?", err=True)
