"""Faults that are planted into the product for one test, which the world must find.

A fault is planted as a change of the source text of one function, so that what is planted can be read here, and a
function that has changed too much for it fails the test instead of testing nothing.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import patch

from batchwright.engine import attempt, failover, followers, landing, open_segment, sender
from batchwright.ports.store import Checkpoint, CheckpointResult
from batchwright.store import checkpointing, fencing, ledger, objects_sweep
from batchwright.store.bodies import Bodies
from world.laws import Broken, Law
from world.world import World


def change(stack: ExitStack, of: tuple[Any, str], *pairs: tuple[str, str]) -> None:
    """Plants `new` for `old`, pair by pair, in the source of the function `of` names."""
    owner, name = of
    source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
    for old, new in pairs:
        assert old in source, f"{name} has changed, it no longer says {old!r}: plant this fault in another way"
        source = source.replace(old, new)
    module = owner if isinstance(owner, ModuleType) else inspect.getmodule(owner)
    assert module is not None
    scope = dict(vars(module))
    exec(compile(ast.parse("from __future__ import annotations\n" + source), f"<planted in {name}>", "exec"), scope)
    stack.enter_context(patch.object(owner, name, scope[name]))


def compare_no_epoch(stack: ExitStack) -> None:
    change(
        stack,
        (fencing, "fence"),
        ('_HELD.all(connection, {"me": me})', "Prepared(select(segment)).all(connection, {})"),
        ("if row is None or row.epoch != change.epoch:", "if row is None:"),
        (
            "values.append(value)",
            "values.append({**value, 'of_epoch': row.epoch, 'me': row.holder})  # whoever holds it by now",
        ),
    )


def tally_in_a_second_transaction(stack: ExitStack) -> None:
    run, count = checkpointing.run, checkpointing._count
    late: list[tuple[Any, Checkpoint]] = []

    def run_then_count(bodies: Bodies, checkpoint: Checkpoint) -> CheckpointResult:
        result = run(bodies, checkpoint)
        with bodies.connections.write() as connection:
            for work, of in late:
                count(connection, work, of)
            late.clear()
        return result

    stack.enter_context(patch.object(checkpointing, "run", run_then_count))
    stack.enter_context(patch.object(checkpointing, "_count", lambda _, work, of: late.append((work, of))))


def reserve_after_the_send(stack: ExitStack) -> None:
    ready = ("self.becoming_ready.append((queue, row))", "queue.line.ready.append((queue, row))")
    change(stack, (open_segment.OpenSegment, "reserve"), ready)


def send_a_settled_row_again(stack: ExitStack) -> None:
    forgotten = ("bytearray(claimed.row_map)", "bytearray(claimed.row_map.replace(bytes([16]), bytes([0])))")
    change(stack, (open_segment.OpenSegment, "__init__"), forgotten)


def add_cost_twice_after_a_lost_reply(stack: ExitStack) -> None:
    again = "proposal.number += 1; proposal.claim = None; continue"
    said = "a commit's reply was lost: {error}; nothing of it is lost"
    change(stack, (landing.Landing, "land"), (f'raise WorkerGone(f"{said}") from error', again))


def file_a_retry_by_position(stack: ExitStack) -> None:
    change(
        stack,
        (open_segment.OpenSegment, "__init__"),
        (
            "    for row, byte in enumerate(self.row_map):",
            "    for at, row in enumerate(r for r, b in enumerate(self.row_map) if not b and claimed.round):\n"
            "        self.rows[row] = claimed.input.rows[at]\n"
            "    for row, byte in enumerate(self.row_map):",
        ),
    )


def forget_the_cap(stack: ExitStack) -> None:
    stack.enter_context(patch.object(ledger, "taken_picousd", lambda *_: 0))


def replace_an_answer_by_a_failure(stack: ExitStack) -> None:
    kept = ("if not row_map.is_success(previous) or row_map.is_success(record.byte):", "if True:")
    change(stack, (attempt, "_kept_answer"), kept)


def share_an_outcome_of_the_round_before(stack: ExitStack) -> None:
    for name in ("opened", "landed"):
        change(stack, (followers.Followers, name), ("segment.round", "0"))


def share_what_is_not_durable(stack: ExitStack) -> None:
    """As soon as it is booked."""
    file = attempt._file

    def file_and_share(segment: Any, record: Any) -> None:
        file(segment, record)
        for other in shared_by.get(segment.context, ()):
            for row in other.followers.pop(segment.first_index + record.row, ()):
                booked[0].share(other, row, record)

    shared_by: dict[Any, list[Any]] = {}
    booked: list[Any] = []
    opened, share_init = followers.Followers.opened, attempt.Attempts.__init__

    def open_and_note(self: Any, segment: Any) -> None:
        shared_by.setdefault(segment.context, []).append(segment)
        opened(self, segment)

    def begin_and_note(self: Any, **parts: Any) -> None:
        share_init(self, **parts)
        booked[:] = [self]

    stack.enter_context(patch.object(followers.Followers, "opened", open_and_note))
    stack.enter_context(patch.object(attempt.Attempts, "__init__", begin_and_note))
    stack.enter_context(patch.object(attempt, "_file", file_and_share))


def send_although_the_lease_may_be_over(stack: ExitStack) -> None:
    change(stack, (sender.Sender, "pump"), (" or now_s >= self.send_until_s", ""))


def send_on_what_was_written_for_the_first(stack: ExitStack) -> None:
    change(stack, (failover.Failover, "_next_queue"), ("body=with_model(entry.body, model)", "body=entry.body"))


def send_on_without_reserving_again(stack: ExitStack) -> None:
    """Straight among the rows that may be sent now."""
    change(
        stack,
        (failover.Failover, "after_failure"),
        ("queue.pending.appendleft(row)", "queue.line.ready.appendleft((queue, row))"),
    )


def name_what_was_not_put(stack: ExitStack) -> None:
    change(
        stack,
        (Bodies, "_put"),
        (
            "self.objects.put(*item)",
            "\n    try:\n        self.objects.put(*item)\n    except StoreError:\n        pass",
        ),
    )


def delete_what_no_commit_names_yet(stack: ExitStack) -> None:
    """Orphans, however young."""
    often = ("< LISTED_EVERY_MS", "< 2_000")
    change(stack, (objects_sweep, "delete_orphans"), ("now_ms - each.modified_ms > ORPHAN_MS", "True"), often)


def leave_what_nobody_names(stack: ExitStack) -> None:
    change(stack, (objects_sweep, "delete_orphans"), ("if orphans:", "if False:"))


@dataclass(frozen=True)
class Planted:
    plant: Callable[[ExitStack], None]
    laws: frozenset[Law]
    """The law that finds it is one of these."""
    seeds: range
    """Among these."""
    server_seeds: tuple[int, ...] = ()
    """Among these over a server; none: there it takes too many."""


PLANTED = (
    # A segment with two holders may also never come to its end.
    Planted(compare_no_epoch, frozenset({Law.FENCE, Law.MOVES, Law.ONE_HOLDER, Law.ENDS}), range(20), (10, 29, 2, 3)),
    Planted(tally_in_a_second_transaction, frozenset({Law.TALLIES, Law.COST}), range(5), (0, 2, 3)),
    Planted(reserve_after_the_send, frozenset({Law.RESERVED_BEFORE_SENT}), range(10), (1, 2, 3)),
    Planted(send_a_settled_row_again, frozenset({Law.NOT_TWICE, Law.MOVES}), range(10), (1, 2, 3)),
    Planted(
        add_cost_twice_after_a_lost_reply,
        # What the lost try had claimed is held by a worker that does not know of it.
        frozenset({Law.COST, Law.TALLIES, Law.USAGE, Law.ATTEMPTS, Law.ORPHANS, Law.ENDS}),
        range(262, 277),
        (10, 11, 14, 5, 8),
    ),
    Planted(forget_the_cap, frozenset({Law.CAP}), range(10), (1, 2, 3, 4)),
    Planted(replace_an_answer_by_a_failure, frozenset({Law.KEEPS_ANSWERS}), range(46, 54)),
    Planted(send_although_the_lease_may_be_over, frozenset({Law.ONE_HOLDER}), range(1000, 1012)),
    Planted(file_a_retry_by_position, frozenset({Law.OWN_ANSWER, Law.NOT_TWICE, Law.RESERVED_BEFORE_SENT}), range(10)),
    Planted(send_on_what_was_written_for_the_first, frozenset({Law.ROUTE}), range(10, 60), (13, 14, 16)),
    Planted(share_an_outcome_of_the_round_before, frozenset({Law.MOVES}), range(20, 31)),
    Planted(share_what_is_not_durable, frozenset({Law.MOVES, Law.OWN_ANSWER}), range(30)),
    Planted(send_on_without_reserving_again, frozenset({Law.RESERVED_BEFORE_SENT}), range(30, 60), (7, 13, 26)),
)

PLANTED_OUTSIDE = (
    Planted(name_what_was_not_put, frozenset({Law.OBJECTS}), range(10)),
    Planted(delete_what_no_commit_names_yet, frozenset({Law.OBJECTS}), range(9, 30)),
    Planted(leave_what_nobody_names, frozenset({Law.OBJECTS}), range(10)),
)
"""Those that a world with an object store finds."""


def first_broken(lives: Iterable[World]) -> Broken | None:
    for world in lives:
        try:
            world.live()
        except Broken as broken:
            return broken
        except Exception:
            continue  # the product fell over its own fault, which is no law that found it
    return None
