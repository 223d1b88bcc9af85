"""`batchwright delete`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from batchwright.cli.exits import say

if TYPE_CHECKING:
    from batchwright.ports.batches import Batches, BatchStatus


@click.command(name="delete")
@click.argument("batches", metavar="ID...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask. Needed where nobody can be asked. [default: ask]")
def delete_command(batches: tuple[str, ...], yes: bool) -> None:
    """Delete batches that have ended, with their rows and answers.

    For good: what is deleted can be neither exported nor retried, and the same `run` sends its rows anew. Tokens and
    cost stay in `usage`, and files that were written stay. If one of them has not ended, none is deleted.

    \b
    Examples:
      batchwright delete 3f9a
      batchwright delete 3f9a 77c0 --yes
    """
    from batchwright.cli.options import load_settings
    from batchwright.cli.running import with_batches

    settings = load_settings({})
    found = with_batches(settings, lambda opened: _find(opened, batches))
    if not yes and not _agreed(found):
        say("Nothing was deleted.")
        return

    async def delete(opened: Batches) -> None:
        for status in found:
            await opened.delete(status.batch_id)
            say(f"{status.batch_id}: deleted.")

    with_batches(settings, delete)


async def _find(opened: Batches, texts: tuple[str, ...]) -> list[BatchStatus]:
    """Each once. Raises NoSuchBatch, and WrongState for one that has not ended."""
    from batchwright.core.errors import WrongState

    ids = dict.fromkeys([await opened.resolve(text) for text in texts])
    found = [await opened.status(batch_id) for batch_id in ids]
    for status in found:
        if not status.terminal:
            raise WrongState(
                f"{status.batch_id} has not ended ({status.state.value}), so nothing was deleted; "
                f"`batchwright cancel {status.batch_id}` ends it"
            )
    return found


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
